"""One run of a task on its nodes: files, coordination command, application command, and the end of all they left.

Every run has a thread of its own, so that no command and no slow share holds the service up.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cloudbench.errors import InfrastructureError
from cloudbench.rehearsal.azure_batch import folders
from cloudbench.rehearsal.azure_batch.folders import PreparationError
from cloudbench.rehearsal.azure_batch.wire import Body, name_values

if TYPE_CHECKING:
    from cloudbench.rehearsal.azure_batch.nodes import Node
    from cloudbench.rehearsal.azure_batch.tasks import Task
    from cloudbench.rehearsal.machines import Execution, Machine

TASK_ENDED = ("TaskEnded", "Task was ended by user request")

_GRACE_S = 30.0
_LOOK_EVERY_S = 0.05
_MASTER_PORT = 6000


class Outcome(NamedTuple):
    """How a run ended: an exit code, a failure in the service's words, or neither because it was cut off."""

    exit_code: int | None = None
    failure: Body | None = None
    cut_off: bool = False


class Place(NamedTuple):
    """What a run needs to know of one of its nodes; the primary is the first of them."""

    node: Node
    machine: Machine
    folder: Path
    environment: Mapping[str, str]

    @property
    def wd(self) -> Path:
        """Where its commands run."""
        return self.folder / "wd"


class _StoppedError(Exception):
    """The run was ended from outside."""


class TaskRun:
    """A task's run on nodes that are all its own from now on."""

    def __init__(self, task: Task, nodes: list[Node]) -> None:
        self.slots = task.slots
        self.primary_node = nodes[0]
        self._task = task
        self._body = dict(task.body)
        self._several: Body | None = self._body.get("multiInstanceSettings")
        self._world = task.world
        self._places = _places(task, nodes)
        self._executions: list[Execution] = []
        self._failure: Body | None = None
        self._stopping = False
        self._is_cut_off = False
        self._killed_at = -math.inf
        for node in nodes:
            node.begin(self)
        self._world.background(self._run)

    @property
    def places(self) -> list[Place]:
        """Its nodes, the primary first."""
        return self._places

    def stop(self, code: str, message: str) -> None:
        """End it as a failure with these words, unless it is ending already."""
        if not self._stopping:
            self._failure = failure(code, message)
            self._stopping = True
            self._killed_at = self._world.now + _GRACE_S

    def cut_off(self) -> None:
        """One of its nodes is lost."""
        self._is_cut_off = self._is_cut_off or not self._stopping
        self._stopping = True

    def _run(self) -> None:
        outcome = self._outcome()
        for execution in self._executions:
            with contextlib.suppress(InfrastructureError):
                execution.end(self._killed_at - self._world.timers.clock.now(), self._now)
        self._world.happens(lambda: self._ended(outcome))

    def _now(self) -> float:
        """What the last seconds of its commands are counted by; where the service closes they are over."""
        return math.inf if self._world.closing.is_set() else self._world.timers.clock.now()

    def _ended(self, outcome: Outcome) -> None:
        if self._is_cut_off:
            outcome = Outcome(cut_off=True)
        for place in self._places:
            place.node.finish(self, succeeded=outcome.exit_code == 0)
        self._task.run_ended(self, outcome)

    def _outcome(self) -> Outcome:
        try:
            return self._commands()
        except _StoppedError:
            return Outcome(failure=self._failure)
        except PreparationError as error:
            told = failure(error.code, "The task's files cannot be had", Message=str(error))
        except (InfrastructureError, OSError) as error:
            told = failure("CommandLaunchFailed", "The command cannot be started", Message=str(error))
        # A machine that is taken away meanwhile is no fault of the command's.
        return Outcome(failure=self._failure if self._stopping else told)

    def _commands(self) -> Outcome:
        for place in self._places:
            self._prepare(place)
        if self._several:
            code = self._coordinate(self._several["coordinationCommandLine"])
            if code:
                return Outcome(code, failure("CoordinationCommandFailed", _COORDINATION, ExitCode=str(code)))
        code = self._wait(self._start(self._places[0], self._body["commandLine"]))
        # Only the primary's files are sent anywhere; what the others wrote ends with their nodes.
        try:
            folders.upload(self._body.get("outputFiles", []), self._places[0].wd, succeeded=code == 0)
        except PreparationError as error:
            return Outcome(code, failure(error.code, "A file cannot be uploaded", Message=str(error)))
        return Outcome(code, failure("FailureExitCode", _EXIT_CODE, ExitCode=str(code)) if code else None)

    def _prepare(self, place: Place) -> None:
        primary = place is self._places[0]
        place.wd.mkdir(parents=True, exist_ok=True)
        if self._several:
            shared = self._several.get("commonResourceFiles", [])
            folders.download(shared, Path(place.environment["AZ_BATCH_TASK_SHARED_DIR"]), self._world)
        if primary:
            folders.download(self._body.get("resourceFiles", []), place.wd, self._world)

    def _coordinate(self, command: str) -> int:
        """Run the coordination command on all nodes at once, until it has returned on all; the first code but 0."""
        executions = [self._start(place, command) for place in self._places]
        codes = [self._wait(execution) for execution in executions]
        return next((code for code in codes if code), 0)

    def _start(self, place: Place, command: str) -> Execution:
        container = self._body.get("containerSettings")
        if container:
            root = Path(place.environment["AZ_BATCH_NODE_ROOT_DIR"])
            line = folders.in_container(command, container, root, place.environment, place.folder)
        else:
            line = folders.as_shell(command)
        execution = place.machine.run(
            line,
            cwd=place.wd,
            environment=place.environment,
            stdout=place.folder / "stdout.txt",
            stderr=place.folder / "stderr.txt",
        )
        self._executions.append(execution)
        return execution

    def _wait(self, execution: Execution) -> int:
        while (code := execution.wait(_LOOK_EVERY_S)) is None or self._stopping:
            if self._stopping or self._world.closing.is_set():
                raise _StoppedError
        return code


_EXIT_CODE = "The task exited with an exit code representing a failure"
_COORDINATION = "The coordination command exited with an exit code representing a failure"


def failure(code: str, message: str, **details: str) -> Body:
    """A task's failure as the service tells it: what was asked of it was wrong."""
    return {"category": "usererror", "code": code, "message": message, "details": name_values(details)}


def _places(task: Task, nodes: list[Node]) -> list[Place]:
    """The nodes with their folders and variables, as they are when the run begins."""
    started = [(node, node.machine) for node in nodes if node.machine]
    hosts = [machine.address for _, machine in started]
    common = folders.settings(task.job.body) | folders.settings(task.body)
    places = []
    for index, (node, machine) in enumerate(started):
        top = node.root / folders.WORK_ITEMS / task.job.id / "job-1" / task.id
        folder = top / str(index) if index else top
        variables = {
            **folders.environment(node),
            "AZ_BATCH_JOB_ID": task.job.id,
            "AZ_BATCH_TASK_ID": task.id,
            "AZ_BATCH_TASK_DIR": str(folder),
            "AZ_BATCH_TASK_WORKING_DIR": str(folder / "wd"),
        }
        if task.instances is not None:
            variables |= {
                "AZ_BATCH_TASK_SHARED_DIR": str(top),
                "AZ_BATCH_HOST_LIST": ",".join(hosts),
                "AZ_BATCH_NODE_LIST": ";".join(hosts),
                "AZ_BATCH_MASTER_NODE": f"{hosts[0]}:{_MASTER_PORT}",
                "AZ_BATCH_IS_CURRENT_NODE_MASTER": str(index == 0).lower(),
            }
        places.append(Place(node, machine, folder, {**variables, **common}))
    return places
