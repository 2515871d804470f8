"""One attempt of a job: all its nodes' containers at once, on instances of their own.

moto alone starts one container after another, tells the nodes nothing of their numbers, puts all logs into one stream
once everything has ended, and stops a job with SIGKILL.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cloudbench.errors import InfrastructureError
from cloudbench.rehearsal.aws.cloud import REGION
from cloudbench.rehearsal.aws.definitions import requirements
from cloudbench.rehearsal.aws.streams import LogStream
from cloudbench.rehearsal.aws.wire import Body
from cloudbench.rehearsal.guest import LIVES_WITH_THE_REHEARSAL

if TYPE_CHECKING:
    from cloudbench.rehearsal.aws.hosts import Host
    from cloudbench.rehearsal.aws.world import AwsWorld
    from cloudbench.rehearsal.machines import Execution

STOP_GRACE_S = 30.0
TIMED_OUT = "Job attempt duration exceeded timeout"
EXITED = "Essential container in task exited"
_LOG_GROUP = "/aws/batch/job"
_KILLED = 137


class Node:
    """One node of an attempt; a container job has one."""

    def __init__(self, world: AwsWorld, index: int, container: Body, host: Host, stream_prefix: str) -> None:
        self.index = index
        self.container = container
        self.host = host
        self.task_id = uuid4().hex
        self.status = "STARTING"
        self.exit_code: int | None = None
        self.reason: str | None = None  # of the container's own failure to start
        self.status_reason: str | None = None
        self.started_at: int | None = None
        self.stopped_at: int | None = None
        self._world = world
        self._execution: Execution | None = None
        options = (container.get("logConfiguration") or {}).get("options") or {}
        prefix = options.get("awslogs-stream-prefix", stream_prefix)
        self.stream = LogStream(world, options.get("awslogs-group", _LOG_GROUP), f"{prefix}/default/{self.task_id}")

    @property
    def ended(self) -> bool:
        """Whether its container is no more."""
        return self.status in ("SUCCEEDED", "FAILED")

    @property
    def task_arn(self) -> str:
        """The ECS task that it is."""
        return f"arn:aws:ecs:{REGION}:{self._world.cloud.account}:task/AWSBatch/{self.task_id}"

    @property
    def instance_arn(self) -> str:
        """The ECS container instance that it runs on."""
        return f"arn:aws:ecs:{REGION}:{self._world.cloud.account}:container-instance/AWSBatch/{self.host.id[2:]}"

    def start(self, variables: Mapping[str, str], ended: Callable[[Node], None]) -> None:
        """Start the container; `ended` is called once it and all its processes are gone."""
        self.status = "RUNNING"
        self.started_at = self._world.now_ms
        machine = self.host.machine
        log = machine.folder / "log" / self.task_id
        try:
            command, environment = self._command(machine.folder, variables)
            log.parent.mkdir(exist_ok=True)
            work = machine.folder / "work" / self.task_id
            work.mkdir(parents=True)
            self.stream.open()
            self._execution = machine.run(command, cwd=work, environment=environment, stdout=log, stderr=log)
        except (InfrastructureError, OSError, LookupError) as error:
            self.reason = f"CannotStartContainerError: {error}"
            self._end(None)
            self._world.timers.after(0, lambda: ended(self))
            return
        execution = self._execution
        self._world.background(lambda: self._watch(execution, log, ended))

    def stop(self) -> None:
        """SIGTERM now, SIGKILL when its time is over."""
        if self._execution is not None and not self.ended:
            self._execution.terminate()
            self._world.timers.after(STOP_GRACE_S, self._kill)

    def lose(self, reason: str) -> None:
        """Its instance is gone."""
        if not self.ended:
            self.status_reason = reason

    def _kill(self) -> None:
        if self._execution is not None and not self.ended:
            execution = self._execution
            self._world.background(lambda: _end(execution))

    def _watch(self, execution: Execution, log: Path, ended: Callable[[Node], None]) -> None:
        code = None
        while code is None:
            code = execution.wait(0.1)
            self.stream.follow(log)
        _end(execution)  # what a container leaves behind ends with it
        self.stream.follow(log, to_the_end=True)

        def end() -> None:
            self._end(code)
            ended(self)

        self._world.happens(end)

    def _end(self, code: int | None) -> None:
        self.stopped_at = self._world.now_ms
        # A lost instance tells no exit code.
        self.exit_code = None if self.status_reason else code
        self.status = "SUCCEEDED" if self.exit_code == 0 else "FAILED"
        self.status_reason = self.status_reason or EXITED

    def _command(self, root: Path, variables: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """The `docker run` of the container, and the variables that it hands on: their values are in no command."""
        container = self.container
        given = {item["name"]: item["value"] for item in container.get("environment") or () if item.get("value")}
        environment = {**given, **variables}
        # What a machine of the rehearsal has beside those of a real one: nodes share one kernel here.
        names = [*environment, "CLOUDBENCH_NODE_ADDRESS", "AWS_EC2_METADATA_SERVICE_ENDPOINT"]
        environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = f"{self._world.url}/machines/{self.host.id}"
        command = ["docker", "run", "--rm", "--network", "host"]
        parameters = container.get("linuxParameters") or {}
        if size_mib := parameters.get("sharedMemorySize"):
            command += ["--shm-size", f"{size_mib}m"]
        if parameters.get("initProcessEnabled"):
            command.append("--init")
        if gpus := requirements(container).gpus:
            command += ["--gpus", str(gpus)]
        if user := container.get("user"):
            command += ["--user", user]
        for volume in self._volumes(root):
            command += ["--volume", volume]
        for name in names:
            command += ["--env", name]
        line = shlex.join(["exec", *command, container["image"], *container.get("command", ())])
        return f"{LIVES_WITH_THE_REHEARSAL}{line}", environment

    def _volumes(self, root: Path) -> list[str]:
        sources = {item["name"]: item for item in self.container.get("volumes") or ()}
        found = []
        for mount in self.container.get("mountPoints") or ():
            volume = sources[mount["sourceVolume"]]
            if efs := volume.get("efsVolumeConfiguration"):
                source = self._file_system(efs)
            else:
                path = (volume.get("host") or {}).get("sourcePath") or f"/volumes/{volume['name']}"
                source = root / "disk" / path.lstrip("/")
            source.mkdir(parents=True, exist_ok=True)
            found.append(f"{source}:{mount['containerPath']}" + (":ro" if mount.get("readOnly") else ""))
        return found

    def _file_system(self, configuration: Mapping[str, Any]) -> Path:
        name = str(configuration["fileSystemId"])
        root = self._world.file_systems
        if root is None or not (root / name).is_dir():
            raise LookupError(f"failed to mount {name}: the file system does not exist")
        return root / name / str(configuration.get("rootDirectory") or "").lstrip("/")


def _end(execution: Execution) -> None:
    """Kill all that is left of it; what does not die is no fault of the stand-in's."""
    with contextlib.suppress(InfrastructureError):
        execution.end(0)


class Attempt:
    """One attempt, from the launch of its instances until its last container has ended.

    Args:
        over: called once, when everything has ended.
        variables: what every node is told beside its place.
    """

    def __init__(
        self,
        world: AwsWorld,
        job_id: str,
        number: int,
        nodes: Sequence[Node],
        main: int,
        over: Callable[[], None],
        variables: Mapping[str, str],
    ) -> None:
        self.nodes = tuple(nodes)
        self.number = number
        self.started_at: int | None = None
        self.may_retry = True
        self._world = world
        self._job_id = job_id
        self._main = main
        self._over = over
        self._shared = dict(variables)
        self._reason: str | None = None
        self._done = False

    @property
    def main(self) -> Node:
        """The node whose end decides."""
        return self.nodes[self._main]

    @property
    def succeeded(self) -> bool:
        """Whether it ended well."""
        return self._reason is None and self.main.status == "SUCCEEDED"

    @property
    def status_reason(self) -> str | None:
        """Why it ended, as the service tells it."""
        return self._reason or self.main.status_reason

    def start(self, timeout_s: int | None) -> None:
        """Start all containers at once."""
        self.started_at = self._world.now_ms
        for node in self.nodes:
            node.start(self._variables(node), self._ended)
        if timeout_s is not None:
            self._world.timers.after(timeout_s, lambda: self.stop(TIMED_OUT))

    def stop(self, reason: str) -> None:
        """End it for a reason that is not its own; it is not tried again."""
        if self._done or self._reason is not None:
            return
        self._reason, self.may_retry = reason, False
        for node in self.nodes:
            node.stop()

    def describe(self) -> Body:
        """As `attempts` of a job has it."""
        main = self.main
        container: Body = {"networkInterfaces": [], "logStreamName": main.stream.name, "taskArn": main.task_arn}
        container["containerInstanceArn"] = main.instance_arn
        container |= {} if main.exit_code is None else {"exitCode": main.exit_code}
        container |= {} if main.reason is None else {"reason": main.reason}
        found: Body = {"container": container, "statusReason": self.status_reason}
        found |= {"startedAt": self.started_at, "stoppedAt": self._world.now_ms}
        return found

    def _ended(self, node: Node) -> None:
        if node is self.main:
            for other in self.nodes:
                other.stop()
        if not self._done and all(node.ended for node in self.nodes):
            self._done = True
            self._over()

    def _variables(self, node: Node) -> dict[str, str]:
        variables = {
            **self._shared,
            "AWS_BATCH_JOB_ID": f"{self._job_id}#{node.index}" if len(self.nodes) > 1 else self._job_id,
            "AWS_BATCH_JOB_ATTEMPT": str(self.number),
        }
        if len(self.nodes) > 1:
            variables |= {
                "AWS_BATCH_JOB_NODE_INDEX": str(node.index),
                "AWS_BATCH_JOB_MAIN_NODE_INDEX": str(self._main),
                "AWS_BATCH_JOB_NUM_NODES": str(len(self.nodes)),
            }
            if node is not self.main:
                variables["AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"] = self.main.host.address
        return variables
