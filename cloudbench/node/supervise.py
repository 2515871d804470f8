"""Starts processes, sees them end, and leaves none behind.

Each process leads its own session and process group, which is what is signalled. When the node program dies without
a word, the kernel kills its children (Linux), and a guardian process, which sees the end of a pipe, kills their groups
and whatever carries their cookie in its environment (Linux), also what left the group.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COOKIE = "CLOUDBENCH_PROCESS_COOKIE"
_PR_SET_PDEATHSIG = 1
_SWEEPS, _SWEEP_S = 500, 0.02
_LOOKS = 25  # at a process without an environment, before it is believed to have none
_ENDS, _KERNEL_THREAD = 0x00000004, 0x00200000  # of the flags that the kernel tells


class Exit(NamedTuple):
    """How a process ended: with an exit code, or by a signal."""

    exit_code: int | None
    signal: int | None

    @property
    def shell_code(self) -> int:
        """One number, as a shell tells it: 128 + n for signal n."""
        return self.exit_code if self.exit_code is not None else 128 + (self.signal or 0)

    def __str__(self) -> str:
        number = self.shell_code
        if number == 0:
            return "exited with code 0"
        if number <= 128 or number - 128 not in {item.value for item in signal.Signals}:
            return f"exited with code {number}"
        name = signal.Signals(number - 128).name
        if self.signal is not None:
            return f"was killed by signal {self.signal} ({name})"
        return f"exited with code {number}, which is how a shell reports signal {number - 128} ({name})"


class Child:
    """A process that was started, and how it ended."""

    def __init__(self, kind: str, name: str, popen: subprocess.Popen[bytes], rank: int | None) -> None:
        self.kind = kind
        self.name = name
        self.rank = rank
        self.popen = popen
        self.exit: Exit | None = None

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self.popen.pid

    def signal_group(self, number: int) -> None:
        """Signal every process of the group; nothing happens where there is none left."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class Children:
    """The processes of this node. To be used from one thread: the kernel ties a child's life to its thread.

    Args:
        grace_s: time between SIGTERM and SIGKILL.
        scratch: a folder that is removed in the end, also where the node program is killed.
    """

    def __init__(self, grace_s: float, scratch: Path) -> None:
        self._grace_s = grace_s
        self._running: list[Child] = []
        self._kill_at: float | None = None
        self.kills = False  # what was to stop and did not
        self._stopped_kinds: tuple[str, ...] = ()
        self._cookie = secrets.token_hex(16)
        self._guardian, self._guardian_end = _start_guardian(self._cookie, scratch)

    def start(
        self,
        kind: str,
        name: str,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        output: int,
        rank: int | None = None,
    ) -> Child:
        """Start `command` with `output` as its standard output and error. The environment is all it gets.

        Raises:
            OSError: the program is not there.
        """
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**environment, COOKIE: self._cookie},
            start_new_session=True,
            preexec_fn=_die_with_parent(),
        )
        child = Child(kind, name, popen, rank)
        self._tell_guardian("+", child)
        self._running.append(child)
        return child

    def running(self, *kinds: str) -> list[Child]:
        """The processes that were not seen to end; of these kinds, where any are named."""
        return [child for child in self._running if not kinds or child.kind in kinds]

    def reap(self) -> list[tuple[Child, Exit]]:
        """The processes that ended since the last call, and how. What they left in their groups is killed."""
        ended = []
        for child in self._running:
            code = child.popen.poll()
            if code is not None:
                child.exit = Exit(code, None) if code >= 0 else Exit(None, -code)
                child.signal_group(signal.SIGKILL)
                self._tell_guardian("-", child)
                ended.append((child, child.exit))
        self._running = [child for child in self._running if child.exit is None]
        return ended

    def stop(self, now: float, *kinds: str) -> None:
        """Send SIGTERM to the groups of these kinds, or of all; `tick` sends SIGKILL when the grace is over."""
        if self._kill_at is None:
            self._kill_at = now + self._grace_s
            self._stopped_kinds = kinds
            for child in self.running(*kinds):
                child.signal_group(signal.SIGTERM)

    def tick(self, now: float) -> None:
        """Send SIGKILL to what was to stop and is still there after its grace."""
        if self._kill_at is not None and now >= self._kill_at:
            self.kills = True
            for child in self.running(*self._stopped_kinds):
                child.signal_group(signal.SIGKILL)

    def close(self) -> None:
        """Kill everything that was ever started and still runs; return when it is dead."""
        for child in self._running:
            child.signal_group(signal.SIGKILL)
            child.popen.wait()
        os.close(self._guardian_end)
        os.waitpid(self._guardian, 0)

    def _tell_guardian(self, sign: str, child: Child) -> None:
        with contextlib.suppress(BrokenPipeError):  # somebody killed it; the run goes on
            os.write(self._guardian_end, f"{sign}{child.pid}\n".encode())


def _die_with_parent() -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def before_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the kernel knew
            os.kill(os.getpid(), signal.SIGKILL)

    return before_exec


def _start_guardian(cookie: str, scratch: Path) -> tuple[int, int]:
    """Fork the process that outlives this one to kill what carries `cookie`; its pid, and the end that it waits for.

    It inherits the descriptor of `node.lock`: the folder reads as alive until everything is dead.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(read_end)
        return pid, write_end
    try:
        os.setsid()
        os.close(write_end)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        groups: set[int] = set()
        with open(read_end) as lines:  # noqa: PTH123 - a descriptor
            for line in lines:
                (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
        for group in groups:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        kill_all_with(f"{COOKIE}={cookie}")
        shutil.rmtree(scratch, ignore_errors=True)
    finally:
        os._exit(0)


def kill_all_with(entry: str) -> None:
    """Send SIGKILL to every process that has the environment entry `NAME=value`, until each has ended.

    Without a /proc file system none are found. A process has no environment for the moment in which it becomes another
    program, nor from the moment in which it gives back its memory, which takes a large one a while; only then it closes
    its files and devices. So one that began after this process and shows none is looked at again for a while, and what
    is ending is waited for.
    """
    wanted = entry.encode()
    since = _Process(Path("/proc/self")).started if Path("/proc/self/stat").exists() else 0
    killed: set[tuple[str, int]] = set()
    looks: Counter[str] = Counter()
    for _ in range(_SWEEPS):  # bounded: what hangs in the kernel cannot be killed
        left = 0
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended meanwhile, or belongs to another user
                process = _Process(folder)
                if not process.lives or process.started < since:
                    continue
                identity = folder.name, process.started
                environment = process.environment()
                if identity in killed or wanted in environment.split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)
                    killed.add(identity)
                    left += 1
                elif process.ends:
                    left += 1
                elif not environment and looks[folder.name] < _LOOKS:
                    looks[folder.name] += 1
                    left += 1
        if not left:
            return
        time.sleep(_SWEEP_S)


class _Process:
    """What the kernel says of a process; an OSError where it is gone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # After the name, which may hold anything: state is field 3 of the whole, flags 9, threads 20, the start 22.
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        state, flags, threads = fields[0], int(fields[6]), int(fields[17])
        first_thread_ended = state in (b"Z", b"X")
        self.lives = not flags & _KERNEL_THREAD and (not first_thread_ended or threads > 1)
        self.ends = bool(flags & _ENDS) and not first_thread_ended
        self.started = int(fields[19])

    def environment(self) -> bytes:
        """What it started with; nothing where it has none just now."""
        with contextlib.suppress(ProcessLookupError):  # so Linux 6 says of one without memory
            return (self._folder / "environ").read_bytes()
        return b""
