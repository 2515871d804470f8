"""What this machine remembers: a SQLite journal of every run, and one folder of artifacts a run.

An event is on disk before the effect that it announces: `append` returns after the write was synced.
"""

from __future__ import annotations

import contextlib
import getpass
import re
import secrets
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import filelock
import msgspec

from cloudbench.errors import CloudbenchError, UsageError, did_you_mean
from cloudbench.plan import RunPlan
from cloudbench.run import Event, Run, replay

_PATIENCE_S = 30.0
_MIGRATIONS = (
    """
    CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE runs (
        id TEXT PRIMARY KEY, experiment TEXT NOT NULL, submission INTEGER NOT NULL, planned_at REAL NOT NULL,
        plan BLOB NOT NULL
    ) STRICT;
    CREATE INDEX runs_of_experiment ON runs (experiment, submission);
    CREATE TABLE events (
        run TEXT NOT NULL REFERENCES runs (id), number INTEGER NOT NULL, at REAL NOT NULL, event BLOB NOT NULL,
        PRIMARY KEY (run, number)
    ) STRICT;
    """,
)
"""Schema n is made from schema n - 1 by the n-th of these; one that was released is never changed."""


class _Grouped(msgspec.Struct):
    """As much of a plan as a name needs."""

    group: str


class Store:
    """The journal and the artifacts below one folder. Several processes may use it at once.

    Raises:
        CloudbenchError: the folder cannot be written, or its journal was made by a newer cloudbench.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._journal = home / "journal.sqlite3"
        with contextlib.ExitStack() as opened, self._translated("opened"):
            (home / "runs").mkdir(parents=True, exist_ok=True)
            # Of two that change a new journal's mode at once SQLite lets one fail without waiting.
            with filelock.FileLock(home / "open.lock", timeout=_PATIENCE_S):
                self._db = sqlite3.connect(self._journal, timeout=_PATIENCE_S, isolation_level=None)
                opened.callback(self._db.close)
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.execute("PRAGMA foreign_keys = ON")
                self._migrate()
            opened.pop_all()

    def close(self) -> None:
        """Close the journal; the store is of no use afterwards."""
        self._db.close()

    @property
    def owner(self) -> str:
        """Who owns what this store starts: made once, then kept. It marks everything that we make anywhere."""
        try:
            login = getpass.getuser()
        except (KeyError, OSError):  # a container whose user has no name
            login = ""
        user = re.sub(r"[^a-z0-9]+", "-", login.lower()).strip("-") or "user"
        made = f"{user[:16]}-{secrets.token_hex(4)}"
        with self._translated("written"):
            self._db.execute("INSERT OR IGNORE INTO settings VALUES ('owner', ?)", (made,))
        return str(self._db.execute("SELECT value FROM settings WHERE key = 'owner'").fetchone()[0])

    def next_submission(self, experiment: str) -> int:
        """How many times the experiment was submitted, plus one."""
        row = self._db.execute("SELECT max(submission) FROM runs WHERE experiment = ?", (experiment,)).fetchone()
        return int(row[0] or 0) + 1

    def add(self, plans: Sequence[RunPlan], *, at: float) -> None:
        """Remember new runs, all of them or none.

        Raises:
            UsageError: another process submitted the same experiment in the same moment.
        """
        rows = [(plan.id, plan.experiment, plan.submission, at, msgspec.json.encode(plan)) for plan in plans]
        with self._translated("written"):
            try:
                with self._transaction():
                    self._db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", rows)
            except sqlite3.IntegrityError as error:
                raise UsageError(
                    "the same experiment was submitted at the same moment", todo="submit it again"
                ) from error

    def append(self, run_id: str, event: Event, *, at: float) -> None:
        """Write an event of a run; it is on disk when this returns.

        Raises:
            CloudbenchError: the disk is full or the journal was locked for long; the event is not there then.
        """
        with self._translated("written"):
            self._db.execute(
                "INSERT INTO events SELECT ?, coalesce(max(number), 0) + 1, ?, ? FROM events WHERE run = ?",
                (run_id, at, msgspec.json.encode(event), run_id),
            )

    def load(self, run_id: str) -> Run:
        """The run as its journal tells it.

        Raises:
            UsageError: no such run.
        """
        row = self._db.execute("SELECT plan FROM runs WHERE id = ?", (run_id,)).fetchone()
        if row is None:
            raise UsageError(f"no run {run_id!r}", todo="cloudbench status")
        events = self._db.execute("SELECT at, event FROM events WHERE run = ? ORDER BY number", (run_id,))
        return replay(
            msgspec.json.decode(row[0], type=RunPlan),
            ((at, msgspec.json.decode(event, type=Event)) for at, event in events),
        )

    def run_ids(self, experiment: str | None = None, *, submission: int | None = None) -> list[str]:
        """Ids of all runs, or of an experiment's, the oldest first."""
        rows = self._db.execute(
            "SELECT id FROM runs WHERE (?1 IS NULL OR experiment = ?1) AND (?2 IS NULL OR submission = ?2) "
            "ORDER BY planned_at, rowid",
            (experiment, submission),
        )
        return [row[0] for row in rows]

    def find(self, name: str) -> str:
        """The id of the one run that a person means by an id, its beginning or its end.

        Raises:
            UsageError: no run, or several, can be meant.
        """
        found = self.find_all(name)
        if len(found) > 1:
            raise UsageError(
                f"{name!r} means {len(found)} repeats, and one is needed", why=_listed(found), todo="name one of them"
            )
        return found[0]

    def find_all(self, name: str) -> list[str]:
        """The ids of the runs that a person means, the oldest first: one run, or the repeats of one setup.

        A name is an id or the group that repeats share, or the beginning or the end of one.

        Raises:
            UsageError: no run, or runs of several groups, can be meant.
        """
        groups = self._groups()
        if name in groups:
            return [name]
        exact = [run_id for run_id, group in groups.items() if group == name]
        matches = exact or [
            run_id
            for run_id, group in groups.items()
            if name and any(known.startswith(name) or known.endswith(name) for known in (run_id, group))
        ]
        if not matches:
            known = [*groups, *groups.values()]
            raise UsageError(f"no run {name!r}{did_you_mean(name, known)}", todo="cloudbench status")
        if len({groups[run_id] for run_id in matches}) > 1:
            raise UsageError(f"{name!r} can mean {len(matches)} runs", why=_listed(matches), todo="write more of it")
        return matches

    def _groups(self) -> dict[str, str]:
        """The group of each run by its id, the oldest run first."""
        rows = self._db.execute("SELECT id, plan FROM runs ORDER BY planned_at, rowid")
        return {run_id: msgspec.json.decode(plan, type=_Grouped).group for run_id, plan in rows}

    def folder(self, run_id: str) -> Path:
        """The folder of a run's artifacts, `attempt-N/node-K/…` below it."""
        return self.home / "runs" / run_id

    def keep_node_files(self, run_id: str, node: int, folder: Path) -> None:
        """Copy the logs and facts in a node's folder to the attempt that a run is at; nothing for runs that ended."""
        if run_id not in self.run_ids() or (run := self.load(run_id)).finished:
            return
        home = self.folder(run_id) / f"attempt-{run.attempt}" / f"node-{node}"
        home.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.suffix in (".log", ".json") and path.is_file():
                shutil.copyfile(path, home / path.name)

    @contextlib.contextmanager
    def driving(self, run_id: str) -> Iterator[bool]:
        """Be the only process that takes the run's steps; False where another one is. Ends with the process."""
        folder = self.folder(run_id)
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / "driver.lock", timeout=0)
        try:
            lock.acquire()
        except filelock.Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    @contextlib.contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise CloudbenchError(
                f"{self._journal}: the journal cannot be {what}",
                why=str(error),
                todo="check the folder and its disk, or set CLOUDBENCH_HOME to another one",
            ) from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _migrate(self) -> None:
        with self._transaction():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > len(_MIGRATIONS):
                raise CloudbenchError(
                    f"{self._journal}: was made by a newer cloudbench "
                    f"(schema {version}, this one knows {len(_MIGRATIONS)})",
                    todo="upgrade cloudbench, or set CLOUDBENCH_HOME to another folder",
                )
            for number, script in enumerate(_MIGRATIONS[version:], start=version + 1):
                for statement in filter(str.strip, script.split(";")):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {number}")


def _listed(run_ids: Sequence[str]) -> str:
    """The first of them, with `…` behind where there are more."""
    return ", ".join([*run_ids[:8], *(["…"] if len(run_ids) > 8 else [])])
