"""What a journal says of a run: the events, applied one after the other."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cloudbench.run import (
    EXIT_CODES,
    CancelRequested,
    Ended,
    Event,
    Handle,
    HandleIntended,
    HandleReleased,
    Outcome,
    Phase,
    PhaseEntered,
    Run,
    Status,
    apply,
    replay,
)
from tests.small_provider import small_plans

(PLAN,) = small_plans()


def handle(name: str) -> Handle:
    return Handle(provider="p", service="s", kind="k", id=name, run=PLAN.id, attempt=1)


HANDLES = st.sampled_from("abc").map(handle)
STATUSES = st.builds(Status, outcome=st.sampled_from(Outcome), reason=st.none() | st.text(max_size=5))
EVENTS = st.one_of(
    st.builds(PhaseEntered, phase=st.sampled_from(Phase)),
    st.builds(HandleIntended, handle=HANDLES),
    st.builds(HandleReleased, handle=HANDLES),
    st.builds(CancelRequested, reason=st.text(max_size=5)),
    st.builds(Ended, status=STATUSES),
)
JOURNALS = st.lists(st.tuples(st.floats(0, 2e9), EVENTS), max_size=20)


def test_a_new_run_is_planned_and_has_nothing() -> None:
    run = replay(PLAN, [])
    assert run == Run(plan=PLAN)
    assert (run.id, run.phase, run.attempt, run.handles) == (PLAN.id, Phase.PLANNED, 1, ())
    assert (run.outcome, run.cancel_reason, run.finished) == (None, None, False)


@given(journal=JOURNALS)
def test_the_phase_is_the_last_one_entered_and_knows_when(journal: list[tuple[float, Event]]) -> None:
    run = replay(PLAN, journal)
    entered = [(event.phase, at) for at, event in journal if isinstance(event, PhaseEntered)]
    assert run.phase is (entered[-1][0] if entered else Phase.PLANNED)
    assert run.entered_at == dict(entered)
    assert run.finished == (run.phase is Phase.RELEASED)


@given(journal=JOURNALS)
def test_the_first_end_and_the_first_reason_decide(journal: list[tuple[float, Event]]) -> None:
    run = replay(PLAN, journal)
    ends = [event.status for _, event in journal if isinstance(event, Ended)]
    assert run.status == (ends[0] if ends else None)
    assert run.outcome == (ends[0].outcome if ends else None)
    reasons = [event.reason for _, event in journal if isinstance(event, CancelRequested) and event.reason]
    assert (run.cancel_reason or None) == (reasons[0] if reasons else None)


@given(journal=JOURNALS)
def test_the_handles_are_those_intended_and_not_seen_gone_since(journal: list[tuple[float, Event]]) -> None:
    run = replay(PLAN, journal)
    last: dict[Handle, Event] = {}
    for _, event in journal:
        if isinstance(event, (HandleIntended, HandleReleased)):
            last[event.handle] = event
    assert set(run.handles) == {thing for thing, event in last.items() if isinstance(event, HandleIntended)}
    assert len(run.handles) == len(set(run.handles))


def test_the_oldest_handle_comes_first_however_often_it_is_intended() -> None:
    intended = [HandleIntended(handle=handle(name)) for name in ("a", "b", "a", "c", "b")]
    run = replay(PLAN, [(0.0, event) for event in intended])
    assert [thing.id for thing in run.handles] == ["a", "b", "c"]


@given(journal=JOURNALS, cut=st.integers(0, 20))
def test_a_journal_can_be_read_in_pieces(journal: list[tuple[float, Event]], cut: int) -> None:
    run = replay(PLAN, journal[:cut])
    for at, event in journal[cut:]:
        run = apply(run, event, at)
    assert run == replay(PLAN, journal)


@given(journal=JOURNALS)
def test_an_event_changes_no_run_that_was_there_before(journal: list[tuple[float, Event]]) -> None:
    run = Run(plan=PLAN)
    for at, event in journal:
        before = msgspec.json.encode(run)
        after = apply(run, event, at)
        assert msgspec.json.encode(run) == before
        run = after


@given(event=EVENTS)
def test_an_event_comes_back_from_the_disk_as_it_was(event: Event) -> None:
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event


def test_a_job_has_ended_when_it_has_an_outcome() -> None:
    assert not Status(vendor_state="Running").ended
    assert all(Status(outcome=outcome).ended for outcome in Outcome)


def test_every_outcome_has_an_exit_code_and_only_success_is_zero() -> None:
    assert set(EXIT_CODES) == set(Outcome)
    assert [outcome for outcome, code in EXIT_CODES.items() if code == 0] == [Outcome.SUCCEEDED]
