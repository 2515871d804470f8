"""What a journal says of a run: the events, applied one after the other."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cloudbench.plan import RunPlan
from cloudbench.run import (
    EXIT_CODES,
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
ONE_ATTEMPT = st.one_of(
    st.builds(PhaseEntered, phase=st.sampled_from(Phase)),
    st.builds(HandleIntended, handle=HANDLES),
    st.builds(HandleReleased, handle=HANDLES),
    st.builds(CancelRequested, reason=st.text(max_size=5), release_anyway=st.booleans()),
    st.builds(Ended, status=STATUSES),
    st.builds(FilesLost, reason=st.text(min_size=1, max_size=5)),
)
EVENTS = ONE_ATTEMPT | st.builds(AttemptBegan, number=st.integers(2, 9))
TIMES = st.floats(0, 2e9)
JOURNALS = st.lists(st.tuples(TIMES, EVENTS), max_size=20)
JOURNALS_OF_ONE_ATTEMPT = st.lists(st.tuples(TIMES, ONE_ATTEMPT), max_size=20)
PREEMPTED = Ended(status=Status(outcome=Outcome.PREEMPTED, reason="taken back"))


def preempted(plan: RunPlan = PLAN, *, entered: dict[Phase, float], more: tuple[Event, ...] = ()) -> Run:
    """A run whose attempt was preempted, and another attempt begun."""
    journal: list[tuple[float, Event]] = [(at, PhaseEntered(phase=phase)) for phase, at in entered.items()]
    return replay(plan, [*journal, (0.0, PREEMPTED), *((0.0, event) for event in more), (9e9, AttemptBegan(number=2))])


def test_a_new_run_is_planned_and_has_nothing() -> None:
    run = replay(PLAN, [])
    assert run == Run(plan=PLAN)
    assert (run.id, run.phase, run.attempt, run.handles) == (PLAN.id, Phase.PLANNED, 1, ())
    assert (run.outcome, run.cancel_reason, run.finished) == (None, None, False)


@given(journal=JOURNALS_OF_ONE_ATTEMPT)
def test_the_phase_is_the_last_one_entered_and_knows_when(journal: list[tuple[float, Event]]) -> None:
    run = replay(PLAN, journal)
    entered = [(event.phase, at) for at, event in journal if isinstance(event, PhaseEntered)]
    assert run.phase is (entered[-1][0] if entered else Phase.PLANNED)
    assert run.entered_at == dict(entered)
    assert run.finished == (run.phase is Phase.RELEASED)


@given(journal=JOURNALS_OF_ONE_ATTEMPT)
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


@given(earlier=JOURNALS, later=JOURNALS_OF_ONE_ATTEMPT)
def test_an_attempt_begins_with_nothing_of_the_last_one_but_what_exists_and_what_was_asked_for(
    earlier: list[tuple[float, Event]], later: list[tuple[float, Event]]
) -> None:
    before = replay(PLAN, earlier)
    run = replay(PLAN, [*earlier, (0.0, AttemptBegan(number=9))])
    assert (run.attempt, run.phase, run.status, run.entered_at) == (9, Phase.PLANNED, None, {})
    assert (run.handles, run.cancel_reason) == (before.handles, before.cancel_reason)
    assert run.release_anyway == before.release_anyway
    assert run.attempts[:-1] == before.attempts
    assert run.attempts[-1].status == (before.status or Status())
    for at, event in later:
        run = apply(run, event, at)
    assert len(run.attempts) == len(before.attempts) + 1


def test_an_attempt_that_was_preempted_is_followed_by_another_while_the_plan_allows_it() -> None:
    def begins_anew(retries: int, *more: Event) -> bool:
        plan = msgspec.structs.replace(PLAN, retries=retries)
        return replay(plan, [(0.0, event) for event in (*more, PREEMPTED)]).begins_anew

    second = AttemptBegan(number=2)
    assert (begins_anew(0), begins_anew(1)) == (False, True)
    assert (begins_anew(1, second), begins_anew(2, second)) == (False, True)
    assert not begins_anew(1, CancelRequested(reason="cancelled"))
    for outcome in set(Outcome) - {Outcome.PREEMPTED}:
        assert not replay(PLAN, [(0.0, Ended(status=Status(outcome=outcome)))]).begins_anew


def test_the_time_and_the_money_of_an_attempt_are_counted_from_its_provisioning_to_its_end() -> None:
    plan = msgspec.structs.replace(PLAN, usd_per_hour=2.0)
    entered = {Phase.PROVISIONING: 100.0, Phase.RUNNING: 300.0, Phase.COLLECTING: 1900.0, Phase.RELEASING: 5000.0}
    (lost,) = preempted(plan, entered=entered).attempts
    assert (lost.number, lost.duration_s, lost.lost_usd, lost.lost_usd_reason) == (1, 1800.0, 1.0, None)
    assert (lost.status.outcome, lost.status.reason) == (Outcome.PREEMPTED, "taken back")


def test_an_attempt_whose_end_was_seen_late_ran_no_longer_than_its_limit() -> None:
    plan = msgspec.structs.replace(PLAN, timeout_s=600.0)
    entered = {Phase.PROVISIONING: 100.0, Phase.RUNNING: 300.0, Phase.COLLECTING: 1e6}
    (lost,) = preempted(plan, entered=entered).attempts
    assert lost.duration_s == 800.0


def test_a_clock_that_was_set_back_takes_no_money_back() -> None:
    plan = msgspec.structs.replace(PLAN, usd_per_hour=2.0)
    (lost,) = preempted(plan, entered={Phase.PROVISIONING: 500.0, Phase.COLLECTING: 100.0}).attempts
    assert (lost.duration_s, lost.lost_usd) == (0.0, 0.0)


def test_money_that_is_not_known_is_none_with_its_reason() -> None:
    (unpriced,) = preempted(entered={Phase.PROVISIONING: 100.0, Phase.COLLECTING: 200.0}).attempts
    assert (unpriced.duration_s, unpriced.lost_usd) == (100.0, None)
    assert unpriced.lost_usd_reason == "no hourly price is known for this setup"
    (untimed,) = preempted(msgspec.structs.replace(PLAN, usd_per_hour=2.0), entered={}).attempts
    assert (untimed.duration_s, untimed.lost_usd) == (None, None)
    assert untimed.lost_usd_reason == "how long it ran is not known"


def test_the_last_attempt_is_lost_as_well_where_it_was_preempted() -> None:
    run = preempted(entered={})
    assert [attempt.number for attempt in run.lost] == [1]
    assert [attempt.number for attempt in apply(run, PREEMPTED, 0.0).lost] == [1, 2]
    assert [attempt.number for attempt in apply(run, Ended(status=Status(outcome=Outcome.FAILED)), 0.0).lost] == [1]


def test_lost_files_are_known_by_the_attempts_that_wrote_them() -> None:
    gone = FilesLost(reason="gone")
    run = preempted(entered={}, more=(gone,))
    assert (run.files_lost, run.lost_files, run.attempts[0].files_lost) == (None, (1,), "gone")
    assert apply(run, gone, 0.0).lost_files == (1, 2)
    assert apply(preempted(entered={}), gone, 0.0).lost_files == (2,)
    assert preempted(entered={}).lost_files == ()


def test_a_cancel_of_an_older_version_does_not_release_anyway() -> None:
    event = msgspec.json.decode(b'{"type": "cancel", "reason": "cancelled"}', type=Event)
    assert event == CancelRequested(reason="cancelled", release_anyway=False)
