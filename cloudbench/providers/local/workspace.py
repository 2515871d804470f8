"""The folder that the nodes of one attempt share with the client: orders, files that grow, and locks that tell of life.

cloudbench-node.pyz  job.json  secret        what the node programs are given
workspace.json                               whose it is, written first and read by every later client
lifeline                                     locked by an attached client for as long as it lives
ending.json                                  once the job was told to end
node-K/                                      what node K writes; brought home by `collect`
work-K/                                      where node K's processes run; not brought home
tmp                                          leads to the temporary files of nodes that are programs of this machine
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from cloudbench.errors import UsageError
from cloudbench.plan import RunPlan, node_job
from cloudbench.providers.base import LogChunk, LogFile
from cloudbench.providers.verdict import Ending, Node, NodeStatus
from cloudbench.run import Handle, Outcome
from cloudbench.temporary import make_temporary, remove_temporary

BUNDLE = "cloudbench-node.pyz"
_LONGEST_CHUNK = 1 << 20


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What every later client must know of an attempt: `workspace.json`."""

    owner: str
    service: str
    run: str
    attempt: int
    nodes: int
    grace_s: float


def attempt_name(run: str, attempt: int) -> str:
    """What everything of an attempt is called, or begins with."""
    return f"{run}-a{attempt}"


def attempt_handle(service: str, kind: str, run: str, attempt: int) -> Handle:
    """One of the things of an attempt, as the journal knows it."""
    return Handle(provider="local", service=service, kind=kind, id=attempt_name(run, attempt), run=run, attempt=attempt)


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of one attempt of a run, below `root`, whether it exists or not."""

    root: Path
    run: str
    attempt: int

    @property
    def name(self) -> str:
        """What everything of this attempt is called, or begins with."""
        return attempt_name(self.run, self.attempt)

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.root / self.name

    def handle(self, service: str, kind: str) -> Handle:
        """One of the things of this attempt, as the journal knows it."""
        return attempt_handle(service, kind, self.run, self.attempt)

    @classmethod
    def all(cls, root: Path) -> Iterator[Workspace]:
        """Every one there is, by name."""
        for path in sorted(root.glob("*/workspace.json")):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                record = msgspec.json.decode(path.read_bytes(), type=Record)
                yield cls(root=root, run=record.run, attempt=record.attempt)

    @property
    def record(self) -> Record | None:
        """Whose it is and what belongs to it; None where the folder does not exist."""
        try:
            return msgspec.json.decode((self.folder / "workspace.json").read_bytes(), type=Record)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def make(self, plan: RunPlan, *, service: str) -> None:
        """Make the folder and everything that is in it before a node starts; what is there already stays.

        Raises:
            UsageError: it belongs to another owner.
        """
        from cloudbench.node.bundle import bundle

        job = node_job(plan, attempt=self.attempt)
        record = Record(
            owner=plan.owner,
            service=service,
            run=self.run,
            attempt=self.attempt,
            nodes=plan.nodes,
            grace_s=job.grace_s,
        )
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write_once("workspace.json", msgspec.json.encode(record))
        if (found := self.record) != record:
            owner = found.owner if found else "nobody"
            raise UsageError(f"{self.folder}: belongs to another run", why=f"it was made for {owner}, not {plan.owner}")
        self._write_once("job.json", msgspec.json.encode(job))
        self._write_once("secret", secrets.token_hex(32).encode())
        self._write_once("lifeline", b"")
        self._write_once(BUNDLE, bundle())
        for node in range(plan.nodes):
            self.node_folder(node).mkdir(exist_ok=True)
            (self.folder / f"work-{node}").mkdir(exist_ok=True)

    def temporary(self) -> Path:
        """The folder for temporary files of nodes that are programs of this machine; made where there is none.

        Raises:
            OSError: it cannot be made.
        """
        return make_temporary(self._temporary)

    @property
    def _temporary(self) -> Path:
        return self.folder / "tmp"

    def node_folder(self, node: int) -> Path:
        """What a node writes for people to read."""
        return self.folder / f"node-{node}"

    def status(self, node: int) -> NodeStatus | None:
        """What the node said last; None where it has said nothing yet."""
        try:
            return msgspec.json.decode((self.node_folder(node) / "status.json").read_bytes(), type=NodeStatus)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def locked(self, node: int) -> bool:
        """Whether a program holds the node's lock. Only for a node that has a status: the test could disturb others.

        A node takes its lock before it writes a status; a test in that moment would make it give up.
        """
        import fcntl

        try:
            descriptor = os.open(self.node_folder(node) / "node.lock", os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def see(self, node: int, *, alive: bool) -> Node:
        """The node as it is; `alive` was found out just before, so that what a dead one wrote last is read."""
        from cloudbench.node.logs import last_lines

        status = self.status(node)
        seen = Node(index=node, alive=alive, status=status)
        if not seen.died:
            return seen
        folder = self.node_folder(node)
        logs = [*sorted(folder.glob("rank-*.log")), folder / "prepare.log", folder / "node.log"]
        lines = next(filter(None, (last_lines(log) for log in logs)), [])
        return msgspec.structs.replace(seen, last_lines=tuple(lines))

    @property
    def ending(self) -> Ending | None:
        """That the job was told to end; None where it was not."""
        try:
            return msgspec.json.decode((self.folder / "ending.json").read_bytes(), type=Ending)
        except FileNotFoundError:
            return None

    def begin_ending(self, outcome: Outcome, reason: str) -> bool:
        """Note that the job is being told to end. The first note stays; False where there was one."""
        return self._write_once(
            "ending.json", msgspec.json.encode(Ending(at=time.time(), outcome=outcome, reason=reason))
        )

    def logs(self) -> list[LogFile]:
        """The log files of all nodes so far."""
        found = []
        for path in sorted(self.folder.glob("node-*/*.log")):
            with contextlib.suppress(FileNotFoundError):
                node = int(path.parent.name.removeprefix("node-"))
                found.append(LogFile(node=node, name=path.name, size_bytes=path.stat().st_size))
        return found

    def read_log(self, node: int, name: str, offset: int) -> LogChunk:
        """At most 1 MiB of a log file from an offset on; nothing where there is no such file."""
        if Path(name).name != name or not name.endswith(".log"):
            raise UsageError(f"{name!r} is not the name of a log file")
        try:
            with (self.node_folder(node) / name).open("rb") as file:
                file.seek(offset)
                data = file.read(_LONGEST_CHUNK)
        except FileNotFoundError:
            data = b""
        return LogChunk(data=data, next_offset=offset + len(data))

    def collect(self, into: Path) -> None:
        """Copy what the nodes wrote and is not there yet; a reader sees old files or new ones, never halves."""
        for source in sorted(self.folder.glob("node-*/**/*")):
            name = source.name
            if source.is_symlink() or not source.is_file() or name == "node.lock" or name.startswith("."):
                continue
            target = into / source.relative_to(self.folder)
            with contextlib.suppress(FileNotFoundError):  # a file that its node removed meanwhile
                now = source.stat()
                there = target.stat() if target.exists() else None
                if there and (there.st_size, there.st_mtime_ns) == (now.st_size, now.st_mtime_ns):
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                beside = target.with_name(f".{name}.{os.getpid()}")
                shutil.copyfile(source, beside)
                # The time from before the copy: what is written during it makes the next collect copy again.
                os.utime(beside, ns=(now.st_atime_ns, now.st_mtime_ns))
                beside.replace(target)

    def remove(self) -> bool:
        """Remove the folder, and that of temporary files; True where nothing of them is left."""
        if not remove_temporary(self._temporary):
            return False
        shutil.rmtree(self.folder, ignore_errors=True)
        return not self.folder.exists()

    def _write_once(self, name: str, data: bytes) -> bool:
        """Write a file that only its owner can read, whole or not at all; False where there is one already."""
        beside = self.folder / f".{name}.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        try:
            os.link(beside, self.folder / name)
        except FileExistsError:
            return False
        finally:
            beside.unlink()
        return True


def node_command(python: str, folder: str, node: int) -> list[str]:
    """How a node program is started in a workspace that is `folder` where it runs.

    The shell sets the working folder and keeps what Python itself may have to say in the node's own log.
    """
    script = f'cd "$0/work-{node}" && exec "$@" </dev/null >>"$0/node-{node}/node.log" 2>&1'
    program = [python, f"{folder}/{BUNDLE}", "run", "--job", f"{folder}/job.json", "--out", f"{folder}/node-{node}"]
    return ["/bin/sh", "-c", script, folder, *program]


def node_environment(
    plan: RunPlan,
    attempt: int,
    node: int,
    *,
    folder: str,
    address: str,
    main_address: str,
    main_port: str,
    gpus: tuple[str, ...] | None,
    attached: bool,
) -> dict[str, str]:
    """The variables that tell a node program its place. The run's id also marks its processes as the run's.

    Args:
        folder: the workspace, as the node sees it.
        gpus: the node's share; None where it sees no other ones.
        attached: the node ends when no client holds the lifeline.
    """
    place = {
        "CLOUDBENCH_RUN_ID": plan.id,
        "CLOUDBENCH_ATTEMPT": str(attempt),
        "CLOUDBENCH_NODE_INDEX": str(node),
        "CLOUDBENCH_NODE_COUNT": str(plan.nodes),
        "CLOUDBENCH_NODE_ADDRESS": address,
        "CLOUDBENCH_MAIN_ADDRESS": main_address,
        "CLOUDBENCH_MAIN_PORT": main_port,
        "CLOUDBENCH_SECRET_FILE": f"{folder}/secret",
    }
    if gpus is not None:
        place["CLOUDBENCH_GPUS"] = ",".join(gpus)
    if attached:
        place["CLOUDBENCH_LIFELINE"] = f"{folder}/lifeline"
    return place
