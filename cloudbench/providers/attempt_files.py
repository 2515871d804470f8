"""What nodes push into a cloud's storage, as the client reads it: the same on every cloud.

An attempt's files lie below its name, those of node K in `node-K/`. How a storage is asked is the cloud's own part.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from cloudbench.errors import UsageError
from cloudbench.plan import RunPlan, node_job
from cloudbench.providers.base import LogChunk, LogFile
from cloudbench.providers.verdict import NodeStatus

BUNDLE = "cloudbench-node.pyz"
LONGEST_CHUNK = 1 << 20
"""How many bytes `read` gives at most."""


class AttemptFiles(abc.ABC):
    """The files of all attempts in one storage. Each call reaches the service; nothing is kept."""

    @abc.abstractmethod
    def read(self, name: str, file: str, offset: int = 0) -> bytes:
        """At most 1 MiB of a file from an offset on; empty where there is no such file, or nothing more."""

    @abc.abstractmethod
    def _node_files(self, name: str) -> list[tuple[str, str, int]]:
        """Folder, name and size in bytes of every file that a node has pushed."""

    def status(self, name: str, node: int) -> NodeStatus | None:
        """What the node said last; None where it has said nothing yet."""
        try:
            return msgspec.json.decode(self.read(name, f"node-{node}/status.json"), type=NodeStatus)
        except msgspec.DecodeError:
            return None

    def logs(self, name: str) -> list[LogFile]:
        """The log files of all nodes so far."""
        return [
            LogFile(node=int(folder.removeprefix("node-")), name=file, size_bytes=size)
            for folder, file, size in self._node_files(name)
            if file.endswith(".log") and size
        ]

    def read_log(self, name: str, node: int, file: str, offset: int) -> LogChunk:
        """At most 1 MiB of a node's log file from an offset on."""
        if Path(file).name != file or not file.endswith(".log"):
            raise UsageError(f"{file!r} is not the name of a log file")
        data = self.read(name, f"node-{node}/{file}", offset)
        return LogChunk(data=data, next_offset=offset + len(data))

    def collect(self, name: str, into: Path) -> None:
        """Copy what the nodes pushed and is not there yet; a reader sees old files or new ones, never halves.

        A log only grows: one of the same size is the same. The other files are small, and compared.
        """
        for folder, file, size in self._node_files(name):
            target = into / folder / file
            if file.endswith(".log") and target.exists() and target.stat().st_size == size:
                continue
            write_changed(target, b"".join(self._whole(name, f"{folder}/{file}")))

    def _whole(self, name: str, file: str) -> Iterator[bytes]:
        """A file, as much of it as is there now."""
        offset = 0
        while data := self.read(name, file, offset):
            yield data
            offset += len(data)


def pushed_files(plan: RunPlan, attempt: int) -> list[tuple[str, ...]]:
    """The names of the files that each node can write: each needs an address of its own."""
    from cloudbench.node.job import read_job
    from cloudbench.node.push import file_names

    job = read_job(msgspec.json.encode(node_job(plan, attempt=attempt)).decode())
    return [file_names(node, plan.nodes, job) for node in range(plan.nodes)]


def push_orders(kind: str, nodes: list[Mapping[str, str]]) -> bytes:
    """`push.json`: where each node pushes which file."""
    return msgspec.json.encode({"version": 1, "kind": kind, "nodes": nodes})


def write_changed(path: Path, data: bytes) -> None:
    """Write a file whole, unless it is as it should be already."""
    if path.exists() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(data)
    beside.replace(path)
