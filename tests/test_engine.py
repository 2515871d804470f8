"""Runs are driven to their ends whatever happens: journalled before each effect, collected, and released."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudbench.engine import PATIENCE_S, Engine
from cloudbench.errors import CloudbenchError, UsageError
from cloudbench.plan import RunPlan
from cloudbench.providers.base import Provider
from cloudbench.run import (
    AttemptBegan,
    CancelRequested,
    Ended,
    Event,
    FilesLost,
    Handle,
    HandleIntended,
    HandleReleased,
    Outcome,
    Phase,
    PhaseEntered,
    Run,
)
from cloudbench.store import Store
from tests.small_provider import SmallProvider, small_plans

IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where thousands of synced writes need not wait for a disk, if there is such a place."""


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Path(folder)


class TurnedClock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.time = 1_000_000.0
        self.slept: list[float] = []
        self.at_sleep: Callable[[], None] = lambda: None

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
        self.at_sleep()


class Client:
    """What one process of a person holds: a store, an engine, and the provider's things in a folder they share."""

    def __init__(
        self,
        folder: Path,
        *,
        capacity: int | None = None,
        observe: Callable[[str, Handle | None], None] = lambda moment, handle: None,
        notice: Callable[[Run, Event], None] | None = None,
    ) -> None:
        self.store = Store(folder / "home")
        self.provider: Provider
        self.small = SmallProvider(folder, capacity=capacity, observe=observe)
        self.provider = self.small
        self.clock = TurnedClock()
        self.events: list[tuple[str, Event]] = []
        self._notice = notice
        self.engine = Engine(self.store, lambda plan: self.provider, clock=self.clock, notice=self._noticed)

    def submit(self, plans: tuple[RunPlan, ...]) -> list[str]:
        self.store.add(plans, at=0.0)
        return [plan.id for plan in plans]

    def _noticed(self, run: Run, event: Event) -> None:
        self.events.append((run.id, event))
        if self._notice:
            self._notice(run, event)


def collected(client: Client, run_id: str) -> list[str]:
    folder = client.store.folder(run_id)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.log"))


def assert_over(client: Client, run: Run) -> None:
    """Nothing is left, nothing was made twice, and nothing was released before the files were home.

    No attempt made anything before all of the earlier one was gone.
    """
    assert run.finished
    assert run.handles == ()
    assert client.small.things == []
    ledger = client.small.ledger
    made = [entry for entry in ledger if entry.startswith("make ")]
    assert len(made) == len(set(made))
    assert [earlier.number for earlier in run.attempts] == list(range(1, run.attempt))
    begun = [n for n in range(1, run.attempt + 1) if f"make {run.id}.{n}.job" in ledger]
    assert collected(client, run.id) == [f"attempt-{n}/node-0/rank-0.log" for n in begun if n not in run.lost_files]
    gone = -1
    for attempt in range(1, run.attempt + 1):
        places = [(n, entry.split()) for n, entry in enumerate(ledger) if f" {run.id}.{attempt}." in entry]
        released = [n for n, words in places if "release" in words]
        assert all(n > gone for n, _ in places)
        if attempt in begun and attempt not in run.lost_files:
            assert ledger.index(f"collect {run.id}.{attempt}.job") < min(released)
        gone = max(released, default=gone)


def test_a_run_goes_through_its_phases_to_its_end(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans())
    (run,) = client.engine.drive([run_id])
    assert run.outcome is Outcome.SUCCEEDED
    assert [event.phase for _, event in client.events if isinstance(event, PhaseEntered)] == list(Phase)[1:]
    assert client.small.ledger == [
        *(f"make {run_id}.1.{name}" for name in ("net", "node-0", "node-1", "job")),
        *(["poll 1", f"let time pass for {run_id}.1.job"] * 2),
        f"collect {run_id}.1.job",
        *(f"release {run_id}.1.{name}" for name in ("job", "node-1", "node-0", "net")),
    ]
    assert_over(client, run)


def test_a_finished_run_is_left_alone(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans())
    (run,) = client.engine.drive([run_id])
    ledger = client.small.ledger
    assert client.engine.drive([run_id]) == [run]
    assert client.engine.cancel(run_id, reason="late") == run
    assert client.engine.collect(run_id) == run
    assert client.small.ledger == ledger


def test_every_effect_is_in_the_journal_before_it_happens(tmp_path: Path) -> None:
    seen: list[str] = []

    def observe(moment: str, handle: Handle | None) -> None:
        assert handle is not None
        # What another process reads from the disk in this moment.
        journal = Store(tmp_path / "home")
        run = journal.load(handle.run)
        journal.close()
        phases = {
            "before make": Phase.READY if handle.kind == "job" else Phase.PROVISIONING,
            "before let time pass for": Phase.RUNNING,
            "before collect": Phase.COLLECTING,
            "before release": Phase.RELEASING,
        }
        if moment in phases:
            seen.append(moment)
            assert run.phase is phases[moment]
            assert handle in run.handles

    client = Client(tmp_path, observe=observe)
    client.engine.drive(client.submit(small_plans()))
    assert len(seen) == 4 + 2 + 1 + 4


@pytest.mark.parametrize("ends", ["failed", "timed-out", "infrastructure"])
def test_a_job_that_fails_is_collected_and_released_like_any_other(tmp_path: Path, ends: str) -> None:
    client = Client(tmp_path)
    (run,) = client.engine.drive(client.submit(small_plans(ends=ends)))
    assert run.outcome is Outcome(ends)
    assert_over(client, run)


@pytest.mark.parametrize(
    ("refuses", "raises", "outcome"),
    [
        ("provision", "CapacityError", "no-capacity"),
        ("provision", "QuotaError", "quota"),
        ("provision", "PreemptedError", "preempted"),
        ("submit", "JobFailedError", "failed"),
        ("submit", "LimitError", "timed-out"),
        ("submit", "InfrastructureError", "infrastructure"),
        ("submit", "CredentialsError", "infrastructure"),
    ],
)
def test_a_provider_that_refuses_ends_the_run_and_not_the_others(
    tmp_path: Path, refuses: str, raises: str, outcome: str
) -> None:
    client = Client(tmp_path)
    (refused,) = client.submit(small_plans(refuses=refuses, raises=raises, retries=0))
    (other,) = client.submit(small_plans(submission=2))
    runs = client.engine.drive([refused, other])
    assert [run.outcome for run in runs] == [Outcome(outcome), Outcome.SUCCEEDED]
    assert runs[0].status is not None
    assert runs[0].status.reason == f"{refuses} was refused — the plan says so"
    for run in runs:
        assert_over(client, run)


class Died(BaseException):
    """The client's process ended here: nothing of it runs any more, no handler and no cleanup of ours."""


class Nth:
    """Raises at the n-th moment of a drive: at each event after it was journalled, and around each effect."""

    def __init__(self, number: int, error: type[BaseException]) -> None:
        self.left = number
        self._error = error

    def moment(self, *_: object) -> None:
        self.left -= 1
        if self.left == -1:
            raise self._error


def moments(tmp_path: Path, **parameters: Any) -> int:
    """How many moments the drive of such a run has."""
    counter = Nth(10_000, Died)
    client = Client(tmp_path / "count", observe=counter.moment, notice=counter.moment)
    client.engine.drive(client.submit(small_plans(**parameters)))
    return 10_000 - counter.left


def die(folder: Path, number: int, run_ids: list[str] | None = None, **parameters: Any) -> list[str]:
    """A client that dies at that moment; its locks are gone with it."""
    dying = Nth(number, Died)
    client = Client(folder, observe=dying.moment, notice=dying.moment)
    run_ids = run_ids or client.submit(small_plans(**parameters))
    with contextlib.suppress(Died):
        client.engine.drive(run_ids)
    client.store.close()
    return run_ids


LIVES = {
    "succeeds": {"lasts": 1},
    "fails": {"lasts": 1, "ends": "failed"},
    "finds no capacity": {"refuses": "provision", "raises": "CapacityError"},
    "cannot be submitted": {"refuses": "submit"},
    "is released slowly": {"lasts": 1, "slow_release": 1},
    "is preempted": {"lasts": 1, "preempts": 1},
    "is preempted again": {"lasts": 1, "preempts": 2},
    "is preempted before its job": {"refuses": "submit 1", "raises": "PreemptedError", "lasts": 1},
    "finds no capacity for its second attempt": {
        "lasts": 1,
        "preempts": 1,
        "refuses": "provision 2",
        "raises": "CapacityError",
    },
}
LOSES_ITS_FILES = {"loses files of its first attempt": {"lasts": 1, "preempts": 1, "refuses": "collect 1"}}


@pytest.mark.parametrize("life", LIVES | LOSES_ITS_FILES)
def test_a_run_whose_client_died_at_any_moment_is_taken_to_the_same_end(tmp_path: Path, life: str) -> None:
    parameters = (LIVES | LOSES_ITS_FILES)[life]
    undisturbed = Client(tmp_path / "undisturbed")
    (expected,) = undisturbed.engine.drive(undisturbed.submit(small_plans(**parameters)))
    count = moments(tmp_path, **parameters)
    assert count > 8
    for number in range(count):
        folder = tmp_path / str(number)
        run_ids = die(folder, number, **parameters)
        client = Client(folder)
        (run,) = client.engine.drive(run_ids)
        assert (run.outcome, run.status) == (expected.outcome, expected.status)
        assert [earlier.status for earlier in run.attempts] == [earlier.status for earlier in expected.attempts]
        assert run.lost_files == expected.lost_files
        assert_over(client, run)
        client.store.close()


@given(deaths=st.lists(st.integers(0, 30), min_size=2, max_size=5))
@settings(max_examples=25)
def test_a_run_survives_client_after_client(deaths: list[int]) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        run_ids = None
        for number in deaths:
            run_ids = die(Path(folder), number, run_ids, lasts=3, slow_release=1, preempts=1)
        client = Client(Path(folder))
        assert run_ids is not None
        (run,) = client.engine.drive(run_ids)
        assert run.outcome is Outcome.SUCCEEDED
        assert_over(client, run)
        client.store.close()


@pytest.mark.parametrize("life", LIVES)
def test_an_interrupt_at_any_moment_leaves_nothing_behind(tmp_path: Path, life: str) -> None:
    parameters = LIVES[life]
    for number in range(moments(tmp_path, **parameters)):
        folder = tmp_path / str(number)
        interrupt = Nth(number, KeyboardInterrupt)
        client = Client(folder, observe=interrupt.moment, notice=interrupt.moment)
        (run_id,) = client.submit(small_plans(**parameters))
        with pytest.raises(KeyboardInterrupt):
            client.engine.drive([run_id])
        run = client.store.load(run_id)
        events = [event for _, event in client.events]
        began = max((n for n, event in enumerate(events) if isinstance(event, AttemptBegan)), default=0)
        decided = [event.status.outcome for event in events[began:] if isinstance(event, Ended)]
        assert run.outcome is decided[0]
        assert run.cancel_reason == "interrupted from the keyboard" or run.phase is Phase.RELEASED
        assert_over(client, run)
        client.store.close()


def test_an_interrupt_stops_the_running_and_never_starts_the_waiting(tmp_path: Path) -> None:
    polls = 0

    def observe(moment: str, handle: Handle | None) -> None:
        nonlocal polls
        polls += moment == "after let time pass for"
        if polls == 2 and moment == "after let time pass for":
            raise KeyboardInterrupt

    client = Client(tmp_path, capacity=1, observe=observe)
    first, second = client.submit(small_plans(2, lasts=1000))
    with pytest.raises(KeyboardInterrupt):
        client.engine.drive([first, second])
    runs = [client.store.load(run_id) for run_id in (first, second)]
    assert [run.outcome for run in runs] == [Outcome.CANCELLED, Outcome.CANCELLED]
    assert f"stop {first}.1.job" in client.small.ledger
    assert not [entry for entry in client.small.ledger if second in entry]
    for run in runs:
        assert_over(client, run)


def test_a_second_interrupt_leaves_the_runs_for_resume(tmp_path: Path) -> None:
    def observe(moment: str, handle: Handle | None) -> None:
        if moment in ("after let time pass for", "before stop"):
            raise KeyboardInterrupt

    client = Client(tmp_path, observe=observe)
    (run_id,) = client.submit(small_plans(lasts=1000))
    with pytest.raises(KeyboardInterrupt):
        client.engine.drive([run_id])
    assert client.store.load(run_id).phase is Phase.RUNNING
    later = Client(tmp_path)
    (run,) = later.engine.drive([run_id])
    assert run.outcome is Outcome.CANCELLED
    assert_over(later, run)


@pytest.mark.parametrize("count", [1, 5, 40])
def test_the_number_of_polls_does_not_grow_with_the_runs(tmp_path: Path, count: int) -> None:
    client = Client(tmp_path)
    run_ids = client.submit(small_plans(count, lasts=4))
    runs = client.engine.drive(run_ids, detach=True)
    client.engine.poll(runs)
    runs = client.engine.drive(run_ids)
    assert [run.outcome for run in runs] == [Outcome.SUCCEEDED] * count
    assert [entry for entry in client.small.ledger if entry.startswith("poll")] == [f"poll {count}"] * 4
    assert client.clock.slept == [SmallProvider.poll_interval_s] * 2


@pytest.mark.parametrize("count", [1, 10, 30])
def test_runs_that_end_one_after_the_other_are_not_polled_more_often(tmp_path: Path, count: int) -> None:
    client = Client(tmp_path)
    longest = 30
    plans = (small_plans(submission=n + 1, lasts=longest - n) for n in range(count))
    runs = client.engine.drive([run_id for some in plans for run_id in client.submit(some)])
    assert [run.outcome for run in runs] == [Outcome.SUCCEEDED] * count
    assert len([entry for entry in client.small.ledger if entry.startswith("poll")]) == longest


def test_one_poll_a_turn_watches_first_and_later_attempts(tmp_path: Path) -> None:
    client = Client(tmp_path)
    run_ids = client.submit(small_plans(3, lasts=2, preempts=1))
    other_ids = client.submit(small_plans(3, submission=2, lasts=6))
    client.engine.drive([*run_ids, *other_ids])
    # The second attempts begin while the others run on.
    polls = [entry for entry in client.small.ledger if entry.startswith("poll")]
    assert len(polls) == 6
    assert polls.count("poll 6") == 4


@pytest.mark.parametrize("capacity", [1, 2, None])
def test_no_more_runs_exist_at_once_than_do_not_disturb_each_other(tmp_path: Path, capacity: int | None) -> None:
    client = Client(tmp_path, capacity=capacity)
    client.engine.drive(client.submit(small_plans(5, lasts=3)))
    existing: set[str] = set()
    most = 0
    for entry in client.small.ledger:
        run = entry.rsplit(" ", 1)[1].split(".")[0]
        if entry.startswith("make "):
            existing.add(run)
        elif entry.startswith("release ") and entry.endswith(".net"):
            existing.discard(run)
        most = max(most, len(existing))
    assert most == (capacity or 5)


def test_runs_take_their_turn_in_the_order_asked_for(tmp_path: Path) -> None:
    client = Client(tmp_path, capacity=1)
    run_ids = client.submit(small_plans(3, lasts=1))
    assert [run.id for run in client.engine.drive(run_ids)] == run_ids
    begun = [run for run, event in client.events if event == PhaseEntered(phase=Phase.PROVISIONING)]
    assert begun == run_ids


def test_a_detached_client_returns_when_the_job_runs(tmp_path: Path) -> None:
    client = Client(tmp_path)
    run_ids = client.submit(small_plans(2))
    runs = client.engine.drive(run_ids, detach=True)
    assert [run.phase for run in runs] == [Phase.RUNNING, Phase.RUNNING]
    assert not [entry for entry in client.small.ledger if entry.startswith(("collect", "release"))]
    later = Client(tmp_path)
    for run in later.engine.drive(run_ids):
        assert run.outcome is Outcome.SUCCEEDED
        assert_over(later, run)


def test_a_detached_client_disturbs_no_figures(tmp_path: Path) -> None:
    client = Client(tmp_path, capacity=1)
    first, second = client.engine.drive(client.submit(small_plans(2)), detach=True)
    assert (first.phase, second.phase) == (Phase.RELEASED, Phase.RUNNING)
    assert client.small.ledger.index(f"release {first.id}.1.net") < client.small.ledger.index(f"make {second.id}.1.net")


def test_a_thing_that_goes_slowly_is_waited_for(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run,) = client.engine.drive(client.submit(small_plans(slow_release=5)))
    assert_over(client, run)
    assert len([entry for entry in client.small.ledger if entry.startswith("begin to release")]) == 4 * 5


@pytest.mark.parametrize(
    ("parameters", "says", "phase"),
    [
        ({"refuses": "release"}, "4 of its things are not gone (tried for 120 s)", Phase.RELEASING),
        ({"slow_release": 10_000}, "4 of its things are not gone (tried for 1800 s)", Phase.RELEASING),
        ({"refuses": "collect"}, "its files could not be brought home; nothing was released", Phase.COLLECTING),
    ],
)
def test_what_cannot_be_finished_is_left_for_resume_while_the_others_end(
    tmp_path: Path, parameters: dict[str, Any], says: str, phase: Phase
) -> None:
    client = Client(tmp_path)
    (stuck,) = client.submit(small_plans(**parameters))
    (other,) = client.submit(small_plans(submission=2, lasts=100))
    with pytest.raises(CloudbenchError) as left:
        client.engine.drive([stuck, other])
    assert left.value.what == f"run {stuck}: {says}"
    lose = f", or to lose its files: cloudbench cancel {stuck} --release-anyway"
    assert left.value.todo == f"cloudbench resume {stuck}" + (lose if phase is Phase.COLLECTING else "")
    assert left.value.why
    run = client.store.load(stuck)
    assert run.phase is phase
    assert [handle.kind for handle in run.handles] == ["network", "machine", "machine", "job"]
    assert len(client.small.things) == 4
    assert client.store.load(other).outcome is Outcome.SUCCEEDED
    assert client.store.load(other).finished
    # Once the trouble is over, the same engine finishes the run.
    for thing in (tmp_path / "things").iterdir():
        thing.write_text(thing.read_text().replace(f'"{parameters.get("refuses", "-")}"', '""').replace("10000", "0"))
    (run,) = client.engine.drive([stuck])
    assert run.finished
    assert client.small.things == []


def test_a_release_that_goes_on_without_an_error_is_waited_for_longer(tmp_path: Path) -> None:
    client = Client(tmp_path)
    calls = int(2 * PATIENCE_S / client.small.poll_interval_s)
    (run,) = client.engine.drive(client.submit(small_plans(slow_release=calls)))
    assert run.finished
    assert sum(client.clock.slept) > PATIENCE_S
    assert_over(client, run)


def test_rehearsals_of_different_clouds_take_turns(tmp_path: Path) -> None:
    """Each has a provider of its own, and all of them this machine."""
    client = Client(tmp_path)
    other = SmallProvider(tmp_path / "other", capacity=1)
    plans = tuple(msgspec.structs.replace(plan, rehearsal=True) for plan in small_plans(4))
    client.engine = Engine(
        client.store,
        lambda plan: other if plan.parameters["number"] in (1, 3) else client.small,
        clock=client.clock,
        notice=client._noticed,
    )
    runs = client.engine.drive(client.submit(plans))
    assert all(run.outcome is Outcome.SUCCEEDED for run in runs)
    order = [run_id for run_id, event in client.events if isinstance(event, PhaseEntered)]
    assert [run_id for run_id, _ in itertools.groupby(order)] == [plan.id for plan in plans]


def test_each_drive_has_its_whole_patience(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(refuses="release"))
    for _ in range(2):
        client.clock.slept.clear()
        with pytest.raises(CloudbenchError, match="are not gone"):
            client.engine.drive([run_id])
        assert sum(client.clock.slept) > PATIENCE_S


def test_several_runs_that_are_left_are_all_named(tmp_path: Path) -> None:
    client = Client(tmp_path)
    first, second = client.submit(small_plans(2, refuses="release"))
    with pytest.raises(CloudbenchError) as left:
        client.engine.drive([first, second])
    assert first in left.value.what
    assert second in left.value.what
    assert left.value.todo == f"cloudbench resume {first} {second}"


def test_a_failing_release_does_not_keep_the_other_things(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(lasts=1))
    client.engine.drive([run_id], detach=True)
    machine = tmp_path / "things" / f"{run_id}.1.node-1"
    machine.write_text(machine.read_text().replace('"refuses": ""', '"refuses": "release"'))
    with pytest.raises(CloudbenchError) as left:
        client.engine.drive([run_id])
    assert left.value.why == f"machine {run_id}.1.node-1: release was refused"
    assert client.small.things == [f"{run_id}.1.node-1"]
    assert [handle.id for handle in client.store.load(run_id).handles] == [f"{run_id}.1.node-1"]


def test_a_poll_that_fails_for_a_while_is_tried_again(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(refuses="poll"))

    def heal() -> None:
        if len(client.clock.slept) == 3:
            thing = tmp_path / "things" / f"{run_id}.1.job"
            thing.write_text(thing.read_text().replace('"poll"', '""'))

    client.clock.at_sleep = heal
    (run,) = client.engine.drive([run_id])
    assert run.outcome is Outcome.SUCCEEDED


def test_polls_that_fail_now_and_then_are_no_trouble(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(lasts=20))

    def fail_two_of_three_times() -> None:
        thing = tmp_path / "things" / f"{run_id}.1.job"
        text = thing.read_text().replace('"refuses": "poll"', '"refuses": ""')
        fails = len(client.clock.slept) % 3
        thing.write_text(text.replace('"refuses": ""', '"refuses": "poll"') if fails else text)

    client.clock.at_sleep = fail_two_of_three_times
    (run,) = client.engine.drive([run_id])
    assert run.outcome is Outcome.SUCCEEDED
    assert sum(client.clock.slept) > 2 * PATIENCE_S


def test_a_job_that_was_seen_to_end_is_not_asked_again(tmp_path: Path) -> None:
    def notice(run: Run, event: Event) -> None:
        if isinstance(event, Ended):
            raise Died

    client = Client(tmp_path, notice=notice)
    (run_id,) = client.submit(small_plans())
    with pytest.raises(Died):
        client.engine.drive([run_id])
    polls = [entry for entry in client.small.ledger if entry.startswith("poll")]
    later = Client(tmp_path)
    (run,) = later.engine.drive([run_id])
    assert [entry for entry in later.small.ledger if entry.startswith("poll")] == polls
    assert_over(later, run)


def test_a_run_that_cannot_be_watched_is_left_for_resume(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(refuses="poll"))
    with pytest.raises(CloudbenchError) as left:
        client.engine.drive([run_id])
    assert left.value.what == f"run {run_id}: it cannot be watched, and may still be running (tried for 120 s)"
    assert sum(client.clock.slept) > PATIENCE_S
    assert client.store.load(run_id).phase is Phase.RUNNING


def test_a_journal_that_cannot_be_written_ends_the_drive_at_once(tmp_path: Path) -> None:
    """It is no trouble of the provider's that may pass: the person is told while the nodes' own limits hold."""
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans())
    client.clock.at_sleep = lambda: client.store._db.execute("PRAGMA max_page_count = 1").close()
    long_text = "x" * 100_000

    def fill(run: Run, event: Event) -> None:
        if isinstance(event, PhaseEntered) and event.phase is Phase.RUNNING:
            client.store.append(run.id, CancelRequested(reason=long_text), at=0.0)

    client._notice = fill
    with pytest.raises(CloudbenchError, match="cannot be written") as told:
        client.engine.drive([run_id])
    assert "cannot be watched" not in told.value.what
    assert sum(client.clock.slept) < PATIENCE_S


def test_a_run_is_driven_by_one_client_only(tmp_path: Path) -> None:
    client = Client(tmp_path)
    first, second = client.submit(small_plans(2))
    other = Client(tmp_path)
    with other.store.driving(second) as ours:
        assert ours
        with pytest.raises(UsageError, match=f"another process drives run {second}"):
            client.engine.drive([first, second])
    assert client.small.ledger == []
    assert [run.finished for run in client.engine.drive([first, second])] == [True, True]


def test_a_cancel_from_another_client_is_seen_by_the_driver(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(lasts=1000))
    other = Store(tmp_path / "home")

    def cancel() -> None:
        if len(client.clock.slept) == 3:
            other.append(run_id, CancelRequested(reason="cancelled"), at=0.0)

    client.clock.at_sleep = cancel
    (run,) = client.engine.drive([run_id])
    assert (run.outcome, run.status and run.status.reason) == (Outcome.CANCELLED, "cancelled")
    assert_over(client, run)


def test_cancel_waits_for_the_driver_to_end_the_run(tmp_path: Path) -> None:
    driver = Client(tmp_path)
    (run_id,) = driver.submit(small_plans(lasts=10**9))
    results: list[Run] = []

    def another_person() -> None:
        asking = Client(tmp_path)
        results.append(asking.engine.cancel(run_id, reason="not needed"))
        asking.store.close()

    person = threading.Thread(target=another_person)
    driver.clock.at_sleep = lambda: None if person.ident else person.start()
    (run,) = driver.engine.drive([run_id])
    person.join(60)
    assert results == [run]
    assert (run.outcome, run.cancel_reason) == (Outcome.CANCELLED, "not needed")


def test_cancel_takes_over_from_a_driver_that_dies(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(lasts=1000))
    client.engine.drive([run_id], detach=True)
    driver = client.store.driving(run_id)
    assert driver.__enter__()
    asking = Client(tmp_path)

    def die_at_the_second_look() -> None:
        if len(asking.clock.slept) == 2:
            driver.__exit__(None, None, None)

    asking.clock.at_sleep = die_at_the_second_look
    run = asking.engine.cancel(run_id, reason="cancelled")
    assert run.outcome is Outcome.CANCELLED
    assert_over(asking, run)


def test_cancelling_a_detached_run_ends_it_here(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(lasts=1000))
    client.engine.drive([run_id], detach=True)
    run = client.engine.cancel(run_id, reason="cancelled")
    assert run.outcome is Outcome.CANCELLED
    assert_over(client, run)


def test_cancelling_a_planned_run_makes_nothing(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans())
    run = client.engine.cancel(run_id, reason="cancelled")
    assert (run.outcome, run.finished) == (Outcome.CANCELLED, True)
    assert client.small.ledger == []


def test_a_job_that_succeeded_before_the_cancel_came_has_succeeded(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(lasts=1))
    client.engine.drive([run_id], detach=True)
    assert client.engine.cancel(run_id, reason="too late").outcome is Outcome.SUCCEEDED


def test_collect_brings_home_what_a_running_job_has_written(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(lasts=4))
    with pytest.raises(UsageError, match=f"run {run_id} has not started yet"):
        client.engine.collect(run_id)
    client.engine.drive([run_id], detach=True)
    run = client.engine.collect(run_id)
    log = client.store.folder(run_id) / "attempt-1" / "node-0" / "rank-0.log"
    assert run.phase is Phase.RUNNING
    assert log.read_text() == "step 0\n"
    assert len(client.small.things) == 4
    while not run.finished:
        run = client.engine.collect(run_id)
    assert log.read_text() == "".join(f"step {step}\n" for step in range(5))
    assert_over(client, run)


def test_a_poll_without_a_drive_journals_nothing(tmp_path: Path) -> None:
    client = Client(tmp_path)
    run_ids = client.submit(small_plans(2, lasts=3))
    client.engine.drive(run_ids, detach=True)
    runs = [client.store.load(run_id) for run_id in run_ids]
    statuses = client.engine.poll(runs)
    assert {run_id: status.vendor_state for run_id, status in statuses.items()} == dict.fromkeys(run_ids, "Running")
    assert [client.store.load(run_id) for run_id in run_ids] == runs


def test_a_preempted_run_begins_anew_once_its_first_attempt_is_home_and_gone(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(lasts=1, preempts=1))
    (run,) = client.engine.drive([run_id])
    assert (run.outcome, run.attempt) == (Outcome.SUCCEEDED, 2)
    (lost,) = run.attempts
    assert (lost.number, lost.status.outcome) == (1, Outcome.PREEMPTED)
    assert lost.status.reason == "the machines were taken back"
    assert collected(client, run_id) == [f"attempt-{n}/node-0/rank-0.log" for n in (1, 2)]
    phases = [event.phase for _, event in client.events if isinstance(event, PhaseEntered)]
    assert phases == [*list(Phase)[1:-1], *list(Phase)[1:]]
    assert [event for _, event in client.events if isinstance(event, AttemptBegan)] == [AttemptBegan(number=2)]
    assert_over(client, run)


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_run_that_is_always_preempted_has_as_many_attempts_as_its_plan_allows(tmp_path: Path, retries: int) -> None:
    client = Client(tmp_path)
    (run,) = client.engine.drive(client.submit(small_plans(lasts=1, preempts=100, retries=retries)))
    assert (run.outcome, run.attempt) == (Outcome.PREEMPTED, retries + 1)
    assert [attempt.number for attempt in run.lost] == list(range(1, retries + 2))
    assert_over(client, run)


def test_an_attempt_that_ends_otherwise_is_the_last_one(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run,) = client.engine.drive(client.submit(small_plans(lasts=1, preempts=1, ends="failed", retries=3)))
    assert (run.outcome, run.attempt) == (Outcome.FAILED, 2)
    assert_over(client, run)


def test_the_money_of_a_preempted_attempt_is_counted_until_its_job_ended(tmp_path: Path) -> None:
    client = Client(tmp_path)
    plans = small_plans(lasts=4, preempts=1, slow_release=10)
    (run_id,) = client.submit(tuple(msgspec.structs.replace(plan, usd_per_hour=3.6) for plan in plans))
    (run,) = client.engine.drive([run_id])
    (lost,) = run.lost
    assert lost.duration_s == 3 * SmallProvider.poll_interval_s
    assert lost.lost_usd == pytest.approx(0.001 * lost.duration_s)


def test_a_preempted_run_waits_for_its_turn_again(tmp_path: Path) -> None:
    client = Client(tmp_path, capacity=1)
    run_ids = client.submit(small_plans(2, lasts=1, preempts=1))
    runs = client.engine.drive(run_ids)
    assert [(run.outcome, run.attempt) for run in runs] == [(Outcome.SUCCEEDED, 2)] * 2
    existing: set[str] = set()
    for entry in client.small.ledger:
        what, _, thing = entry.rpartition(" ")
        if what.startswith("make "):
            existing.add(thing)
        elif what == "release":
            existing.discard(thing)
        assert len({name.rsplit(".", 1)[0] for name in existing}) <= 1
    for run in runs:
        assert_over(client, run)


@pytest.mark.parametrize("phase", [Phase.COLLECTING, Phase.RELEASING])
def test_a_run_that_is_cancelled_after_its_preemption_does_not_begin_anew(tmp_path: Path, phase: Phase) -> None:
    def cancel(run: Run, event: Event) -> None:
        if isinstance(event, PhaseEntered) and event.phase is phase:
            client.store.append(run.id, CancelRequested(reason="not needed"), at=0.0)

    client = Client(tmp_path, notice=cancel)
    (run,) = client.engine.drive(client.submit(small_plans(lasts=1, preempts=1)))
    assert (run.outcome, run.attempt, run.cancel_reason) == (Outcome.PREEMPTED, 1, "not needed")
    assert_over(client, run)


def test_a_cancel_that_comes_as_the_next_attempt_begins_ends_it_before_it_makes_anything(tmp_path: Path) -> None:
    def cancel(run: Run, event: Event) -> None:
        if isinstance(event, AttemptBegan):
            client.store.append(run.id, CancelRequested(reason="not needed"), at=0.0)

    client = Client(tmp_path, notice=cancel)
    (run,) = client.engine.drive(client.submit(small_plans(lasts=1, preempts=1)))
    assert (run.outcome, run.attempt) == (Outcome.CANCELLED, 2)
    assert not [entry for entry in client.small.ledger if f"{run.id}.2." in entry]
    assert_over(client, run)


def test_a_preempted_job_that_was_to_be_cancelled_is_cancelled(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(lasts=1, preempts=1, refuses="stop"))
    client.engine.drive([run_id], detach=True)
    run = client.engine.cancel(run_id, reason="not needed")
    assert (run.outcome, run.attempt) == (Outcome.CANCELLED, 1)
    assert_over(client, run)


def test_collect_begins_no_attempt(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(lasts=1, preempts=1))
    client.engine.drive([run_id], detach=True)
    run = client.engine.collect(run_id)
    assert (run.phase, run.attempt, run.handles) == (Phase.PLANNED, 2, ())
    assert collected(client, run_id) == ["attempt-1/node-0/rank-0.log"]
    assert client.small.things == []
    with pytest.raises(UsageError, match=f"attempt 2 of run {run_id} has not started yet"):
        client.engine.collect(run_id)
    (run,) = client.engine.drive([run_id])
    assert (run.outcome, run.attempt) == (Outcome.SUCCEEDED, 2)
    assert_over(client, run)


def test_files_that_went_with_the_machines_do_not_keep_the_run_from_beginning_anew(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run,) = client.engine.drive(client.submit(small_plans(lasts=1, preempts=1, refuses="collect 1")))
    assert (run.outcome, run.attempt, run.lost_files) == (Outcome.SUCCEEDED, 2, (1,))
    assert run.attempts[0].files_lost == "collect was refused — the plan says so"
    assert sum(client.clock.slept) > PATIENCE_S
    assert collected(client, run.id) == ["attempt-2/node-0/rank-0.log"]
    assert_over(client, run)


def test_files_of_a_preempted_attempt_are_asked_for_again_before_they_are_given_up(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(lasts=1, preempts=1, refuses="collect 1"))

    def heal() -> None:
        if len(client.clock.slept) == 3:
            thing = tmp_path / "things" / f"{run_id}.1.job"
            thing.write_text(thing.read_text().replace('"collect 1"', '""'))

    client.clock.at_sleep = heal
    (run,) = client.engine.drive([run_id])
    assert (run.outcome, run.lost_files) == (Outcome.SUCCEEDED, ())
    assert_over(client, run)


def test_files_of_the_last_attempt_are_not_given_up(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(lasts=1, preempts=2, refuses="collect 2"))
    with pytest.raises(CloudbenchError, match="its files could not be brought home; nothing was released"):
        client.engine.drive([run_id])
    run = client.store.load(run_id)
    assert (run.phase, run.attempt, run.lost_files) == (Phase.COLLECTING, 2, ())
    assert len(client.small.things) == 4


def test_a_run_whose_files_cannot_be_brought_home_can_be_released_all_the_same(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(lasts=1, refuses="collect"))
    for drive in (client.engine.drive, lambda run_ids: client.engine.cancel(run_ids[0], reason="not needed")):
        with pytest.raises(CloudbenchError, match="could not be brought home"):
            drive([run_id])
    run = client.engine.cancel(run_id, reason="not needed", release_anyway=True)
    assert (run.outcome, run.lost_files) == (Outcome.SUCCEEDED, (1,))
    assert [event for _, event in client.events if isinstance(event, FilesLost)] == [
        FilesLost(reason="collect was refused — the plan says so")
    ]
    assert_over(client, run)


def test_released_all_the_same_does_not_mean_that_files_are_left_behind(tmp_path: Path) -> None:
    client = Client(tmp_path)
    (run_id,) = client.submit(small_plans(lasts=1000))
    client.engine.drive([run_id], detach=True)
    run = client.engine.cancel(run_id, reason="not needed", release_anyway=True)
    assert (run.outcome, run.lost_files) == (Outcome.CANCELLED, ())
    assert_over(client, run)


@pytest.mark.parametrize("preempts", [0, 1])
def test_a_release_all_the_same_survives_the_death_of_its_client(tmp_path: Path, preempts: int) -> None:
    for number in range(20):
        folder = tmp_path / str(number)
        client = Client(folder)
        (run_id,) = client.submit(small_plans(lasts=1, preempts=preempts, retries=0, refuses="collect"))
        with pytest.raises(CloudbenchError):
            client.engine.drive([run_id])
        client.store.close()
        dying = Nth(number, Died)
        client = Client(folder, observe=dying.moment, notice=dying.moment)
        with contextlib.suppress(Died):
            client.engine.cancel(run_id, reason="not needed", release_anyway=True)
        client.store.close()
        client = Client(folder)
        (run,) = client.engine.drive([run_id])
        assert run.lost_files == (1,)
        assert_over(client, run)
        client.store.close()


def test_each_event_is_told_after_it_was_journalled(tmp_path: Path) -> None:
    told: list[bool] = []

    def notice(run: Run, event: Event) -> None:
        journal = Store(tmp_path / "home")
        told.append(journal.load(run.id) == run)
        journal.close()

    client = Client(tmp_path, notice=notice)
    client.engine.drive(client.submit(small_plans()))
    handles = [event for _, event in client.events if isinstance(event, (HandleIntended, HandleReleased))]
    assert told == [True] * len(client.events)
    assert len(handles) == 8
