"""Rows: repeats together, and scaling against the smallest row of the same training."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudbench.results.measurement import RunRecord, Spread
from cloudbench.results.summary import Repeat, Row, summarize
from cloudbench.run import Outcome
from tests.results.runs import parsed, record, records


def test_a_setup_is_a_row_in_the_order_of_the_experiment() -> None:
    rows = summarize([record(name, log=parsed(1.0)) for name in ("test-2", "test-10", "test-1")]).rows
    assert [row.label for row in rows] == ["test-2", "test-10", "test-1"]


def test_repeats_are_one_row_with_their_median_and_their_range() -> None:
    (row,) = summarize(_repeats(100.0, 104.0, 90.0)).rows
    assert (row.run, row.status, row.throughput, row.throughput_per_gpu) == ("a", "ok", 100.0, 100.0)
    assert [(repeat.run, repeat.throughput) for repeat in row.repeats] == [
        ("a-r1", 100.0),
        ("a-r2", 104.0),
        ("a-r3", 90),
    ]
    assert row.spread == Spread(over="repeats", scope="job", count=3, low=90.0, high=104.0)
    assert row.duration_s == 60.0


def test_a_single_run_names_itself_and_shows_the_spread_of_its_ranks() -> None:
    (row,) = summarize([record(log=parsed(1.0, 2.0), run="a-6c2e")]).rows
    assert row.run == "a-6c2e"
    assert row.spread == Spread(over="ranks", scope="job", count=2, low=1.0, high=2.0)
    assert row.repeats == (Repeat(run="a-6c2e", throughput=1.5, status="ok", reason=None),)


def test_a_repeat_that_failed_is_left_out_and_told() -> None:
    lost = record("a", run="a-r2", repeat=2, outcome=Outcome.PREEMPTED, reason="the machine was taken back")
    (row,) = summarize([*_repeats(100.0), lost]).rows
    assert (row.status, row.throughput, row.spread) == ("ok", 100.0, None)
    assert [repeat.status for repeat in row.repeats] == ["ok", "preempted"]
    assert row.warnings == ("repeat 2: left out, preempted: the machine was taken back",)


def test_a_setup_whose_repeats_all_failed_has_a_reason_and_no_figure() -> None:
    failed = [record("a", repeat=number, outcome=Outcome.FAILED, reason="exit code 3") for number in (1, 2)]
    (row,) = summarize(failed).rows
    assert (row.status, row.reason) == ("failed", "exit code 3")
    assert (row.throughput, row.throughput_per_gpu, row.scaling_efficiency, row.spread) == (None, None, None, None)


def test_warnings_of_repeats_say_which_one_they_concern() -> None:
    strange = record("a", run="a-r2", repeat=2, log=parsed(100.0, warnings=("the loss is not finite",)))
    (row,) = summarize([*_repeats(100.0), strange]).rows
    assert row.warnings == ("repeat 2: the loss is not finite",)


def test_a_warning_that_several_repeats_share_is_told_once() -> None:
    runs = [
        record("a", run=f"a-r{number}", repeat=number, log=parsed(100.0, warnings=warnings))
        for number, warnings in enumerate([("inference",), (), ("inference", "the loss is not finite")], start=1)
    ]
    (row,) = summarize(runs).rows
    assert row.warnings == ("repeats 1, 3: inference", "repeat 3: the loss is not finite")


def test_a_reason_that_begins_with_the_outcome_is_not_told_behind_it() -> None:
    lost = record("a", run="a-r2", repeat=2, outcome=Outcome.CANCELLED, reason="cancelled")
    (row,) = summarize([*_repeats(100.0), lost]).rows
    assert row.warnings == ("repeat 2: left out, cancelled",)


def test_a_run_without_a_throughput_has_a_duration_all_the_same() -> None:
    failed = [record("a", repeat=number, outcome=Outcome.FAILED, duration_s=30.0 * number) for number in (1, 2)]
    (row,) = summarize([*failed, record("a", repeat=3, outcome=Outcome.FAILED)]).rows
    assert (row.status, row.duration_s) == ("failed", 45.0)


def test_a_run_that_is_named_twice_counts_once() -> None:
    (row,) = summarize([*_repeats(100.0), *_repeats(100.0)]).rows
    assert len(row.repeats) == 1


def test_scaling_is_the_figure_per_gpu_over_that_of_the_smallest_row() -> None:
    rows = summarize(
        [
            _training("four", 200.0, nodes=2, gpus_per_node=2),
            _training("one", 56.0),
            _training("two", 110.0, nodes=2),
        ]
    ).rows
    assert [row.scaling_efficiency for row in rows] == pytest.approx([200 / (56 * 4), 1.0, 110 / (56 * 2)])


@pytest.mark.parametrize(
    "other",
    [
        {"parameters": {"batch_size": 64}},
        {"template": "another"},
        {"experiment": "another"},
        {"hardware": "Tesla V100"},
        {"outcome": Outcome.FAILED},
        {"nodes": None},
    ],
)
def test_without_a_row_of_the_same_training_there_is_no_scaling(other: dict[str, Any]) -> None:
    rows = summarize([_training("one", 56.0), _training("two", 110.0, **{"nodes": 2, **other})]).rows
    assert [row.scaling_efficiency for row in rows] == [None, None]


def test_plain_logs_are_not_held_against_each_other() -> None:
    rows = summarize([record(name, log=parsed(1.0), outcome=None) for name in "ab"]).rows
    assert [row.scaling_efficiency for row in rows] == [None, None]


@given(runs=st.lists(records(), max_size=8))
def test_rows_hold_no_nan_no_infinity_and_no_0_for_what_is_missing(runs: list[RunRecord]) -> None:
    rows = summarize(runs).rows
    assert len(rows) == len({run.group for run in runs})
    for row in rows:
        assert all(math.isfinite(number) for number in _numbers(msgspec.to_builtins(row)))
        assert row.throughput is None or row.throughput > 0
        assert (row.throughput is None) == (row.status != "ok") == bool(row.reason)


@given(runs=st.lists(records(), max_size=8, unique_by=lambda run: (run.group, run.repeat)), data=st.data())
def test_the_order_of_runs_changes_no_row(runs: list[RunRecord], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(runs))
    assert _by_group(runs) == _by_group(shuffled)


def _repeats(*throughputs: float) -> list[RunRecord]:
    return [
        record("a", run=f"a-r{number}", repeat=number, log=parsed(throughput), duration_s=60.0)
        for number, throughput in enumerate(throughputs, start=1)
    ]


def _training(label: str, throughput: float, **fields: Any) -> RunRecord:
    values = {"experiment": "x", "template": "t", "parameters": {"batch_size": 32}, **fields}
    return record(label, log=parsed(throughput), **values)


def _by_group(runs: list[RunRecord]) -> dict[str, Row]:
    """Rows by their groups; without scaling, whose base is the first of several smallest rows."""
    groups = dict.fromkeys(run.group for run in runs)
    rows = (msgspec.structs.replace(row, scaling_efficiency=None) for row in summarize(runs).rows)
    return dict(zip(groups, rows, strict=True))


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, dict):
        yield from _numbers(list(value.values()))
    elif isinstance(value, (int, float)):
        yield value
