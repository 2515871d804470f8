"""What a row says of the attempts that it took."""

from __future__ import annotations

from typing import Any

import pytest

from cloudbench.results.measurement import RunRecord
from cloudbench.results.summary import Row, summarize
from cloudbench.run import Attempt, Outcome, Status
from tests.results.runs import parsed, record


def lost(number: int, usd: float | None = 0.06, reason: str | None = None) -> Attempt:
    status = Status(outcome=Outcome.PREEMPTED)
    return Attempt(number=number, status=status, duration_s=60.0, lost_usd=usd, lost_usd_reason=reason)


def run(**fields: Any) -> RunRecord:
    return record(log=parsed(5.0), **fields)


def row(*records: RunRecord) -> Row:
    (only,) = summarize(records).rows
    return only


def test_a_run_that_came_through_at_once_lost_nothing_and_says_nothing() -> None:
    only = row(run(attempts=1, note="mine"))
    assert (only.attempts, only.lost_usd, only.note) == (1, 0.0, "mine")


def test_logs_of_which_nothing_else_is_known_have_no_attempts() -> None:
    only = row(run())
    assert (only.attempts, only.lost_usd, only.note) == (None, None, None)


@pytest.mark.parametrize(
    ("fields", "lost_usd", "note"),
    [
        ({"attempts": 2, "lost": (lost(1, 0.1234),)}, 0.1234, "2 attempts, 0.12 USD lost"),
        ({"attempts": 3, "lost": (lost(1), lost(2))}, 0.12, "3 attempts, 0.12 USD lost"),
        ({"attempts": 1, "lost": (lost(1),)}, 0.06, "1 attempt, 0.06 USD lost"),
        ({"attempts": 2, "lost": (lost(1, 0.0),)}, 0.0, "2 attempts, 0.00 USD lost"),
        (
            {"attempts": 3, "lost": (lost(1), lost(2, None, "no hourly price"))},
            None,
            "3 attempts, USD lost not known: no hourly price",
        ),
        (
            {"attempts": 2, "lost": (lost(1),), "lost_logs": (1,)},
            0.06,
            "2 attempts, 0.06 USD lost, logs of attempt 1 lost",
        ),
        ({"attempts": 3, "lost_logs": (1, 3)}, 0.0, "logs of attempts 1, 3 lost"),
    ],
)
def test_what_was_lost_is_in_the_row_and_told_in_its_note(
    fields: dict[str, Any], lost_usd: float | None, note: str
) -> None:
    only = row(run(**fields))
    assert (only.attempts, only.note) == (fields["attempts"], note)
    assert only.lost_usd == (None if lost_usd is None else pytest.approx(lost_usd))


def test_a_note_of_ones_own_comes_first() -> None:
    assert row(run(note="mine", attempts=2, lost=(lost(1),))).note == "mine; 2 attempts, 0.06 USD lost"


def test_a_run_without_a_figure_tells_of_its_attempts_as_well() -> None:
    only = row(run(outcome=Outcome.PREEMPTED, attempts=2, lost=(lost(1), lost(2))))
    assert (only.status, only.throughput, only.note) == ("preempted", None, "2 attempts, 0.12 USD lost")


def test_repeats_share_their_attempts_and_losses() -> None:
    repeats = [
        run(repeat=1, attempts=1),
        run(repeat=2, attempts=2, lost=(lost(1),), lost_logs=(1,)),
        run(repeat=3, attempts=2, lost=(lost(1),)),
    ]
    only = row(*repeats)
    assert (only.attempts, only.lost_usd) == (5, pytest.approx(0.12))
    assert only.note == "5 attempts of 3 runs, 0.12 USD lost, logs of attempt 1 of repeat 2 lost"
