"""`cloudbench logs`: what the ranks print, while they print it or afterwards."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from cloudbench.cli import options

if TYPE_CHECKING:
    from cloudbench.cli.session import Session
    from cloudbench.providers.base import LogChunk, LogFile
    from cloudbench.run import Run

_FOLLOW_INTERVAL_S = 0.3
_READS_PER_POLL = 5
"""How often logs are read, where a provider is to be polled rarely, while it is polled once."""


@click.command(
    epilog="""\b
Examples:
  cloudbench logs tf-cnn-benchmarks-local-2x2-1f0c9a --follow
  cloudbench logs 1f0c9a --node 1 --rank 3"""
)
@click.argument("run", metavar="RUN", shell_complete=options.complete_run)
@click.option("--node", type=click.IntRange(min=0), help="Only this node.")
@click.option("--rank", type=click.IntRange(min=0), help="Only this rank.")
@click.option("--attempt", type=click.IntRange(min=1), help="This attempt of a run that was preempted, not the newest.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job ends.")
def logs(run: str, node: int | None, rank: int | None, attempt: int | None, follow: bool) -> int:
    """Print what the ranks of a run print; with several of them each line says whose it is.

    Where the preparation failed and no rank was started, it is what the preparation printed.
    """
    from cloudbench.cli.session import Session

    session = Session(detach=True)
    found = session.store.load(session.store.find(run))
    attempt = found.attempt if attempt is None else attempt
    _refuse_impossible(found, node, rank, attempt)
    reader = _Reader(
        attempt,
        lambda log: (node is None or log.node == node) and _is_rank(log, rank),
        prefixed=rank is None and found.plan.ranks > 1,
    )
    asked_every_s = session.provider_for(found.plan).poll_interval_s
    ask_at = time.monotonic()
    while True:
        found = session.store.load(found.id)
        ended = found.finished or found.attempt > attempt
        if follow and not ended and time.monotonic() >= ask_at:
            ended = _ended(session, found)
            ask_at = time.monotonic() + asked_every_s
        reader.print_new(session, found)
        if ended or not follow:
            reader.finish()
            break
        time.sleep(max(_FOLLOW_INTERVAL_S, asked_every_s / _READS_PER_POLL))
    if not reader.seen and rank is None and (ended or _ended(session, found)):
        reader = _Reader(
            attempt, lambda log: log.name == "prepare.log" and node in (None, log.node), prefixed=found.plan.nodes > 1
        )
        reader.print_new(session, found)
        reader.finish()
    if not reader.seen:
        click.echo(f"{found.id}: no such log yet ({found.phase.value})", err=True)
    if follow and (found.begins_anew or found.attempt > attempt):
        click.echo(f"{found.id}: attempt {attempt} was preempted, and another one follows", err=True)
    return 0


def _refuse_impossible(run: Run, node: int | None, rank: int | None, attempt: int) -> None:
    """Refuse a node, a rank or an attempt that the run does not have, and a rank on another node than its own."""
    from cloudbench.errors import UsageError

    plan = run.plan
    nodes = 1 if plan.launcher == "single" else plan.nodes
    has = f"the run has {_numbered('rank', plan.ranks)} on {_numbered('node', nodes)}"
    if (node is not None and node >= nodes) or (rank is not None and rank >= plan.ranks):
        raise UsageError(has)
    if node is not None and rank is not None and node != (own := rank // (plan.ranks // nodes)):
        raise UsageError(has, why=f"rank {rank} is on node {own}", todo=f"--rank {rank} alone")
    if attempt > run.attempt:
        raise UsageError(f"the run is at attempt {run.attempt}", todo=f"--attempt {run.attempt}, or leave it out")


def _numbered(what: str, count: int) -> str:
    return f"{what} 0" if count == 1 else f"{what}s 0 to {count - 1}"


class _Reader:
    """Prints each log of an attempt from where it stopped, whole lines only, and whose they are where `prefixed`."""

    def __init__(self, attempt: int, wanted: Callable[[LogFile], bool], *, prefixed: bool) -> None:
        self._attempt = attempt
        self._wanted = wanted
        self._prefixed = prefixed
        self._offsets: dict[tuple[int, str], int] = {}
        self._rests: dict[tuple[int, str], bytes] = {}

    @property
    def seen(self) -> bool:
        return bool(self._offsets)

    def print_new(self, session: Session, run: Run) -> None:
        files, read = _source(session, run, self._attempt)
        for log in filter(self._wanted, files):
            key = (log.node, log.name)
            self._offsets.setdefault(key, 0)
            while (chunk := read(log.node, log.name, self._offsets[key])).data:
                self._offsets[key] = chunk.next_offset
                *lines, rest = (self._rests.get(key, b"") + chunk.data).split(b"\n")
                self._rests[key] = rest
                self._print(key, lines)

    def finish(self) -> None:
        """Print the last lines that have no end."""
        for key, rest in self._rests.items():
            if rest:
                self._print(key, [rest])

    def _print(self, key: tuple[int, str], lines: Sequence[bytes]) -> None:
        prefix = f"node-{key[0]}/{key[1].removesuffix('.log')} | " if self._prefixed else ""
        for line in lines:
            click.echo(prefix + line.decode("utf-8", "replace"))


def _source(session: Session, run: Run, attempt: int) -> tuple[Sequence[LogFile], Callable[[int, str, int], LogChunk]]:
    """The logs of an attempt and how to read them: from the provider while it has them, else from the artifacts."""
    from cloudbench.providers.base import LogChunk, LogFile

    provider = session.provider_for(run.plan)
    job = provider.render(run.plan, attempt).job
    if job in run.handles:
        return provider.logs(job), lambda node, name, offset: provider.read_log(job, node, name, offset)
    folder = session.store.folder(run.id) / f"attempt-{attempt}"

    def read(node: int, name: str, offset: int) -> LogChunk:
        with (folder / f"node-{node}" / name).open("rb") as file:
            file.seek(offset)
            data = file.read(1 << 20)
        return LogChunk(data=data, next_offset=offset + len(data))

    files = [
        LogFile(node=int(path.parent.name.removeprefix("node-")), name=path.name, size_bytes=path.stat().st_size)
        for path in sorted(folder.glob("node-*/*.log"))
    ]
    return files, read


def _is_rank(log: LogFile, rank: int | None) -> bool:
    match = re.fullmatch(r"rank-(\d+)\.log", log.name)
    return match is not None and (rank is None or int(match[1]) == rank)


def _ended(session: Session, run: Run) -> bool:
    from cloudbench.run import Phase

    if run.phase is Phase.RUNNING:
        return session.engine.poll([run])[run.id].ended
    return run.status is not None
