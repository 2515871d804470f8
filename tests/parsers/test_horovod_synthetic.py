from __future__ import annotations

import pytest

from cloudbench.parsers import ParsedLog, parse
from tests.parsers.logs import horovod_synthetic


def read(text: str, *, observations: bool = False) -> ParsedLog:
    return parse([text.encode()], observations=observations)


def test_the_total_of_rank_0_is_the_jobs():
    log = read(horovod_synthetic(16, 40.9))
    [run] = log.runs
    assert (log.format, run.throughput, run.scope, run.printed) == ("horovod_synthetic", 654.4, "job", (654.4,))
    assert (run.processes, run.gpus, run.steps, run.warnings) == (16, 16, 10, ())
    assert (run.model, run.batch_size_per_device, run.batch_size_global) == ("ResNet50", 32, 512)


def test_spread_is_1_96_standard_deviations():
    [run] = read(horovod_synthetic(2, 1488.1), observations=True).runs
    mean, total = run.observations[-2:]
    assert (mean.value, mean.scope, mean.uncertainty, mean.uncertainty_kind) == (1488.1, "gpu", 2.2, "std95")
    assert (total.value, total.scope, total.uncertainty, total.uncertainty_kind) == (2976.2, "job", 4.3, "std95")


def test_iterations_are_windows_of_one_gpu():
    [run] = read(horovod_synthetic(), observations=True).runs
    assert [(seen.step, seen.scope, seen.kind) for seen in run.observations[:10]] == [
        (number, "gpu", "window") for number in range(10)
    ]


def test_a_mean_that_was_rounded_agrees_with_the_total():
    [run] = read("Img/sec per GPU: 40.9 +-1.3\nTotal img/sec on 16 GPU(s): 653.7 +-21.6\n").runs
    assert run.warnings == ()


def test_a_mean_that_does_not_fit_the_total_is_warned_about():
    [run] = read("Img/sec per GPU: 40.9 +-1.3\nTotal img/sec on 16 GPU(s): 600.0 +-21.6\n").runs
    assert run.warnings == ("the total, 600, and the mean of 16 processes, 654.4, do not agree",)


def test_a_port_in_which_every_rank_prints_gives_the_ranks_means():
    lines = [f"[127.0.0.1.1000{rank}::stdout] Img/sec per /gpu:0: {30.5 + rank / 10:.1f} +-2.2\n" for rank in range(4)]
    [run] = read("".join(lines)).runs
    assert (run.throughput, run.scope, run.printed) == (30.65, "gpu", (30.5, 30.6, 30.7, 30.8))
    assert (run.processes, run.gpus) == (4, 4)


def test_on_the_cpu_a_figure_is_a_process_s():
    text = "Iter #0: 5.0 img/sec per CPU\nImg/sec per CPU: 5.0 +-0.1\nTotal img/sec on 2 CPU(s): 10.0 +-0.2\n"
    [run] = read(text, observations=True).runs
    assert (run.throughput, run.processes, run.gpus) == (10.0, 2, 0)
    assert [seen.scope for seen in run.observations] == ["process", "process", "job"]


def test_runs_quoted_one_after_the_other():
    quoted = "".join(
        f"  horovodrun -np {gpus} python bench.py\n  # [1,0]<stdout>:Iter #{last}: 268.0 img/sec per GPU\n"
        f"  # [1,0]<stdout>:Total img/sec on {gpus} GPU(s): {total} +-9.7\n"
        for gpus, last, total in ((1, 4, 291.3), (1, 8, 277.2), (2, 6, 530.5), (2, 5, 526.6))
    )
    log = read(quoted)
    assert [(run.throughput, run.gpus) for run in log.runs] == [(291.3, 1), (277.2, 1), (530.5, 2), (526.6, 2)]


def test_without_a_summary_the_iterations_are_what_was_printed():
    [run] = read(horovod_synthetic(2, 100, iterations=range(4), summary=False)).runs
    assert (run.throughput, run.scope, run.printed) == (100, "gpu", (100, 100, 100, 100))
    assert run.warnings == ("no summary: each figure is that of one iteration",)


def test_tails_of_an_elastic_run_are_excerpts_whose_change_of_rate_is_told():
    tails = [(range(54, 64), 97), (range(76, 86), 64.4), (range(97, 106), 97.2)]
    text = "$ kubectl logs --tail 10\n".join(
        "".join(f"Tue Sep  8 09:24:20 2020[0]<stdout>:Iter #{number}: {rate} img/sec per GPU\n" for number in numbers)
        for numbers, rate in tails
    )
    log = read(text, observations=True)
    assert [run.throughput for run in log.runs] == [97, 64.4, 97.2]
    assert [run.steps for run in log.runs] == [64, 86, 106]
    assert [len(run.observations) for run in log.runs] == [10, 10, 9]
    assert "the rate went from 97 to 64.4: were workers added or removed?" in log.runs[1].warnings


def test_iterations_left_out_before_a_summary_do_not_split_the_run():
    text = (
        "Iter #0: 100.0 img/sec per GPU\n...\nIter #9: 100.0 img/sec per GPU\nTotal img/sec on 2 GPU(s): 200.0 +-1.0\n"
    )
    assert [run.throughput for run in read(text).runs] == [200]


def test_a_run_that_was_aborted_before_its_first_iteration():
    log = read(horovod_synthetic(16, iterations=range(0), summary=False) + "the job has been aborted.\n")
    assert (log.format, log.status, log.reason) == (
        "horovod_synthetic",
        "no-result",
        "the log ends before the first iteration",
    )
    assert (log.runs[0].gpus, log.runs[0].throughput) == (16, None)


@pytest.mark.parametrize(
    "cut", ["Total img/sec on 16 GPU(s): 65", "Img/sec per GPU: 4", "Iter #3: 10", "Iter #3: 10.0 img"]
)
def test_a_line_that_was_cut_gives_no_figure(cut):
    assert all(run.throughput is None for run in read(cut).runs)
