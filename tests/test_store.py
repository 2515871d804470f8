"""The journal outlives whoever writes it, several processes share it, and only one of them drives a run."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudbench.errors import CloudbenchError, UsageError
from cloudbench.plan import RunPlan
from cloudbench.run import (
    AttemptBegan,
    CancelRequested,
    Ended,
    FilesLost,
    Outcome,
    Phase,
    PhaseEntered,
    Status,
    replay,
)
from cloudbench.store import _MIGRATIONS, Store
from tests.small_provider import small_plans


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(Store(tmp_path / "home")) as opened:
        yield opened


def another_process(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python process that prints a line when it has done its part; its standard input keeps it alive."""
    program = f"import sys, time, os\nfrom pathlib import Path\nfrom cloudbench.store import Store\n{code}"
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )


def kill(process: subprocess.Popen[str]) -> None:
    """As the kernel kills: no handler runs, nothing is flushed or unlocked."""
    process.kill()
    process.communicate()
    if sys.platform != "win32":
        assert process.returncode == -signal.SIGKILL


def test_runs_come_back_as_they_were_planned(store: Store) -> None:
    plans = small_plans(3)
    store.add(plans, at=5.0)
    assert store.run_ids() == [plan.id for plan in plans]
    assert [store.load(plan.id).plan for plan in plans] == list(plans)


def test_a_run_is_what_its_events_say(store: Store) -> None:
    first, second = small_plans(2)
    store.add((first, second), at=0.0)
    events = [
        (1.0, PhaseEntered(phase=Phase.PROVISIONING)),
        (2.0, CancelRequested(reason="größe 日本")),
        (3.0, Ended(status=Status(outcome=Outcome.CANCELLED, last_lines=("a", "b")))),
    ]
    for at, event in events:
        store.append(first.id, event, at=at)
    assert store.load(first.id) == replay(first, events)
    assert store.load(second.id) == replay(second, [])


def test_the_attempts_of_a_run_come_back_from_the_disk(store: Store) -> None:
    (plan,) = small_plans()
    store.add((plan,), at=0.0)
    events = [
        (1.0, PhaseEntered(phase=Phase.PROVISIONING)),
        (2.0, Ended(status=Status(outcome=Outcome.PREEMPTED))),
        (3.0, PhaseEntered(phase=Phase.COLLECTING)),
        (4.0, FilesLost(reason="the machine is gone")),
        (5.0, AttemptBegan(number=2)),
        (6.0, CancelRequested(reason="cancelled", release_anyway=True)),
    ]
    for at, event in events:
        store.append(plan.id, event, at=at)
    run = store.load(plan.id)
    assert run == replay(plan, events)
    assert [(attempt.number, attempt.duration_s) for attempt in run.attempts] == [(1, 2.0)]


def test_the_journal_survives_its_store(tmp_path: Path) -> None:
    (plan,) = small_plans()
    with contextlib.closing(Store(tmp_path)) as store:
        store.add((plan,), at=0.0)
        store.append(plan.id, PhaseEntered(phase=Phase.PROVISIONING), at=1.0)
        owner = store.owner
    with contextlib.closing(Store(tmp_path)) as again:
        assert again.load(plan.id).phase is Phase.PROVISIONING
        assert again.owner == owner


def test_a_write_is_synced_before_it_is_acknowledged(store: Store) -> None:
    pragmas = {name: store._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
    assert pragmas == {"journal_mode": "wal", "synchronous": 2}
    assert store._db.isolation_level is None
    assert not store._db.in_transaction


APPEND_AND_TELL = """
from cloudbench.run import CancelRequested
store, run = Store(Path(sys.argv[1])), sys.argv[2]
for number in range(100):
    store.append(run, CancelRequested(reason=f"number {number}"), at=float(number))
    print(number, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("told", [1, 7, 40])
def test_an_event_that_was_acknowledged_survives_the_kill_of_its_writer(tmp_path: Path, told: int) -> None:
    (plan,) = small_plans()
    with contextlib.closing(Store(tmp_path)) as store:
        store.add((plan,), at=0.0)
    process = another_process(APPEND_AND_TELL, tmp_path, plan.id)
    assert process.stdout
    seen = [int(process.stdout.readline()) for _ in range(told)]
    kill(process)
    with contextlib.closing(Store(tmp_path)) as store:
        rows = store._db.execute("SELECT at FROM events WHERE run = ? ORDER BY number", (plan.id,)).fetchall()
        assert [int(at) for (at,) in rows][: len(seen)] == seen
        assert store._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


APPEND_MANY = """
from cloudbench.run import CancelRequested
store, run, who = Store(Path(sys.argv[1])), sys.argv[2], sys.argv[3]
print("open", flush=True)
sys.stdin.readline()
for number in range(50):
    store.append(run, CancelRequested(reason=who), at=float(number))
"""


def test_processes_that_write_at_once_lose_nothing_and_keep_their_order(tmp_path: Path) -> None:
    (plan,) = small_plans()
    with contextlib.closing(Store(tmp_path)) as store:
        store.add((plan,), at=0.0)
        processes = [another_process(APPEND_MANY, tmp_path, plan.id, who) for who in "ab"]
        for process in processes:
            assert process.stdout
            assert process.stdout.readline() == "open\n"
        for process in processes:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            process.communicate()
            assert process.returncode == 0
        rows = store._db.execute("SELECT number, at, event FROM events ORDER BY number").fetchall()
    assert [number for number, _, _ in rows] == list(range(1, 101))
    for who in (b'"a"', b'"b"'):
        assert [at for _, at, event in rows if who in event] == [float(number) for number in range(50)]


def test_a_new_home_is_opened_by_several_at_once(tmp_path: Path) -> None:
    for number in range(60):
        together = threading.Barrier(4)

        def owner(home: Path = tmp_path / str(number), together: threading.Barrier = together) -> str:
            together.wait()
            with contextlib.closing(Store(home)) as store:
                return store.owner

        with ThreadPoolExecutor(4) as pool:
            assert len({future.result() for future in [pool.submit(owner) for _ in range(4)]}) == 1


def test_processes_that_open_a_new_home_at_once_agree_on_its_owner(tmp_path: Path) -> None:
    code = "print(Store(Path(sys.argv[1])).owner)"
    processes = [another_process(code, tmp_path / "home") for _ in range(4)]
    owners = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert len(set(owners)) == 1


def test_another_folder_has_another_owner(tmp_path: Path) -> None:
    owners = set()
    for name in ("a", "b"):
        with contextlib.closing(Store(tmp_path / name)) as store:
            owners.add(store.owner)
            assert store.owner in owners
    assert len(owners) == 2


def test_an_owner_is_a_name_in_every_cloud_even_without_a_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(variable, "Jörg  O'Neil-the-very-long-name")
    with contextlib.closing(Store(tmp_path / "a")) as store:
        assert store.owner.startswith("j-rg-o-neil-the-")
        assert len(store.owner) <= 25
    if hasattr(os, "getuid"):
        for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
            monkeypatch.delenv(variable)
        monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)  # a container's user, in no table of names
        with contextlib.closing(Store(tmp_path / "b")) as store:
            assert store.owner.startswith("user-")


def test_submissions_are_counted_for_each_experiment(store: Store) -> None:
    assert store.next_submission("e") == 1
    store.add(small_plans(), at=0.0)
    assert store.next_submission("e") == 2
    store.add(small_plans(2, submission=2), at=1.0)
    assert store.next_submission("e") == 3
    assert store.next_submission("other") == 1
    assert len(store.run_ids("e")) == 3
    assert len(store.run_ids("e", submission=2)) == 2
    assert store.run_ids("other") == []


def test_new_runs_are_remembered_all_or_none(store: Store) -> None:
    first, second = small_plans(2)
    store.add((second,), at=0.0)
    with pytest.raises(UsageError) as refused:
        store.add((first, second), at=1.0)
    assert refused.value.todo == "submit it again"
    assert store.run_ids() == [second.id]


def test_a_newer_journal_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    Store(tmp_path).close()
    journal = tmp_path / "journal.sqlite3"
    with contextlib.closing(sqlite3.connect(journal)) as newer:
        newer.execute(f"PRAGMA user_version = {len(_MIGRATIONS) + 1}")
        newer.execute("CREATE TABLE of_the_future (x)")
        newer.commit()
    with pytest.raises(CloudbenchError) as refused:
        Store(tmp_path)
    assert refused.value.what == (
        f"{journal}: was made by a newer cloudbench (schema {len(_MIGRATIONS) + 1}, this one knows {len(_MIGRATIONS)})"
    )
    assert refused.value.todo == "upgrade cloudbench, or set CLOUDBENCH_HOME to another folder"
    with contextlib.closing(sqlite3.connect(journal)) as after:
        assert after.execute("PRAGMA user_version").fetchone() == (len(_MIGRATIONS) + 1,)


def test_the_schema_is_numbered_by_its_migrations(tmp_path: Path) -> None:
    for _ in range(2):
        with contextlib.closing(Store(tmp_path)) as store:
            assert store._db.execute("PRAGMA user_version").fetchone() == (len(_MIGRATIONS),)


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (plan,) = small_plans()
    with contextlib.closing(Store(tmp_path)) as store:
        store.add((plan,), at=0.0)
    broken = "CREATE TABLE more (x); INSERT INTO nowhere VALUES (1)"
    with monkeypatch.context() as patched:
        patched.setattr("cloudbench.store._MIGRATIONS", (*_MIGRATIONS, broken))
        with pytest.raises(CloudbenchError, match="the journal cannot be opened"):
            Store(tmp_path)
    with contextlib.closing(Store(tmp_path)) as store:
        assert store.run_ids() == [plan.id]
        assert store._db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'more'").fetchone() == (0,)


def test_a_journal_of_an_earlier_schema_is_brought_forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (plan,) = small_plans()
    with contextlib.closing(Store(tmp_path)) as store:
        store.add((plan,), at=0.0)
    monkeypatch.setattr("cloudbench.store._MIGRATIONS", (*_MIGRATIONS, "ALTER TABLE runs ADD COLUMN note TEXT"))
    with contextlib.closing(Store(tmp_path)) as store:
        assert store.load(plan.id).plan == plan
        assert store._db.execute("PRAGMA user_version").fetchone() == (len(_MIGRATIONS) + 1,)
        assert store._db.execute("SELECT note FROM runs").fetchall() == [(None,)]


def a_file(folder: Path) -> Path:
    (folder / "home").write_text("")
    return folder / "home"


def below_a_file(folder: Path) -> Path:
    return a_file(folder) / "below"


def no_database(folder: Path) -> Path:
    (folder / "journal.sqlite3").write_bytes(b"this is no database" * 100)
    return folder


def a_folder_for_a_journal(folder: Path) -> Path:
    (folder / "journal.sqlite3").mkdir()
    return folder


@pytest.mark.parametrize("make", [a_file, below_a_file, no_database, a_folder_for_a_journal])
def test_a_home_that_cannot_be_used_is_one_clear_error(tmp_path: Path, make: object) -> None:
    assert callable(make)
    home = make(tmp_path)
    with pytest.raises(CloudbenchError) as refused:
        Store(home)
    assert refused.value.what == f"{home / 'journal.sqlite3'}: the journal cannot be opened"
    assert refused.value.why
    assert "CLOUDBENCH_HOME" in str(refused.value.todo)


def test_a_home_that_may_not_be_written_is_one_clear_error(tmp_path: Path) -> None:
    Store(tmp_path).close()
    # Root may write anywhere, so the database itself says no.
    with contextlib.closing(sqlite3.connect(f"file:{tmp_path / 'journal.sqlite3'}?mode=ro", uri=True)) as read_only:
        store = Store(tmp_path)
        store.add(small_plans(), at=0.0)
        store.close()
        store._db = read_only
        with pytest.raises(CloudbenchError) as refused:
            store.append(small_plans()[0].id, CancelRequested(reason="x"), at=0.0)
    assert refused.value.what.endswith("the journal cannot be written")
    assert refused.value.why == "attempt to write a readonly database"


def test_an_unknown_run_is_told(store: Store) -> None:
    with pytest.raises(UsageError, match="no run 'x'"):
        store.load("x")


def test_a_person_names_a_run_by_its_id_its_beginning_or_its_end(store: Store) -> None:
    first, second = small_plans(2)
    store.add((first, second), at=0.0)
    assert store.find(first.id) == first.id
    assert store.find(first.id[-8:]) == first.id
    assert store.find(second.id[: len("e-s-number-1")]) == second.id
    with pytest.raises(UsageError) as several:
        store.find("e-s")
    assert several.value.what == "'e-s' can mean 2 runs"
    assert several.value.why == f"{first.id}, {second.id}"
    with pytest.raises(UsageError) as near:
        store.find(f"{first.id}x")
    assert f"; did you mean {first.id!r}?" in near.value.what
    for none in ("", "zebra", "%", "_"):
        with pytest.raises(UsageError, match="no run"):
            store.find(none)


def repeats(count: int) -> list[RunPlan]:
    (plan,) = small_plans()
    return [
        msgspec.structs.replace(plan, id=f"{plan.group}-r{number}", repeat=number) for number in range(1, count + 1)
    ]


def test_the_name_that_repeats_share_means_all_of_them(store: Store) -> None:
    plans = repeats(3)
    ids = [plan.id for plan in plans]
    store.add(plans, at=0.0)
    group = plans[0].group
    for name in (group, group[:-2], group[-8:], f"{group}-r"):
        assert store.find_all(name) == ids
    for name in (f"{group}-r2", "r2"):
        assert store.find_all(name) == [ids[1]]
    with pytest.raises(UsageError, match="3 repeats, and one is needed") as several:
        store.find(group)
    assert several.value.why == ", ".join(ids)


def test_repeats_of_two_setups_are_not_meant_together(store: Store) -> None:
    other = small_plans(2)[1]
    store.add([*repeats(2), other], at=0.0)
    with pytest.raises(UsageError, match="'e-s' can mean 3 runs"):
        store.find_all("e-s")
    assert store.find_all(other.id[-8:]) == [other.id]


def test_a_list_of_runs_that_was_cut_says_so(store: Store) -> None:
    store.add(small_plans(9), at=0.0)
    with pytest.raises(UsageError) as nine:
        store.find("e-s")
    assert (nine.value.why or "").count("e-s-number") == 8
    assert (nine.value.why or "").endswith(", …")


def test_an_id_that_another_begins_with_is_found(store: Store) -> None:
    (plan,) = small_plans()
    store.add((plan, msgspec.structs.replace(plan, id=f"{plan.id}-r2")), at=0.0)
    assert store.find(plan.id) == plan.id


DRIVE = """
with Store(Path(sys.argv[1])).driving(sys.argv[2]) as ours:
    print(ours, flush=True)
    sys.stdin.readline()
"""


def test_a_run_has_one_driver_among_all_processes(tmp_path: Path) -> None:
    with contextlib.closing(Store(tmp_path)) as store:
        first = another_process(DRIVE, tmp_path, "run-1")
        assert first.stdout
        assert first.stdout.readline() == "True\n"
        second = another_process(DRIVE, tmp_path, "run-1")
        assert second.communicate("\n")[0] == "False\n"
        with store.driving("run-1") as ours:
            assert not ours
        with store.driving("run-2") as ours:
            assert ours
        first.communicate("\n")
        with store.driving("run-1") as ours:
            assert ours


def test_a_driver_that_was_killed_drives_no_more(tmp_path: Path) -> None:
    with contextlib.closing(Store(tmp_path)) as store:
        driver = another_process(DRIVE, tmp_path, "run-1")
        assert driver.stdout
        assert driver.stdout.readline() == "True\n"
        kill(driver)
        with store.driving("run-1") as ours:
            assert ours


def test_a_run_has_one_driver_within_a_process(store: Store) -> None:
    answers: list[bool] = []

    def drive() -> None:
        with store.driving("run-1") as ours:
            answers.append(ours)

    with store.driving("run-1") as ours:
        answers.append(ours)
        drive()
        thread = threading.Thread(target=drive)
        thread.start()
        thread.join()
    drive()
    assert answers == [True, False, False, True]


def test_a_driver_that_fails_gives_the_run_back(store: Store) -> None:
    with contextlib.suppress(KeyboardInterrupt), store.driving("run-1"):
        raise KeyboardInterrupt
    with store.driving("run-1") as ours:
        assert ours


def test_each_run_has_a_folder_of_its_own(store: Store) -> None:
    assert store.folder("run-1") == store.home / "runs" / "run-1"
    assert (store.home / "runs").is_dir()


@given(name=st.text(max_size=12))
def test_any_name_is_a_run_or_one_clear_error(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    home = tmp_path_factory.getbasetemp() / "names"
    with contextlib.closing(Store(home)) as store:
        if not store.run_ids():
            store.add(small_plans(), at=0.0)
        (run_id,) = store.run_ids()
        meant = bool(name) and (run_id.startswith(name) or run_id.endswith(name))
        if meant:
            assert store.find(name) == run_id
        else:
            with pytest.raises(UsageError, match="no run"):
                store.find(name)


def test_a_journal_that_can_only_be_read_is_told_when_it_must_be_written(tmp_path: Path) -> None:
    Store(tmp_path).close()
    store = Store(tmp_path)
    store._db.execute("PRAGMA query_only = ON")  # as on a disk that was mounted read-only
    with pytest.raises(CloudbenchError, match="the journal cannot be written"):
        _ = store.owner
    with pytest.raises(CloudbenchError, match="the journal cannot be written"):
        store.add([], at=0.0)
    store.close()
