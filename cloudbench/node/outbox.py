"""Files of the node's folder, written so that a reader at any moment sees a whole one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, BinaryIO

from cloudbench.node.job import NodeError


class Outbox:
    """The folder that receives everything a node has to say."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder.resolve()
        self._written: dict[str, bytes] = {}

    def lock(self) -> int:
        """Hold `node.lock` until this process and the children that share the descriptor are gone.

        A file system without locks goes without: the lock tells of death early, nothing else needs it.

        Raises:
            NodeError: another node program works in this folder.
        """
        descriptor = os.open(self.folder / "node.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NodeError(f"another node program works in {self.folder}") from error
        except OSError as error:
            self.log(f"no lock on this file system: {error}")
        return descriptor

    def path(self, name: str) -> Path:
        """Where the file called `name` lies."""
        return self.folder / name

    def open_log(self, name: str) -> BinaryIO:
        """A file that appends to `name`, to be given to a process as its output."""
        return (self.folder / name).open("ab", buffering=0)

    def log(self, text: str) -> None:
        """Append one dated line to `node.log`; a folder that cannot be written stops no training."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with contextlib.suppress(OSError), (self.folder / "node.log").open("a", encoding="utf-8") as file:
            file.write(f"{stamp} {text}\n")

    def write_json(self, name: str, value: Any) -> None:
        """Replace `name` by `value` in one step, where it differs from what was last written.

        A folder that cannot be written stops no training: the next call tries again.
        """
        data = (json.dumps(value, indent=1) + "\n").encode()
        if self._written.get(name) != data:
            with contextlib.suppress(OSError):
                write_whole(self.folder / name, data)
                self._written[name] = data


def write_whole(path: Path, data: bytes) -> None:
    """Replace the file at `path` in one step: a reader sees the old bytes or the new ones."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(data)
    beside.replace(path)
