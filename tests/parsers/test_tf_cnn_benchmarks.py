from __future__ import annotations

import pytest

from cloudbench.parsers import ParsedLog, ParsedRun, parse
from tests.parsers.logs import HEADER, banner, horovod_ranks, one_process, step, total


def read(text: str, *, observations: bool = False) -> ParsedLog:
    return parse([text.encode()], observations=observations)


def only_run(text: str) -> ParsedRun:
    [run] = read(text).runs
    return run


def test_one_process_gives_its_total_as_the_jobs():
    run = only_run(one_process(208.72))
    assert (run.throughput, run.unit, run.scope) == (208.72, "images/sec", "job")
    assert (run.printed, run.processes, run.gpus, run.steps) == ((208.72,), 1, 1, 30)
    assert run.warnings == ()


def test_the_banner_is_kept():
    run = only_run(banner(devices=["/gpu:0", "/gpu:1"]) + HEADER + step(10, 100) + total(100))
    assert (run.model, run.mode, run.variable_update) == ("resnet50", "training", "replicated")
    assert (run.batch_size_global, run.batch_size_per_device) == (128, 64)
    assert run.devices == ("/gpu:0", "/gpu:1")


def test_replicated_on_several_gpus_is_one_process_whose_figures_cover_them():
    run = only_run(banner(devices=[f"/gpu:{gpu}" for gpu in range(8)]) + HEADER + step(30, 4220) + total(4220.13))
    assert (run.throughput, run.processes, run.gpus, run.warnings) == (4220.13, 1, 8, ())


def test_totals_of_ranks_that_exchange_gradients_are_the_same_total_and_never_summed():
    run = only_run(horovod_ranks(4, 52.5))
    assert (run.throughput, run.scope, run.printed) == (210.0, "job", (210.0,) * 4)
    assert (run.processes, run.gpus, run.warnings) == (4, 4, ())


def test_totals_that_differ_in_the_last_digit_give_their_median_without_a_warning():
    lines = "".join(step(30, 52.8) + total(rate) for rate in (211.03, 211.02, 211.02, 211.02))
    run = only_run(lines)
    assert (run.throughput, run.warnings) == (211.02, ())


def test_totals_that_differ_by_more_are_warned_about():
    run = only_run("".join(step(30, 52.8) + total(rate) for rate in (211.03, 205.0, 211.02, 211.02)))
    assert any("disagree on the total: 205 to 211.03" in warning for warning in run.warnings)


def test_workers_of_a_parameter_server_list_their_own_devices_and_the_jobs_batch():
    devices = ["/job:worker/task:1/gpu:0", "/job:worker/task:1/gpu:1"]
    text = banner(devices=devices, processes=3, variable_update="parameter_server")
    run = only_run(text + HEADER + step(30, 100) + total(300))
    assert (run.throughput, run.scope, run.processes, run.gpus, run.warnings) == (300, "job", 3, 6, ())


@pytest.mark.parametrize("update", ["collective_all_reduce", "parameter_server"])
def test_workers_that_list_the_devices_of_all_print_their_own_steps_and_the_jobs_total(update):
    devices = ["job:worker/replica:0/task0/gpu:0", "job:worker/replica:0/task1/gpu:0"]
    log = read(banner(devices=devices, variable_update=update) + HEADER + step(30, 100) + total(200), observations=True)
    [run] = log.runs
    assert (run.scope, run.processes, run.gpus, run.warnings) == ("job", 2, 2, ())
    assert [seen.scope for seen in run.observations] == ["process", "job"]


def test_one_process_that_drives_all_workers_covers_the_job_with_every_line():
    devices = [f"/job:worker/task:{task}/gpu:0" for task in range(4)]
    log = read(banner(devices=devices, variable_update="distributed_all_reduce") + HEADER + step(30, 400) + total(400),
               observations=True)  # fmt: skip
    [run] = log.runs
    assert (run.scope, run.gpus, run.warnings) == ("job", 4, ())
    assert [seen.scope for seen in run.observations] == ["job", "job"]


def test_processes_that_exchange_nothing_keep_their_totals_to_themselves():
    text = banner() * 3 + HEADER * 3 + step(10, 100) * 3 + (step(20, 100) + total(100)) * 3
    run = only_run(text)
    assert (run.throughput, run.scope, run.printed) == (100, "process", (100, 100, 100))
    assert (run.processes, run.gpus) == (3, 3)
    assert run.warnings == ("3 independent jobs, one a process: every figure is one process's",)


def test_without_a_banner_the_figures_tell_how_many_processes_a_total_covers():
    assert only_run(step(30, 54.7) * 2 + total(109.34)).processes == 2
    assert only_run(step(30, 54.7) + total(54.68)).processes == 1
    run = only_run((step(30, 54.7) + total(54.68)) * 2)
    assert (run.scope, run.processes) == ("process", 2)


def test_a_total_alone_is_a_result_of_unknown_processes():
    run = only_run(total(991.92))
    assert (run.throughput, run.scope, run.processes, run.gpus, run.steps) == (991.92, "job", None, None, None)


def test_training_on_the_cpu_has_no_gpu():
    run = only_run(banner(devices=["/cpu:0"]) + HEADER + step(30, 0.6) + total(0.56))
    assert (run.throughput, run.gpus, run.warnings) == (0.56, 0, ())


@pytest.mark.parametrize(
    "line",
    [
        "30      images/sec: 199.6 +/- 0.5 (jitter = 0.9)        7.312",
        "30\timages/sec: 199.6 +/- 0.5 (jitter = 0.9)\t7.312 1593019655",
        "30\timages/sec: 199.6 +/- 0.5 (jitter = 0.9)\t0.000\t0.000\t0.000",
        "30\timages/sec: 199.6 +/- 0.5 (jitter = 0.9)",
    ],
    ids=["spaces for tabs", "a time behind the loss", "accuracy columns", "no loss"],
)
def test_variants_of_a_step_line(line):
    [run] = read(f"{line}\n{total(199.65)}", observations=True).runs
    first = run.observations[0]
    assert (first.value, first.step, first.uncertainty, first.uncertainty_kind) == (199.6, 30, 0.5, "sem")
    assert (run.throughput, run.warnings) == (199.65, ())


def test_a_banner_printed_twice_on_one_line():
    doubled = "".join(line + line + "\n" for line in banner().splitlines())
    run = only_run(doubled + HEADER + step(30, 100) + total(100))
    assert (run.throughput, run.processes, run.model, run.variable_update) == (100, 1, "resnet50", "replicated")
    assert (run.batch_size_global, run.batch_size_per_device, run.mode) == (64, 64, "training")


def test_stripped_indentation():
    run = only_run("".join(line.strip() + "\n" for line in one_process().splitlines()))
    assert (run.batch_size_global, run.batch_size_per_device, run.processes) == (64, 64, 1)


@pytest.mark.parametrize("mode", ["forward only", "evaluation", "BenchmarkMode.EVAL"])
def test_inference_is_not_training(mode):
    run = only_run(banner(mode=mode) + HEADER + step(30, 1615) + total(1614.98))
    assert run.throughput == 1614.98
    assert run.warnings == (f"inference, not training (mode: {mode})",)


def test_evaluation_prints_windows_of_examples():
    text = banner(mode="evaluation") + "10\t123.4 examples/sec\n20\t125.0 examples/sec\n" + total(124.2)
    [run] = read(text, observations=True).runs
    assert [(seen.value, seen.kind, seen.step) for seen in run.observations] == [
        (123.4, "window", 10),
        (125.0, "window", 20),
        (124.2, "total", None),
    ]
    assert run.steps == 20


def test_a_loss_that_is_not_a_number_is_warned_about_and_the_figures_stand():
    run = only_run(banner() + HEADER + step(10, 680.6, "nan") + step(20, 680.7, "nan") + total(679.04))
    assert (run.throughput, run.warnings) == (679.04, ("the loss is not finite",))


def test_a_total_that_does_not_fit_the_last_step_is_warned_about():
    run = only_run(banner() + HEADER + step(30, 100) + total(102))
    assert run.warnings == ("the total, 102, and the last step of 1 process, 100, do not agree",)


def test_a_total_of_nothing_timed_is_no_result():
    log = read(banner() + HEADER + total(0))
    assert (log.status, log.runs[0].throughput, log.runs[0].printed) == ("no-result", None, ())
    assert log.reason == "the total is '0.00', which is no figure"


def test_a_log_cut_before_its_total_says_how_far_it_came():
    log = read(banner() + HEADER + step(10, 3870) + step(20, 3872.1))
    assert (log.status, log.runs[0].throughput) == ("no-result", None)
    assert log.reason is not None
    assert "step 20" in log.reason
    assert "3872.1" in log.reason


def test_a_cut_log_keeps_its_observations():
    [run] = read(banner() + HEADER + step(10, 3870) + step(20, 3872.1), observations=True).runs
    assert [(seen.step, seen.value, seen.scope) for seen in run.observations] == [
        (10, 3870, "process"),
        (20, 3872.1, "process"),
    ]


def test_a_program_that_fails_at_its_start_says_why():
    text = (
        banner() + 'Traceback (most recent call last):\n  File "x.py", line 1\nImportError: libcuda.so.1 is missing\n'
    )
    log = read(text)
    assert log.status == "no-result"
    assert log.reason == (
        "no total: the log ends while the program was starting; it has a traceback: "
        "ImportError: libcuda.so.1 is missing"
    )


def test_ranks_that_end_with_the_same_weights_exchanged_gradients():
    run = only_run(horovod_ranks(2) + f"weights sha256: {'a' * 64}\n" * 2)
    assert (run.weights, run.warnings) == (("a" * 64, "a" * 64), ())


def test_ranks_that_end_with_different_weights_did_not():
    run = only_run(horovod_ranks(2) + f"weights sha256: {'a' * 64}\nweights sha256: {'b' * 64}\n")
    assert run.warnings == ("ranks ended with different weights: gradients were not exchanged",)


def test_logs_one_after_the_other_are_runs_of_their_own():
    log = read(one_process(100) + "$ python tf_cnn_benchmarks.py\n" + one_process(200))
    assert [run.throughput for run in log.runs] == [100, 200]
    assert [run.processes for run in log.runs] == [1, 1]


def test_pasted_runs_without_header_are_told_apart_by_their_steps():
    paste = "".join(step(number, 100) for number in (1, 10, 20)) + total(100)
    assert [run.printed for run in read(paste + paste).runs] == [(100,), (100,)]


def test_a_run_that_was_cut_and_started_again_in_the_same_log():
    log = read(banner() + HEADER + step(1, 90) + step(10, 95) + step(20, 97) + one_process(100))
    assert [run.throughput for run in log.runs] == [None, 100]
    assert log.runs[0].reason is not None
    assert "step 20" in log.runs[0].reason
    assert log.status == "ok"


def test_a_restart_after_the_first_step_is_no_second_rank():
    log = read(banner() + HEADER + step(1, 90) + one_process(100))
    assert [(run.throughput, run.processes, run.scope) for run in log.runs] == [(None, 1, "job"), (100, 1, "job")]


def test_tagged_runs_one_after_the_other():
    def openmpi(rank: int) -> str:
        return f"[1,{rank}]<stdout>:"

    log = read(horovod_ranks(2, 50, prefix=openmpi) + horovod_ranks(2, 60, prefix=openmpi))
    assert [run.printed for run in log.runs] == [(100, 100), (120, 120)]


def test_a_straggler_behind_the_others_total_belongs_to_the_run():
    text = step(20, 132.1) * 2 + step(30, 132.1) + total(264.26) + step(30, 132.1) + total(264.26)
    run = only_run(text)
    assert (run.throughput, run.printed, run.processes) == (264.26, (264.26, 264.26), 2)


def test_a_rank_whose_total_is_missing_is_told():
    run = only_run(step(20, 154.2) * 2 + step(30, 154.2) * 2 + total(308.27))
    assert (run.throughput, run.processes) == (308.27, 2)
    assert run.warnings == ("1 of 2 processes printed a total",)


def test_other_numbers_of_images_are_not_steps():
    log = read("average images/sec: 55.0 \nspeed of 12.5 images/sec\nWe reached total images/sec: high\n")
    assert log.status == "no-result"
    assert all(run.throughput is None and run.steps is None for run in log.runs)


def test_lines_glued_together_make_no_step_up():
    glued = step(10, 100).rstrip("\n") + step(20, 100)
    [run] = read(step(10, 100) + glued, observations=True).runs
    assert {seen.step for seen in run.observations} <= {10, 20}
