"""The service `process`: each node is a program of this machine, with an address of its own.

The processes of a run are known by the variables that they started with, so that every client finds them, however
it came to be, and a process id that was given away again does no harm.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cloudbench.errors import CloudbenchError
from cloudbench.plan import RunPlan
from cloudbench.providers.base import Problem, Step
from cloudbench.providers.local.machine import Machine
from cloudbench.providers.local.modules import look_for_modules, missing_modules
from cloudbench.providers.local.workspace import Workspace, node_command, node_environment
from cloudbench.run import Handle

if TYPE_CHECKING:
    import psutil

    from cloudbench.node.network import ReservedPorts

_A_FREE_PORT = "(a free one)"
_DEATH_PATIENCE_S = 5.0


class ProcessService:
    """Nodes as processes. `python` is the interpreter of the node programs, and the `python` of their ranks."""

    name = "process"

    def __init__(self, *, python: str, machine: Machine, attached: bool) -> None:
        self._python = python
        self._machine = machine
        self._attached = attached
        self._children: dict[int, tuple[Workspace, int]] = {}
        self._ports: dict[Workspace, ReservedPorts] = {}

    def steps(self, plan: RunPlan, workspace: Workspace) -> tuple[Step, ...]:
        """The one step that starts the node programs."""
        folder = str(workspace.folder)
        nodes = [
            {
                "command": node_command(self._python, folder, node),
                "environment": node_environment(
                    plan,
                    workspace.attempt,
                    node,
                    folder=folder,
                    address=self._machine.address_of(node),
                    main_address=self._machine.address_of(0),
                    main_port=_A_FREE_PORT,
                    gpus=self._machine.gpus_of(node, plan.gpus_per_node),
                    attached=self._attached,
                ),
            }
            for node in range(plan.nodes)
        ]
        handle = workspace.handle(self.name, "processes")
        return (Step(action="start the node programs", handle=handle, body={"nodes": nodes}),)

    def check(self, plan: RunPlan) -> list[Problem]:
        """Whether the Python of the ranks has what they import."""
        problems = []
        if plan.setup.image:
            problems.append(
                Problem(
                    severity="error",
                    what=f"image {plan.setup.image}: the local service process runs in no image",
                    todo="--service docker",
                    exit_code=2,
                )
            )
        missing = look_for_modules(self._python, plan.requires)
        return problems + missing_modules(missing, where=self._python)

    def make(self, step: Step) -> None:
        """There is nothing to make before the programs start."""

    def start(self, step: Step, workspace: Workspace, nodes: Collection[int]) -> None:
        """Start the programs of these nodes, each in its own session."""
        temporary = _temporary_folder(workspace)
        port = self._barrier_port(workspace)
        for node in nodes:
            order = step.body["nodes"][node]
            environment = {
                **{name: value for name, value in os.environ.items() if not name.startswith("CLOUDBENCH_")},
                **order["environment"],
                "CLOUDBENCH_MAIN_PORT": port,
                "TMPDIR": temporary,
                # The ranks' `python` is the interpreter that was checked.
                "PATH": f"{Path(self._python).parent}:{os.environ.get('PATH', os.defpath)}",
            }
            command = order["command"]
            # What Python ignores in the client is not ignored in the ranks.
            pid = os.posix_spawn(
                command[0], command, environment, setsid=True, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
            )
            self._children[pid] = workspace, node

    def alive(self, workspaces: Sequence[Workspace]) -> dict[Workspace, set[int]]:
        """The nodes of each attempt whose program lives."""
        self._reap()
        alive = nodes_alive(workspaces)
        for workspace, node in self._children.values():
            if workspace in alive:
                alive[workspace].add(node)
        return alive

    def signal(self, workspace: Workspace, number: signal.Signals) -> None:
        """SIGTERM to the node programs, SIGKILL to everything of the attempt."""
        signal_nodes(workspace, number)

    def release(self, handle: Handle, workspace: Workspace) -> bool:
        """Kill what is left of the attempt; True once nothing is."""
        gone = kill(workspace)
        self._ports.pop(workspace, None)
        self._reap()
        return gone

    def find(self, owner: str, workspaces: Sequence[Workspace]) -> Iterator[Handle]:
        """The jobs that live."""
        return (workspace.handle(self.name, "processes") for workspace in workspaces if not is_gone(workspace))

    def _barrier_port(self, workspace: Workspace) -> str:
        """Where the nodes of an attempt meet: chosen once. No other run of this machine chooses it meanwhile."""
        from cloudbench.node.network import ReservedPorts

        path = workspace.folder / "barrier-port"
        if not path.exists():
            ports = self._ports[workspace] = ReservedPorts(1)
            ports.release()
            path.write_text(str(ports.numbers[0]))
        return path.read_text()

    def _reap(self) -> None:
        """Let go of the programs that this client started and that have ended."""
        for pid in list(self._children):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    continue
            del self._children[pid]


def nodes_alive(workspaces: Sequence[Workspace]) -> dict[Workspace, set[int]]:
    """The nodes of each attempt whose program lives on this machine.

    A held lock tells. Without one the processes are asked, which also finds a node that is just starting.
    """
    alive: dict[Workspace, set[int]] = {}
    marks: list[tuple[str, dict[str, str]]] | None = None
    for workspace in workspaces:
        found = alive[workspace] = set()
        for node in range(workspace.record.nodes if workspace.record else 0):
            status = workspace.status(node)
            if status is not None and workspace.locked(node):
                found.add(node)
            elif status is None or status.outcome is None:
                marks = list(_marks()) if marks is None else marks
                wanted = {"CLOUDBENCH_ATTEMPT": str(workspace.attempt), "CLOUDBENCH_NODE_INDEX": str(node)}
                if any(run == workspace.run and wanted.items() <= marked.items() for run, marked in marks):
                    found.add(node)
    return alive


def signal_nodes(workspace: Workspace, number: signal.Signals) -> None:
    """SIGTERM to the node programs, which end their ranks; SIGKILL to everything of the attempt."""
    if number == signal.SIGKILL:
        kill(workspace)
        return
    for process, environment in _processes():
        # The node program gives every process that it starts a variable of its own.
        if _belongs(environment, workspace) and "CLOUDBENCH_PROCESS_COOKIE" not in environment:
            _send(process, number)


def kill(workspace: Workspace) -> bool:
    """Kill everything of the attempt, and what it starts meanwhile; False where something does not die."""
    from cloudbench.processes import kill_all

    def find() -> Iterator[psutil.Process]:
        return (process for process, environment in _processes() if _belongs(environment, workspace))

    return not kill_all(find, patience_s=_DEATH_PATIENCE_S)


def is_gone(workspace: Workspace) -> bool:
    """Whether no process of the attempt lives on this machine."""
    return not any(_belongs(environment, workspace) for _, environment in _processes())


def runs_alive() -> set[str]:
    """The runs of anybody that have processes on this machine, as far as this user may look."""
    return {run for run, _ in _marks()}


def _belongs(environment: dict[str, str], workspace: Workspace) -> bool:
    mark = {"CLOUDBENCH_RUN_ID": workspace.run, "CLOUDBENCH_ATTEMPT": str(workspace.attempt)}
    return mark.items() <= environment.items()


def _marks() -> Iterator[tuple[str, dict[str, str]]]:
    """The run and the environment of every process that belongs to one."""
    for _, environment in _processes():
        yield environment["CLOUDBENCH_RUN_ID"], environment


def _processes() -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    """Every living process of any run that this user may look into."""
    from cloudbench.processes import living

    for process, environment in living():
        if "CLOUDBENCH_RUN_ID" in environment and process.pid != os.getpid():
            yield process, environment


def _send(process: psutil.Process, number: signal.Signals) -> None:
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _temporary_folder(workspace: Workspace) -> str:
    """Where the programs of an attempt have their temporary files: what they leave there goes with the attempt."""
    try:
        return str(workspace.temporary())
    except OSError as error:
        raise CloudbenchError(
            "no folder for temporary files can be made",
            why=str(error),
            todo="make room there, or set TMPDIR to another folder",
        ) from error
