"""The processes of this machine, and the variables that they started with."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import psutil

_LOOKS, _LOOK_S = 10, 0.02
_YOUNG_S = 60.0


def living() -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    """Every living process with its environment, which is empty where this user may not look into it.

    A process has none for the moment in which it becomes another program: a young one that shows none comes last, after
    more looks at it.
    """
    unclear = list(psutil.process_iter())
    for look in range(_LOOKS):
        processes, unclear = unclear, []
        for process in processes:
            with contextlib.suppress(psutil.Error, OSError):
                if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                    continue
                environment = _environment(process)
                if environment == {} and look < _LOOKS - 1 and time.time() - process.create_time() < _YOUNG_S:
                    unclear.append(process)
                else:
                    yield process, environment or {}
        if not unclear:
            return
        time.sleep(_LOOK_S)


def _environment(process: psutil.Process) -> dict[str, str] | None:
    """What it started with; None where this user may not know."""
    try:
        return process.environ()
    except (psutil.AccessDenied, OSError):
        return None
