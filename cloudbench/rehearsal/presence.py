"""Whether a rehearsal is there, for other processes of the same user.

`endpoints.json` in its folder tells where its stand-ins answer, for as long as the lifeline of its nodes is held.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from cloudbench.rehearsal.machines import temporary_folders

_ENDPOINTS = "endpoints.json"
_FIRST_WORDS = re.compile(r"^\S+ node (\d+) of \d+, run ([\w-]+),", re.MULTILINE)
"""How the node program begins `node.log`."""
T = TypeVar("T", bound=msgspec.Struct)


def tell_endpoints(folder: Path, endpoints: msgspec.Struct) -> None:
    """Write where the stand-ins of the rehearsal in that folder answer; nobody else can read it."""
    descriptor = os.open(folder / _ENDPOINTS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(endpoints))


def find_endpoints(folder: Path, kind: type[T]) -> T | None:
    """Where the rehearsal in that folder answers; None where there is none of that kind, or its process is gone."""
    if not _is_held(folder / "nodes" / "lifeline"):
        return None
    try:
        return msgspec.json.decode((folder / _ENDPOINTS).read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None


def remove_dead(root: Path, keep: Callable[[str, int, Path], None]) -> None:
    """Remove the folders of rehearsals below `root` whose process was killed.

    Args:
        keep: told of each node whose files nobody brought home: its run, its number and the folder that it wrote.
    """
    for folder in root.glob("*"):
        if (folder / _ENDPOINTS).exists() and not _is_held(folder / "nodes" / "lifeline"):
            temporary = temporary_folders(folder / "nodes")
            logs = itertools.chain(folder.glob("nodes/**/node.log"), *(path.glob("**/node.log") for path in temporary))
            for log in sorted(logs, key=lambda path: path.stat().st_mtime):
                if found := _FIRST_WORDS.search(log.read_text("utf-8", "replace")):
                    keep(found[2], int(found[1]), log.parent)
            for path in (*temporary, folder):
                shutil.rmtree(path, ignore_errors=True)


def _is_held(lifeline: Path) -> bool:
    try:
        descriptor = os.open(lifeline, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
