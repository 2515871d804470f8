"""Tasks: their states, what the service says of them, and what follows from how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudbench.rehearsal.azure_batch import folders
from cloudbench.rehearsal.azure_batch.task_run import TASK_ENDED, Outcome, Place, TaskRun, failure
from cloudbench.rehearsal.azure_batch.wire import FOREVER, Body, ServiceError, duration_s, stamp

if TYPE_CHECKING:
    from cloudbench.rehearsal.azure_batch.jobs import Job
    from cloudbench.rehearsal.azure_batch.nodes import Node

_TIMED_OUT = ("TaskTimedOut", "The task ran longer than its maxWallClockTime")


class Task:
    """A task of a job, from its creation until it is deleted with its job, or before."""

    def __init__(self, job: Job, body: Body) -> None:
        self.job = job
        self.world = job.world
        self.id: str = body["id"]
        self.body = {name: value for name, value in body.items() if value is not None}
        self.run: TaskRun | None = None
        self.succeeded = False
        self.last_node: Node | None = None
        self.created_at = self.state_at = self.world.now
        self.state = "active"
        self._before: tuple[str, float] | None = None
        self._execution: Body = {"retryCount": 0, "requeueCount": 0}
        self._places: list[Place] = []
        self._subtasks_since = ""
        self._ending: tuple[str, str] | None = None
        self._runs = 0
        self.touch()

    def touch(self) -> None:
        """Be a new version, for those who compare ETags."""
        self.etag = self.world.etag()
        self.modified_at = self.world.now

    @property
    def instances(self) -> int | None:
        """How many nodes it runs on at once; None for a task that is no multi-instance task."""
        settings: Body | None = self.body.get("multiInstanceSettings")
        return None if settings is None else int(settings.get("numberOfInstances") or 1)

    @property
    def slots(self) -> int:
        """How many task slots it takes on every node."""
        return int(self.body.get("requiredSlots") or 1)

    @property
    def exit_code(self) -> int | None:
        """What the last run ended with."""
        code: int | None = self._execution.get("exitCode")
        return code

    @property
    def failure(self) -> Body | None:
        """What the service says of the last run's failure."""
        info: Body | None = self._execution.get("failureInfo")
        return info

    def begin(self, nodes: list[Node]) -> None:
        """Run on these nodes."""
        if self._runs and "exitCode" in self._execution:
            self._execution["lastRetryTime"] = self.world.stamp()
        kept = ("retryCount", "requeueCount", "lastRetryTime", "lastRequeueTime")
        self._execution = {name: value for name, value in self._execution.items() if name in kept}
        self._execution["startTime"] = self._subtasks_since = self.world.stamp()
        self._runs += 1
        self._enter("running")
        self.last_node = nodes[0]
        self.run = run = TaskRun(self, nodes)
        self._places = run.places
        limit = (self.body.get("constraints") or {}).get("maxWallClockTime")
        if limit:
            self.world.timers.after(duration_s(limit), lambda: run.stop(*_TIMED_OUT))
        self._plan_preemption(run, nodes)

    def run_ended(self, run: TaskRun, outcome: Outcome) -> None:
        """The run's thread says how it ended; everything it started is gone."""
        if self.run is not run:
            return
        self.run = None
        if outcome.cut_off and not self._ending:
            # The service runs it again on other nodes, whatever maxTaskRetryCount says.
            self._enter("active")
        elif self._may_retry(outcome):
            self._execution |= {"exitCode": outcome.exit_code, "retryCount": self._execution["retryCount"] + 1}
            self._enter("active")
        else:
            self._complete(outcome)
        self.job.task_changed(self)

    def terminate(self) -> None:
        """End it.

        Raises:
            ServiceError: 409, where it has ended already.
        """
        if self.state == "completed":
            raise ServiceError(409, "TaskCompleted", "The specified task is already in a completed state.")
        self.end()

    def end(self) -> None:
        """Complete it as ended on request: at once where it does not run, else when its processes are gone."""
        if self.state == "completed":
            return
        self._ending = TASK_ENDED
        if self.run:
            self.run.stop(*TASK_ENDED)
        else:
            self._complete(Outcome(failure=failure(*TASK_ENDED)))
            self.job.task_changed(self)

    def requeue(self) -> None:
        """Stop it, to run it again."""
        if self.run:
            self._execution |= {
                "requeueCount": self._execution["requeueCount"] + 1,
                "lastRequeueTime": self.world.stamp(),
            }
            self.run.cut_off()

    def reactivate(self) -> None:
        """Let a failed task run again.

        Raises:
            ServiceError: 409, where it has not failed.
        """
        if self.state != "completed":
            raise ServiceError(409, "TaskNotCompleted", "The specified task is not in a completed state.")
        if self.succeeded:
            raise ServiceError(409, "TaskSucceeded", "The specified task has already completed successfully.")
        self._execution = {"retryCount": 0, "requeueCount": 0}
        self._ending = None
        self._enter("active")
        self.job.task_changed(self)

    def described(self) -> Body:
        """The task as the service describes it."""
        body: Body = {
            "requiredSlots": 1,
            "userIdentity": {"autoUser": {"scope": "task", "elevationLevel": "nonadmin"}},
            **self.body,
            "constraints": {
                "maxWallClockTime": FOREVER,
                "retentionTime": "P7D",
                "maxTaskRetryCount": 0,
                **(self.body.get("constraints") or {}),
            },
            "url": f"{self.job.url}/tasks/{self.id}",
            "eTag": self.etag,
            "lastModified": stamp(self.modified_at),
            "creationTime": stamp(self.created_at),
            "state": self.state,
            "stateTransitionTime": stamp(self.state_at),
            "executionInfo": self._execution,
        }
        if self._before:
            body |= {"previousState": self._before[0], "previousStateTransitionTime": stamp(self._before[1])}
        if self._places:
            body["nodeInfo"] = self._node_info(self._places[0])
        return body

    def subtasks(self) -> list[Body]:
        """What runs on its other nodes, numbered from 1."""
        state = "running" if self.run else "completed"
        listed = []
        for number, place in enumerate(self._places[1:], start=1):
            body: Body = {
                "id": number,
                "nodeInfo": self._node_info(place),
                "startTime": self._subtasks_since,
                "state": state,
                "stateTransitionTime": self._subtasks_since if self.run else stamp(self.state_at),
            }
            if not self.run:
                # The primary's end is theirs: whatever they still ran was killed.
                body |= {"endTime": stamp(self.state_at), "previousState": "running", "exitCode": 0}
                body |= {"previousStateTransitionTime": self._subtasks_since, "result": "success"}
            listed.append(body)
        return listed

    def _enter(self, state: str) -> None:
        self._before = (self.state, self.state_at)
        self.state, self.state_at = state, self.world.now
        self.touch()

    def _may_retry(self, outcome: Outcome) -> bool:
        if self._ending or outcome.exit_code in (None, 0) or self.job.is_ending:
            return False
        limit = (self.body.get("constraints") or {}).get("maxTaskRetryCount")
        if limit is None:
            limit = (self.job.body.get("constraints") or {}).get("maxTaskRetryCount") or 0
        return bool(limit == -1 or self._execution["retryCount"] < limit)

    def _complete(self, outcome: Outcome) -> None:
        self.succeeded = outcome.failure is None and outcome.exit_code == 0
        info = failure(*self._ending) if outcome.cut_off and self._ending else outcome.failure
        self._execution["endTime"] = self.world.stamp()
        self._execution["result"] = "success" if self.succeeded else "failure"
        if outcome.exit_code is not None:
            self._execution["exitCode"] = outcome.exit_code
        if info:
            self._execution["failureInfo"] = info
        self._enter("completed")
        self._tell_nodes()

    def _tell_nodes(self) -> None:
        for place in self._places[:1]:
            place.node.recent.append(
                {
                    "taskUrl": f"{self.job.url}/tasks/{self.id}",
                    "jobId": self.job.id,
                    "taskId": self.id,
                    "taskState": self.state,
                    "executionInfo": self._execution,
                }
            )

    def _plan_preemption(self, run: TaskRun, nodes: list[Node]) -> None:
        """The scenario's preemption, where these nodes can be taken back at all."""
        after_s = self.world.scenario.preempt_after_s
        node = nodes[max(-len(nodes), min(self.world.scenario.preempted_node, len(nodes) - 1))]
        if after_s is None or node.dedicated or not self.world.preemptions_left:
            return
        self.world.preemptions_left -= 1

        def preempt() -> None:
            if self.run is run:
                node.preempt()

        self.world.timers.after(after_s, preempt)

    def _node_info(self, place: Place) -> Body:
        node = place.node
        url = f"{self.world.url}/pools/{node.pool.id}/nodes/{node.id}"
        inside = place.folder.relative_to(place.machine.folder / folders.ROOT).as_posix()
        return {
            "affinityId": f"TVM:{node.id}",
            "nodeUrl": url,
            "poolId": node.pool.id,
            "nodeId": node.id,
            "taskRootDirectory": inside,
            "taskRootDirectoryUrl": f"{url}/files/{inside}",
        }
