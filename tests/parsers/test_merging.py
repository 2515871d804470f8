from __future__ import annotations

import msgspec

from cloudbench.parsers import ParsedLog, merge_ranks, parse
from tests.parsers.logs import HEADER, banner, horovod_synthetic, one_process, step, total


def horovod_rank(rate: float = 209.86, *, last: float = 52.5, weights: str = "a") -> ParsedLog:
    devices = [f"horovod/gpu:{rank}" for rank in range(4)]
    text = banner(processes=4, devices=devices, variable_update="horovod") + HEADER + step(10, last) + step(30, last)
    return parse([(text + total(rate) + f"weights sha256: {weights * 64}\n").encode()])


def test_every_rank_prints_the_jobs_total_and_they_are_not_summed():
    log = merge_ranks([horovod_rank(209.86), horovod_rank(209.86), horovod_rank(209.87), horovod_rank(209.86)])
    [run] = log.runs
    assert (log.status, run.throughput, run.scope) == ("ok", 209.86, "job")
    assert run.printed == (209.86, 209.86, 209.87, 209.86)
    assert (run.processes, run.gpus, run.steps, run.warnings) == (4, 4, 30, ())


def test_different_weights_in_different_logs():
    [run] = merge_ranks([horovod_rank(), horovod_rank(weights="b"), horovod_rank(), horovod_rank()]).runs
    assert run.warnings == ("ranks ended with different weights: gradients were not exchanged",)


def test_a_rank_that_died_is_told_and_the_others_total_stands():
    dead = parse([(banner() + HEADER + step(10, 52.5)).encode()])
    [run] = merge_ranks([horovod_rank(), dead]).runs
    assert run.throughput == 209.86
    assert any(warning.startswith("1 of 2 logs give no figure: no total") for warning in run.warnings)


def test_logs_of_independent_processes_stay_at_process_scope():
    logs = [parse([one_process(rate).encode()]) for rate in (100, 110, 120)]
    [run] = merge_ranks(logs).runs
    assert (run.throughput, run.scope, run.printed) == (110, "process", (100, 110, 120))
    assert (run.processes, run.gpus) == (3, 3)
    assert "3 independent jobs, one a process: every figure is one process's" in run.warnings


def test_silent_ranks_take_no_part():
    log = merge_ranks([parse([horovod_synthetic(2).encode()]), parse([b"I am rank 1\n"])])
    assert (log.format, log.runs[0].throughput, log.runs[0].processes) == ("horovod_synthetic", 200, 2)


def test_observations_of_all_ranks_are_kept():
    logs = [parse([one_process().encode()], observations=True) for _ in range(2)]
    [run] = merge_ranks(logs).runs
    assert len(run.observations) == sum(len(log.runs[0].observations) for log in logs) == 8


def test_without_observations_asked_for_there_are_none_to_merge():
    [run] = merge_ranks([parse([one_process().encode()]) for _ in range(2)]).runs
    assert run.observations is msgspec.UNSET


def test_without_any_result_the_reason_stays():
    dead = parse([(banner() + HEADER + step(10, 52.5)).encode()])
    log = merge_ranks([dead, dead])
    assert (log.status, log.reason) == ("no-result", dead.reason)


def test_no_log_at_all():
    assert (merge_ranks([]).status, merge_ranks([]).runs) == ("no-result", ())
