"""The local provider: what both of its services share."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from cloudbench.errors import CloudbenchError
from cloudbench.plan import RunPlan, node_job
from cloudbench.providers.base import LogChunk, LogFile, Problem, Request, Step
from cloudbench.providers.local import processes
from cloudbench.providers.local.machine import Machine
from cloudbench.providers.local.service import Service, ServiceLostError
from cloudbench.providers.local.workspace import BUNDLE, Workspace
from cloudbench.providers.verdict import describe_death, judge
from cloudbench.run import Handle, Outcome, Status

_KILL_AFTER_S = 10.0
"""How long after its grace a job that was told to end is killed."""


class LocalProvider:
    """Runs the nodes of one run after the other on this machine.

    Args:
        root: the folder of all workspaces, made when it is needed.
        service: how the nodes run.
        attached: nodes that are submitted end within seconds when this process dies. Jobs that are polled live on
            when the client that submitted them has died.
    """

    capacity: int | None = 1
    poll_interval_s = 0.3

    def __init__(self, root: Path, *, service: Service, machine: Machine, attached: bool) -> None:
        self._root = root.absolute()
        self._service = service
        self._machine = machine
        self._attached = attached
        self._lifelines: dict[Workspace, int] = {}

    def render(self, plan: RunPlan, attempt: int) -> Request:
        """The folder, what the service makes, and the programs of the nodes."""
        workspace = Workspace(root=self._root, run=plan.id, attempt=attempt)
        folder = Step(
            action="make the folder that the nodes share",
            handle=workspace.handle(self._service.name, "workspace"),
            body={
                "path": str(workspace.folder),
                "job.json": msgspec.to_builtins(node_job(plan, attempt=attempt)),
                "secret": "(made then)",
                BUNDLE: "(the node program)",
            },
        )
        return Request(plan=plan, attempt=attempt, steps=(folder, *self._service.steps(plan, workspace)))

    def check(self, request: Request) -> Sequence[Problem]:
        """What stands against the request: the setup, the machine's GPUs, the modules that ranks import."""
        plan = request.plan
        problems = [*_check_setup(plan), *_check_gpus(plan, self._machine), *_check_company(plan)]
        if any(problem.severity == "error" for problem in problems):
            return problems
        try:
            return [*problems, *self._service.check(plan)]
        except CloudbenchError as error:
            failure = Problem(
                severity="error", what=error.what, why=error.why, todo=error.todo, exit_code=error.exit_code
            )
            return [*problems, failure]

    def provision(self, request: Request) -> Iterator[Handle]:
        """Make the workspace and what the service needs.

        Raises:
            CloudbenchError: something of that name belongs to another owner, or cannot be made.
        """
        for step in request.steps[:-1]:
            yield step.handle
            if step.handle.kind == "workspace":
                self._make_workspace(step.handle, request.plan)
            else:
                self._service.make(step)

    def submit(self, request: Request) -> Handle:
        """Start the node programs that were never started, unless the job is ending or has ended already.

        Raises:
            CloudbenchError: they cannot be started.
        """
        workspace = self._workspace(request.job)
        self._hold_lifeline(workspace)
        alive = self._service.alive([workspace])[workspace]
        silent = {node for node in range(request.plan.nodes) if node not in alive and workspace.status(node) is None}
        ended = set(range(request.plan.nodes)) - alive - silent
        if silent and not ended and workspace.ending is None:
            self._service.start(request.steps[-1], workspace, sorted(silent))
        return request.job

    def poll(self, jobs: Collection[Handle]) -> Mapping[Handle, Status]:
        """How the jobs stand. A job of which a node died is told to end; one that does not end in time is killed."""
        workspaces = {job: self._workspace(job) for job in jobs}
        known = [workspace for workspace in workspaces.values() if workspace.record]
        for workspace in known:
            self._hold_lifeline(workspace)
        alive = self._alive(known)
        return {job: self._status(workspace, alive.get(workspace, set())) for job, workspace in workspaces.items()}

    def stop(self, job: Handle) -> None:
        """Send SIGTERM to the node programs; `poll` sends SIGKILL to all when their grace is over."""
        workspace = self._workspace(job)
        if workspace.record:
            self._end(workspace, Outcome.CANCELLED, "stopped on request")

    def logs(self, job: Handle) -> Sequence[LogFile]:
        """The log files in the nodes' folders."""
        return self._workspace(job).logs()

    def read_log(self, job: Handle, node: int, name: str, offset: int) -> LogChunk:
        """At most 1 MiB of a log file."""
        return self._workspace(job).read_log(node, name, offset)

    def collect(self, job: Handle, into: Path) -> None:
        """Copy what the nodes wrote and is not there yet."""
        self._workspace(job).collect(into)

    def release(self, handle: Handle) -> bool:
        """Kill or remove the thing. While the service cannot be asked, nothing counts as gone."""
        workspace = self._workspace(handle)
        try:
            if handle.kind == "workspace":
                gone = not self._service.alive([workspace])[workspace] and processes.is_gone(workspace)
                return gone and workspace.remove()
            self._drop_lifeline(workspace)
            return self._service.release(handle, workspace)
        except ServiceLostError:
            processes.kill(workspace)
            return False

    def find(self, owner: str) -> Iterable[Handle]:
        """What exists of that owner: its workspaces, what the service knows, and jobs that live."""
        workspaces = [
            workspace
            for workspace in Workspace.all(self._root)
            if (record := workspace.record) and (record.owner, record.service) == (owner, self._service.name)
        ]
        for workspace in workspaces:
            yield workspace.handle(self._service.name, "workspace")
        yield from self._service.find(owner, workspaces)

    def _make_workspace(self, handle: Handle, plan: RunPlan) -> None:
        workspace = self._workspace(handle)
        try:
            workspace.make(plan, service=self._service.name)
        except OSError as error:
            raise CloudbenchError(
                f"{workspace.folder}: the folder that the nodes share cannot be made",
                why=str(error),
                todo="make room there, or set CLOUDBENCH_HOME to another folder",
            ) from error

    def _workspace(self, handle: Handle) -> Workspace:
        return Workspace(root=self._root, run=handle.run, attempt=handle.attempt)

    def _status(self, workspace: Workspace, alive: set[int]) -> Status:
        record = workspace.record
        if record is None:
            return Status(
                outcome=Outcome.INFRASTRUCTURE,
                reason=f"this machine does not know the job: there is no folder {workspace.folder}",
            )
        nodes = [workspace.see(node, alive=node in alive) for node in range(record.nodes)]
        died = [node for node in nodes if node.died]
        ending = workspace.ending
        if alive and ending and time.time() > ending.at + record.grace_s + _KILL_AFTER_S:
            self._signal(workspace, signal.SIGKILL)
        elif alive and died:
            self._end(workspace, Outcome.INFRASTRUCTURE, describe_death(died))
        return judge(nodes, ending)

    def _alive(self, workspaces: Sequence[Workspace]) -> dict[Workspace, set[int]]:
        """The living nodes. Where the service is lost, its jobs are ended: nobody could tell how they stand."""
        try:
            return self._service.alive(workspaces)
        except ServiceLostError as error:
            for workspace in workspaces:
                self._end(workspace, Outcome.INFRASTRUCTURE, " — ".join(filter(None, (error.what, error.why))))
                self._drop_lifeline(workspace)
            return processes.nodes_alive(workspaces)

    def _end(self, workspace: Workspace, outcome: Outcome, reason: str) -> None:
        """Tell the nodes to end, once; a client that dies in between leaves it to the kill that follows."""
        if workspace.begin_ending(outcome, reason):
            self._signal(workspace, signal.SIGTERM)

    def _signal(self, workspace: Workspace, number: signal.Signals) -> None:
        try:
            self._service.signal(workspace, number)
        except ServiceLostError:
            processes.signal_nodes(workspace, number)

    def _hold_lifeline(self, workspace: Workspace) -> None:
        """Hold the lifeline from now on, unless another client does or the nodes are to miss it."""
        import fcntl

        if not self._attached or workspace in self._lifelines or workspace.ending:
            return
        descriptor = os.open(workspace.folder / "lifeline", os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            self._lifelines[workspace] = descriptor

    def _drop_lifeline(self, workspace: Workspace) -> None:
        if (descriptor := self._lifelines.pop(workspace, None)) is not None:
            os.close(descriptor)


def _check_setup(plan: RunPlan) -> Iterator[Problem]:
    setup = plan.setup
    unknown = {
        "sku": setup.sku,
        "storage": setup.storage,
        "pool": setup.pool,
        "priority": None if setup.priority == "dedicated" else setup.priority,
    }
    for key, value in unknown.items():
        if value is not None:
            yield Problem(
                severity="error",
                what=f"{key} {value}: the local provider has no {key}",
                why="it runs on this machine as it is",
                todo=f"leave {key} out",
                exit_code=2,
            )


def _check_gpus(plan: RunPlan, machine: Machine) -> Iterator[Problem]:
    wanted, found = plan.nodes * plan.gpus_per_node, len(machine.gpus)
    if not found:
        yield Problem(severity="warning", what="nvidia-smi shows no GPU on this machine: ranks train on the CPU")
    elif wanted > found:
        yield Problem(
            severity="error",
            what=f"{plan.nodes} nodes with {plan.gpus_per_node} GPUs each need {wanted} GPUs; this machine has {found}",
            todo="ask for fewer nodes or GPUs",
        )


def _check_company(plan: RunPlan) -> Iterator[Problem]:
    others = sorted(processes.runs_alive() - {plan.id})
    if others:
        yield Problem(
            severity="warning",
            what=f"another run is on this machine ({', '.join(others)}): the two disturb each other's figures",
        )
