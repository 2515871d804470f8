"""The nodes of the stand-ins: each has an address and a folder of its own and really runs what it is told to run.

What a node runs is known by the variables that it started with, and its containers by their labels: the end of a node
also ends what left its session. Nothing outlives a rehearsal that was killed: node programs watch the lifeline.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from cloudbench.errors import InfrastructureError, UsageError
from cloudbench.processes import kill_all, living
from cloudbench.rehearsal.addresses import Addresses
from cloudbench.rehearsal.containers import remove_containers
from cloudbench.rehearsal.docker_command import install
from cloudbench.rehearsal.environment import EXECUTION, LIFELINE, MACHINE, kept
from cloudbench.temporary import find_temporary, make_temporary, remove_temporary

_TEMPORARY = "tmp"
_DEATH_PATIENCE_S = 30.0
_PAUSE_S = 0.02


class Execution:
    """One command that runs on a machine, with everything that it starts."""

    def __init__(self, popen: subprocess.Popen[bytes], marks: Mapping[str, str], *, containers: bool) -> None:
        self._popen = popen
        self._marks = dict(marks)
        self._containers = containers

    def poll(self) -> int | None:
        """The exit code as a shell gives it, 128 + n after signal n; None while the command runs."""
        code = self._popen.poll()
        return code if code is None or code >= 0 else 128 - code

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the command's own end; the exit code, or None where it still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout_s)
        return self.poll()

    def terminate(self) -> None:
        """SIGTERM to its session; what becomes of it is for the caller to wait for."""
        for process in self._in_session():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)

    def end(self, grace_s: float, now: Callable[[], float] = time.monotonic) -> None:
        """SIGTERM to its session; SIGKILL to everything it started once the session is empty or `grace_s` is over.

        Args:
            now: the clock by which it is over.

        Raises:
            InfrastructureError: something does not die.
        """
        self.terminate()
        deadline = now() + grace_s
        while now() < deadline and self._in_session():
            time.sleep(_PAUSE_S)
        _kill(lambda: _find(self._marks, self.sessions))
        self._popen.wait()
        if self._containers:
            remove_containers(self._marks)

    @property
    def sessions(self) -> set[int]:
        """The number of its session; none once that could be another's."""
        return {self._popen.pid} if self._popen.returncode is None else set()

    def _in_session(self) -> list[psutil.Process]:
        found = _find(self._marks, self.sessions)
        return [process for process in found if _session_of(process) == self._popen.pid]


class Machine:
    """One node. Its `folder` is its disk, its `address` is bound by nobody else."""

    def __init__(
        self,
        name: str,
        *,
        address: str,
        folder: Path,
        lifeline: Path,
        containers: bool,
        gone: Callable[[Machine], None],
    ) -> None:
        self.name = name
        self.address = address
        self.folder = folder
        self._mark = secrets.token_hex(8)
        self._lifeline = lifeline
        self._containers = containers
        self._gone = gone
        self._lock = threading.Lock()
        self._executions: list[Execution] = []
        self._count = 0
        self._ended = False
        self._bin = folder / "bin"
        self._bin.mkdir(parents=True)
        self._temporary = make_temporary(folder / _TEMPORARY)
        install(self._bin, containers=containers, environment=os.environ)

    def run(self, command: str, *, cwd: Path, environment: Mapping[str, str], stdout: Path, stderr: Path) -> Execution:
        """Start `/bin/sh -c command` in a session of its own; what it prints is appended to the files.

        Raises:
            InfrastructureError: the machine has ended, or the command cannot be started in `cwd`.
        """
        with self._lock:
            if self._ended:
                raise InfrastructureError(f"machine {self.name} has ended")
            self._executions = [execution for execution in self._executions if execution.poll() is None]
            self._count += 1
            marks = {MACHINE: self._mark, EXECUTION: str(self._count)}
            environment = {**kept(os.environ), "TMPDIR": str(self._temporary), **environment}
            # Our docker first; then the interpreter that has what the client has, as `python3`.
            path = (self._bin, Path(sys.executable).parent, environment.get("PATH", os.defpath))
            place = {"CLOUDBENCH_NODE_ADDRESS": self.address, LIFELINE: str(self._lifeline)}
            try:
                with stdout.open("ab") as out, stderr.open("ab") as err:
                    popen = subprocess.Popen(
                        ["/bin/sh", "-c", command],
                        cwd=cwd,
                        env={**environment, **place, **marks, "PATH": os.pathsep.join(map(str, path))},
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=err,
                        start_new_session=True,
                    )
            except OSError as error:
                raise InfrastructureError(f"machine {self.name} cannot start a command", why=str(error)) from error
            self._executions.append(Execution(popen, marks, containers=self._containers))
            return self._executions[-1]

    def mount(self, source: Path, at: Path) -> None:
        """Show a folder below this machine's own, by a symbolic link; a relative `at` is relative to that."""
        at = self.folder / at
        if not at.is_relative_to(self.folder):
            raise ValueError(f"{at} is not below the machine's folder")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(source.absolute(), target_is_directory=True)

    def end(self) -> None:
        """SIGKILL to all it runs, background processes and containers included; returns when they are gone.

        Raises:
            InfrastructureError: something does not die.
        """
        with self._lock:
            self._ended = True
            executions = self._executions
        if self._count:
            sessions = {session for execution in executions for session in execution.sessions}
            _kill(lambda: _find({MACHINE: self._mark}, sessions))
            for execution in executions:
                execution.wait(_DEATH_PATIENCE_S)
            if self._containers:
                remove_containers({MACHINE: self._mark})
        remove_temporary(self.folder / _TEMPORARY)
        self._gone(self)


class Machines:
    """All nodes of the stand-ins of one rehearsal, each with a folder below `root`.

    Without `containers` the nodes' `docker` starts processes also where there is an engine.

    Raises:
        UsageError: this is not Linux, or another rehearsal uses the folder.
    """

    def __init__(self, root: Path, *, containers: bool = True) -> None:
        self._containers = containers
        self._addresses = Addresses()
        self._root = root.absolute()
        self._root.mkdir(parents=True, exist_ok=True)
        self._lifeline = self._root / "lifeline"
        self._held = os.open(self._lifeline, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._held)
            raise UsageError(f"{self._root}: another rehearsal runs in this folder", why=str(error)) from error
        self._lock = threading.Lock()
        self._machines: dict[str, Machine] = {}
        self._closed = False

    def start(self, name: str, *, address: str | None = None) -> Machine:
        """A new machine with an empty folder, at an address of its own where none is given.

        Raises:
            ValueError: not the name of a folder, or a machine of this name has not ended.
            UsageError: something else has that folder.
        """
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name) or name == "lifeline":
            raise ValueError(f"{name!r} cannot be the name of a machine")
        with self._lock:
            if self._closed or name in self._machines:
                raise ValueError(f"machine {name} runs already" if not self._closed else "the rehearsal has ended")
            folder = self._root / name
            if (folder / "bin" / "docker").exists():  # an earlier machine's, and nothing else of anybody
                shutil.rmtree(folder)
            elif folder.exists():
                raise UsageError(f"{folder}: is there already", todo="let the rehearsal use another folder")
            machine = Machine(
                name,
                address=address or self._addresses.take(),
                folder=folder,
                lifeline=self._lifeline,
                containers=self._containers,
                gone=self._forget,
            )
            self._machines[name] = machine
            return machine

    def close(self) -> None:
        """End every machine, and let go of the lifeline."""
        with self._lock:
            closed, self._closed = self._closed, True
            machines = list(self._machines.values())
        if closed:
            return
        with contextlib.ExitStack() as stack:
            stack.callback(self._addresses.close)
            stack.callback(os.close, self._held)
            for machine in machines:
                stack.callback(machine.end)

    def _forget(self, machine: Machine) -> None:
        with self._lock:
            if self._machines.get(machine.name) is machine:
                del self._machines[machine.name]
                self._addresses.give_back(machine.address)


def temporary_folders(root: Path) -> list[Path]:
    """Where the machines below `root` have their temporary files, also after the process that had the machines."""
    return [folder for link in root.glob(f"*/{_TEMPORARY}") if (folder := find_temporary(link)) is not None]


def _find(marks: Mapping[str, str], sessions: set[int]) -> list[psutil.Process]:
    """The living processes that started with these variables, or belong to one of the sessions."""
    return [
        process
        for process, environment in living()
        if _session_of(process) in sessions or marks.items() <= environment.items()
    ]


def _session_of(process: psutil.Process) -> int | None:
    with contextlib.suppress(OSError):
        return os.getsid(process.pid)
    return None


def _kill(find: Callable[[], list[psutil.Process]]) -> None:
    """SIGKILL to all that are found, and to what they start meanwhile; returns when none is left."""
    left = kill_all(find, patience_s=_DEATH_PATIENCE_S)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise InfrastructureError("processes of the rehearsal do not die", why=f"SIGKILL did not end {pids}")
