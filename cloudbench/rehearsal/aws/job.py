"""One job of AWS Batch: its states from submission to its last attempt, and how it is described."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from cloudbench.rehearsal.aws.attempts import Attempt, Node
from cloudbench.rehearsal.aws.cloud import REGION
from cloudbench.rehearsal.aws.wire import Body

if TYPE_CHECKING:
    from cloudbench.rehearsal.aws.hosts import Host
    from cloudbench.rehearsal.aws.world import AwsWorld

WAITING = ("SUBMITTED", "PENDING", "RUNNABLE")
ENDED = ("SUCCEEDED", "FAILED")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What was submitted, with everything that the definition says."""

    name: str
    queue: Any
    definition: Any
    containers: tuple[Body, ...]
    multinode: bool
    main: int = 0
    retry: Mapping[str, Any] = {}
    timeout_s: int | None = None
    tags: Mapping[str, str] = {}
    parameters: Mapping[str, str] = {}
    depends_on: tuple[Mapping[str, Any], ...] = ()


class Job:
    """A job. It is RUNNABLE until `place` gives it instances, and again when it is tried anew.

    Args:
        look: called when it waits for instances, or others need not wait for it any more.
    """

    def __init__(self, world: AwsWorld, order: Order, look: Callable[[], None]) -> None:
        self.id = str(uuid4())
        self.order = order
        self.arn = f"arn:aws:batch:{REGION}:{world.cloud.account}:job/{self.id}"
        self.status = "SUBMITTED"
        self.reason: str | None = None
        self.runnable_since: float | None = None
        self.explained = False
        self.seen_from = world.now + world.scenario.stale_reads_s
        self._world = world
        self._looked_for = look
        self._created_at = world.now_ms
        self._started_at: int | None = None
        self._stopped_at: int | None = None
        self._hosts: list[Host] = []
        self._environment = ""
        self._attempt: Attempt | None = None
        self._attempts: list[Body] = []
        self._cancelled = self._terminated = False
        world.cloud.backend("batch").tag_resource(self.arn, dict(order.tags))

    @property
    def ended(self) -> bool:
        """Whether nothing will happen to it any more."""
        return self.status in ENDED

    def become_runnable(self) -> None:
        """Wait for instances from now on."""
        self.status = "RUNNABLE"
        self.runnable_since = self._world.now
        self.explained = False
        self._world.timers.after(0, self._looked_for)

    def place(self, environment: str, hosts: Sequence[Host]) -> None:
        """Run on these instances of an environment, one a node, as soon as they are there."""
        self.runnable_since = self.reason = None
        self._environment = environment
        self._hosts = list(hosts)
        for host in hosts:
            host.ready = self._host_is_ready
            host.lost = lambda reason, host=host: self._host_is_lost(host, reason)  # type: ignore[misc]

    @property
    def placed(self) -> bool:
        """Whether it has instances, or will have."""
        return bool(self._hosts)

    def cancel(self, reason: str) -> None:
        """End it unless it has begun to run."""
        if self.status in WAITING:
            self._cancelled = True
            self._give_up(reason)

    def terminate(self, reason: str) -> None:
        """End it, whatever it does."""
        if self.ended:
            return
        self._terminated = True
        if self._attempt is None or self._attempt.started_at is None:
            self._give_up(reason)
        else:
            self._attempt.stop(reason)

    def _give_up(self, reason: str) -> None:
        self.reason, self._attempt = reason, None
        self._finish("FAILED")

    def _finish(self, status: str) -> None:
        self.status, self._stopped_at = status, self._world.now_ms
        self._let_go()
        self._world.timers.after(0, self._looked_for)

    def _let_go(self) -> None:
        for host in self._hosts:
            host.ready, host.lost = (lambda: None), (lambda reason: None)
            self._world.timers.after(self._world.scenario.idle_s, host.terminate)
        self._hosts = []

    def _host_is_ready(self) -> None:
        if self.status != "RUNNABLE" or any(host.state != "running" for host in self._hosts):
            return
        self.status = "STARTING"
        containers = self.order.containers
        prefix = self.order.definition.name
        nodes = [
            Node(self._world, index, container, host, prefix)
            for index, (container, host) in enumerate(zip(containers, self._hosts, strict=True))
        ]
        variables = {"AWS_BATCH_JQ_NAME": self.order.queue.name, "AWS_BATCH_CE_NAME": self._environment}
        number = len(self._attempts) + 1
        attempt = Attempt(self._world, self.id, number, nodes, self.order.main, self._attempt_is_over, variables)
        self._attempt = attempt
        self._world.timers.after(self._world.scenario.pull_s, lambda: self._run(attempt))

    def _run(self, attempt: Attempt) -> None:
        if self._attempt is attempt and self.status == "STARTING":
            self.status = "RUNNING"
            self._started_at = self._world.now_ms
            attempt.start(self.order.timeout_s)

    def _host_is_lost(self, host: Host, reason: str) -> None:
        if self._attempt is None:  # before all of them were there: the job waits for others
            self._let_go()
            self.become_runnable()
            return
        for node in self._attempt.nodes:
            if node.host is host:
                node.lose(reason)

    def _attempt_is_over(self) -> None:
        attempt = self._attempt
        if attempt is None:
            return
        self._attempts.append(attempt.describe())
        self.reason = attempt.status_reason
        if attempt.succeeded:
            self._finish("SUCCEEDED")
        elif attempt.may_retry and self._retries(attempt):
            self._let_go()
            self._attempt = None
            self.become_runnable()
        else:
            self._finish("FAILED")

    def _retries(self, attempt: Attempt) -> bool:
        """Whether it is tried again: as often as it may be, unless a condition says otherwise."""
        if len(self._attempts) >= int(self.order.retry.get("attempts") or 1):
            return False
        told = {
            "onStatusReason": attempt.status_reason or "",
            "onReason": attempt.main.reason or "",
            "onExitCode": "" if attempt.main.exit_code is None else str(attempt.main.exit_code),
        }
        for condition in self.order.retry.get("evaluateOnExit") or ():
            patterns = {name: text for name, text in condition.items() if name in told}
            if all(fnmatch.fnmatchcase(told[name].lower(), text.lower()) for name, text in patterns.items()):
                return str(condition["action"]).upper() == "RETRY"
        return True

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Those of the last attempt."""
        return self._attempt.nodes if self._attempt else ()

    def summary(self) -> Body:
        """As a list has it."""
        body = self._common()
        if self.order.multinode:
            body["nodeProperties"] = {"numNodes": len(self.order.containers)}
        elif self.nodes:
            body["container"] = self._outcome(self.nodes[0])
        return body

    def describe(self) -> Body:
        """As a description has it."""
        order = self.order
        body = {**self._common(), "jobQueue": order.queue.arn, "attempts": list(self._attempts)}
        body |= {"dependsOn": list(order.depends_on), "parameters": dict(order.parameters)}
        body |= {"tags": self._world.cloud.backend("batch").list_tags_for_resource(self.arn)}
        if order.retry:
            body["retryStrategy"] = dict(order.retry)
        if order.timeout_s is not None:
            body["timeout"] = {"attemptDurationSeconds": order.timeout_s}
        if order.multinode:
            ranges = [
                {"targetNodes": str(index), "container": container} for index, container in enumerate(order.containers)
            ]
            count = len(order.containers)
            body["nodeProperties"] = {"numNodes": count, "mainNode": order.main, "nodeRangeProperties": ranges}
        else:
            body["container"] = self._container(0)
        return body

    def child_summary(self, index: int) -> Body:
        """One node's job as a list has it."""
        body = self._child(index)
        count = len(self.order.containers)
        body["nodeProperties"] = {"isMainNode": index == self.order.main, "numNodes": count, "nodeIndex": index}
        if self.nodes:
            body["container"] = self._outcome(self.nodes[index])
        return body

    def child(self, index: int) -> Body:
        """One node's job as a description has it."""
        body = {**self._child(index), "jobQueue": self.order.queue.arn, "attempts": [], "dependsOn": []}
        body["nodeDetails"] = {"nodeIndex": index, "isMainNode": index == self.order.main}
        body["container"] = self._container(index)
        return body

    def child_status(self, index: int) -> str:
        """The state of one node's job."""
        return self.nodes[index].status if self.nodes else self.status

    def _common(self) -> Body:
        body: Body = {
            "jobArn": self.arn,
            "jobId": self.id,
            "jobName": self.order.name,
            "jobDefinition": self.order.definition.arn,
            "createdAt": self._created_at,
            "status": self.status,
            "isCancelled": self._cancelled,
            "isTerminated": self._terminated,
        }
        times = {"startedAt": self._started_at, "stoppedAt": self._stopped_at, "statusReason": self.reason}
        return {**body, **{name: value for name, value in times.items() if value is not None}}

    def _child(self, index: int) -> Body:
        body = {**self._common(), "jobId": f"{self.id}#{index}", "jobArn": f"{self.arn}#{index}"}
        body["status"] = self.child_status(index)
        if self.nodes:
            node = self.nodes[index]
            told = {"startedAt": node.started_at, "stoppedAt": node.stopped_at, "statusReason": node.status_reason}
            body = {name: value for name, value in body.items() if name not in told}
            body |= {name: value for name, value in told.items() if value is not None}
        return body

    def _container(self, index: int) -> Body:
        container = self.order.containers[index]
        known = ("image", "command", "volumes", "environment", "mountPoints", "ulimits", "privileged", "user")
        more = ("resourceRequirements", "linuxParameters", "logConfiguration", "jobRoleArn", "executionRoleArn")
        body = {name: container[name] for name in (*known, *more) if name in container}
        for node in self.nodes[index : index + 1]:
            body |= self._outcome(node)
            body |= {"logStreamName": node.stream.name, "taskArn": node.task_arn}
            body |= {"containerInstanceArn": node.instance_arn, "instanceType": node.host.type}
            body["networkInterfaces"] = []
        return body

    @staticmethod
    def _outcome(node: Node) -> Body:
        told = {"exitCode": node.exit_code, "reason": node.reason}
        return {name: value for name, value in told.items() if value is not None}
