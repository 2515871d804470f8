"""A run's throughput: what stands, what is scaled up, and what is no result."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudbench.parsers import merge_ranks, parse
from cloudbench.results.measurement import Result, RunRecord, measure
from cloudbench.run import Outcome, Phase
from tests.results.runs import parsed, record, records, tf_cnn_log

TOTALS = st.lists(st.integers(1, 10**7).map(lambda hundredths: hundredths / 100), min_size=1, max_size=8)


def test_totals_that_every_rank_printed_are_not_summed() -> None:
    result = measure(record(log=parsed(209.86, 209.86, 209.87, 209.86), nodes=2, gpus_per_node=2))
    assert (result.status, result.throughput, result.unit) == ("ok", 209.86, "images/sec")
    assert result.throughput_per_gpu == pytest.approx(209.86 / 4)


def test_the_spread_over_ranks_is_that_of_what_they_printed() -> None:
    spread = measure(record(log=parsed(209.86, 209.87, 209.86))).spread
    assert spread is not None
    assert (spread.kind, spread.over, spread.scope, spread.count) == ("range", "ranks", "job", 3)
    assert (spread.low, spread.high) == (209.86, 209.87)


def test_one_rank_has_no_spread() -> None:
    assert measure(record(log=parsed(56.57))).spread is None


@given(totals=TOTALS, data=st.data())
def test_the_order_in_which_ranks_print_changes_nothing(totals: list[float], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(totals))
    assert _from_one_log(totals) == _from_one_log(shuffled)


@given(totals=TOTALS, data=st.data())
def test_the_order_of_the_ranks_files_changes_nothing(totals: list[float], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(totals))
    assert _from_one_log_a_rank(totals) == _from_one_log_a_rank(shuffled)


@given(total=st.integers(1, 10**7), ranks=st.integers(1, 8))
def test_one_more_rank_with_the_same_total_changes_no_throughput(total: int, ranks: int) -> None:
    assert (
        _from_one_log([total / 100] * (ranks + 1)).throughput == _from_one_log([total / 100]).throughput == total / 100
    )


def test_independent_processes_are_summed_and_the_row_says_so() -> None:
    result = measure(record(log=parsed(10.0, 11.0, scope="process", processes=2), independent=True))
    assert result.throughput == 21.0
    assert result.warnings == ("the sum of 2 independent processes, which exchanged nothing",)


def test_processes_that_trained_together_are_not_summed() -> None:
    result = measure(record(log=parsed(10.0, 11.0, scope="process", processes=2)))
    assert (result.status, result.throughput) == ("no-result", None)
    assert result.reason == (
        "the log tells the figures of single processes, none of the whole job; "
        "printed: 10.00, 11.00 images/sec (process)"
    )


def test_independent_processes_are_not_summed_while_one_is_missing() -> None:
    result = measure(record(log=parsed(10.0, 11.0, scope="process", processes=3), independent=True))
    assert result.throughput is None
    assert result.reason is not None
    assert result.reason.startswith("2 of 3 independent processes printed a figure")


def test_a_total_of_fewer_ranks_than_were_started_is_not_the_jobs() -> None:
    result = measure(record(log=parsed(10.0, processes=1), ranks=2))
    assert (result.status, result.throughput) == ("no-result", None)
    assert result.reason == "the log tells of 1 of 2 ranks; printed: 10.00 images/sec (job)"
    assert measure(record(log=parsed(20.0, processes=2), ranks=2)).throughput == 20.0


def test_a_single_process_is_the_whole_job() -> None:
    assert measure(record(log=parsed(10.0, scope="process", processes=1))).throughput == 10.0


def test_the_figure_of_one_gpu_is_multiplied_by_the_gpus_and_the_row_says_so() -> None:
    result = measure(record(log=parsed(30.5, 30.5, scope="gpu", gpus=4), nodes=2, gpus_per_node=2))
    assert (result.throughput, result.throughput_per_gpu) == (122.0, 30.5)
    assert result.warnings == ("the figure of one GPU times 4 GPUs",)


@pytest.mark.parametrize(("in_log", "nodes"), [(4, 1), (None, None)])
def test_the_figure_of_one_gpu_stays_one_where_their_number_is_not_certain(
    in_log: int | None, nodes: int | None
) -> None:
    result = measure(record(log=parsed(30.5, scope="gpu", gpus=in_log), nodes=nodes))
    assert (result.status, result.throughput) == ("no-result", None)
    assert "30.50 images/sec (gpu)" in (result.reason or "")


def test_a_log_that_tells_of_other_gpus_than_the_setup_is_pointed_out() -> None:
    result = measure(record(log=parsed(100.0, gpus=2), nodes=2, gpus_per_node=2))
    assert (result.throughput, result.throughput_per_gpu) == (100.0, 25.0)
    assert result.warnings == ("the log tells of 2 GPUs, the setup of 4",)


def test_without_a_number_of_gpus_there_is_no_figure_per_gpu() -> None:
    result = measure(record(log=parsed(100.0), nodes=None))
    assert (result.throughput, result.throughput_per_gpu) == (100.0, None)


def test_the_parsers_warnings_reach_the_result() -> None:
    assert measure(record(log=parsed(1.0, warnings=("weights differ",)))).warnings == ("weights differ",)


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.SUCCEEDED])
def test_what_an_unsuccessful_run_printed_stands_for_nothing_and_stays_visible(outcome: Outcome) -> None:
    result = measure(record(log=parsed(56.57), outcome=outcome, reason="rank 1 exited with code 3"))
    assert (result.status, result.throughput, result.throughput_per_gpu) == (outcome.value, None, None)
    assert result.reason == "rank 1 exited with code 3; printed: 56.57 images/sec (job)"


def test_a_run_that_goes_on_has_no_result_yet() -> None:
    result = measure(record(log=parsed(56.57), outcome=None, phase=Phase.RUNNING))
    assert (result.status, result.throughput) == ("running", None)
    assert result.reason == "the run has not ended; printed: 56.57 images/sec (job)"


def test_a_plain_log_has_no_outcome_and_its_total_stands() -> None:
    assert measure(record(log=parsed(56.57), outcome=None)).throughput == 56.57


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (record(), "there is no log"),
        (record(reason="no log in here"), "no log in here"),
        (record(log=parsed(reason="no total: the log ends at step 20")), "no total: the log ends at step 20"),
        (record(log=parsed()), "the log holds no throughput"),
        (record(log=parsed(0.0)), "the program failed to measure; printed: 0.00 images/sec (job)"),
        (record(log=parsed(1.0, math.nan)), "the program failed to measure; printed: 1.00, nan images/sec (job)"),
        (record(log=parsed(math.inf)), "the program failed to measure; printed: inf images/sec (job)"),
    ],
)
def test_no_result_has_a_reason_and_is_never_0(run: RunRecord, reason: str) -> None:
    result = measure(run)
    assert (result.status, result.throughput, result.throughput_per_gpu) == ("no-result", None, None)
    assert result.reason == reason


@given(run=records())
def test_a_result_is_a_plausible_number_or_a_reason(run: RunRecord) -> None:
    result = measure(run)
    if result.throughput is None:
        assert result.reason
        assert result.throughput_per_gpu is None
        assert result.status != "ok"
    else:
        assert result.status == "ok"
        assert result.reason is None
        assert 0 < result.throughput < math.inf


def _from_one_log(totals: list[float]) -> Result:
    (run,) = parse([tf_cnn_log(totals)]).runs
    return measure(record(log=run))


def _from_one_log_a_rank(totals: list[float]) -> Result:
    (run,) = merge_ranks([parse([tf_cnn_log([total])]) for total in totals]).runs
    return measure(record(log=run))
