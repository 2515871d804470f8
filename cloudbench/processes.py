"""The processes of this machine: found by the variables that they started with, and ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

import psutil

_LOOKS, _LOOK_S = 10, 0.02
_YOUNG_S = 60.0
_PAUSE_S = 0.02
_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def living() -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    """Every living process with its environment, which is empty where this user may not look into it.

    A process has none for the moment in which it becomes another program: a young one that shows none comes last, after
    more looks at it. One that is just ending may be missing, although it still holds what it had: see `kill_all`.
    """
    psutil.process_iter.cache_clear()  # or a process whose number was another's before is left out once
    unclear = list(psutil.process_iter())
    for look in range(_LOOKS):
        processes, unclear = unclear, []
        for process in processes:
            with contextlib.suppress(psutil.Error, OSError):
                if not _lives(process):
                    continue
                environment = _environment(process)
                if environment == {} and look < _LOOKS - 1 and time.time() - process.create_time() < _YOUNG_S:
                    unclear.append(process)
                else:
                    yield process, environment or {}
        if not unclear:
            return
        time.sleep(_LOOK_S)


def kill_all(find: Callable[[], Iterable[psutil.Process]], *, patience_s: float) -> list[psutil.Process]:
    """SIGKILL to all that are found, and to what they start meanwhile. Returns those that did not end in time.

    A killed process shows no variables from the moment in which it gives back its memory, which takes a large one a
    while; only then it closes its files and devices. What was found once is waited for to its end.
    """
    deadline = time.monotonic() + patience_s
    found: set[psutil.Process] = set()
    empty = 0
    while empty < 2:  # what is found may have started more since it was looked for
        found = {process for process in {*found, *find()} if process.is_running() and _lives(process)}
        empty = 0 if found else empty + 1
        if found and time.monotonic() > deadline:
            break
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(_PAUSE_S)
    return sorted(found, key=lambda process: process.pid)


def _lives(process: psutil.Process) -> bool:
    """Whether any thread of it has not ended."""
    try:
        return process.status() not in _ENDED or process.num_threads() > 1
    except psutil.Error:
        return False


def _environment(process: psutil.Process) -> dict[str, str] | None:
    """What it started with; None where this user may not know."""
    try:
        return process.environ()
    except (psutil.AccessDenied, OSError):
        return None
