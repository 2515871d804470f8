"""Runs found again: in folders of logs, beside an experiment, and among the artifacts of real runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cloudbench.engine import Engine
from cloudbench.errors import SpecError, UsageError
from cloudbench.plan import RunPlan, plan_experiment
from cloudbench.providers.local import Machine, local_provider
from cloudbench.results.measurement import RunRecord, measure
from cloudbench.results.summary import summarize
from cloudbench.run import Attempt, Outcome, Phase, Run, Status
from cloudbench.sources import experiment_records, folder_records, log_records, run_record
from cloudbench.spec import Experiment, JobTemplate, Setup
from cloudbench.store import Store
from tests.results.runs import tf_cnn_log

INDEPENDENT = b"""TensorFlow:  2.18
Model:       resnet20
Batch size:  32 global
             32 per device
Devices:     ['/cpu:0']
Variables:   replicated
==========
Step\tImg/sec\ttotal_loss
10\timages/sec: 10.0 +/- 0.0 (jitter = 0.0)\t2.3
----------------------------------------------------------------
total images/sec: 10.00
----------------------------------------------------------------
"""
TEMPLATE = JobTemplate(name="t", command="true", format="tf_cnn_benchmarks", launcher="tf-config", ranks_per_node="2")
TEMPLATE_THAT_PRINTS = JobTemplate(
    name="t",
    command="printf '10\\timages/sec: 10.0 +/- 0.0 (jitter = 0.0)\\t2.3\\ntotal images/sec: 40.00\\n'",
    format="tf_cnn_benchmarks",
    launcher="tf-config",
    ranks_per_node="{{ gpus_per_node }}",
)


def test_a_folder_of_logs_is_a_row_for_each_file_and_for_each_folder_of_ranks(tmp_path: Path) -> None:
    _write(tmp_path / "run-10.log", [3.0])
    _write(tmp_path / "run-9.txt", [2.0, 2.0])
    _write(tmp_path / "a pair" / "rank-0.log", [7.0])
    _write(tmp_path / "a pair" / "rank-1.log", [7.0])
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / ".hidden.log").write_text("nothing")
    rows = summarize(log_records(tmp_path)).rows
    assert [(row.label, row.throughput) for row in rows] == [("a pair", 7.0), ("run-9", 2.0), ("run-10", 3.0)]
    assert {(row.run, row.nodes, row.gpus_per_node) for row in rows} == {(None, None, None)}


def test_gpus_of_a_plain_log_are_those_of_its_banner(tmp_path: Path) -> None:
    banner = "Batch size:  128 global\n 64 per device\nDevices:     ['/gpu:0', '/gpu:1']\nVariables:   replicated\n"
    (tmp_path / "a.log").write_bytes(banner.encode() + tf_cnn_log([100.0]))
    (row,) = summarize(log_records(tmp_path)).rows
    assert (row.throughput, row.throughput_per_gpu, row.nodes) == (100.0, 50.0, None)


def test_a_log_without_figures_is_a_row_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    (row,) = summarize(log_records(tmp_path)).rows
    assert (row.status, row.throughput) == ("no-result", None)
    assert "no known format" in (row.reason or "")


def test_files_whose_names_differ_only_in_their_ending_are_rows_of_their_own(tmp_path: Path) -> None:
    _write(tmp_path / "a.log", [1.0])
    _write(tmp_path / "a.txt", [2.0])
    assert len(summarize(log_records(tmp_path)).rows) == 2


def test_plain_logs_of_processes_that_trained_alone_are_summed(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / "both").mkdir(exist_ok=True)
        (tmp_path / "both" / f"rank-{rank}.log").write_bytes(INDEPENDENT)
    (row,) = summarize(log_records(tmp_path)).rows
    assert row.throughput == 20.0
    assert "the sum of 2 independent processes, which exchanged nothing" in row.warnings


def test_ranks_that_should_have_trained_together_and_did_not_have_no_result(tmp_path: Path) -> None:
    for rank in range(2):
        _place(tmp_path, "attempt-1/node-0", f"rank-{rank}.log", INDEPENDENT)
    result = measure(run_record(_ended(_plan()), tmp_path))
    assert (result.status, result.throughput) == ("no-result", None)


def test_ranks_that_were_to_train_alone_are_summed_once_all_their_logs_are_there(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(_plan(nodes=2), launcher="per-node")
    _place(tmp_path, "attempt-1/node-0", "rank-0.log", INDEPENDENT)
    result = measure(run_record(_ended(plan), tmp_path))
    assert result.reason == "the log tells of 1 of 2 ranks; printed: 10.00 images/sec (job)"
    _place(tmp_path, "attempt-1/node-1", "rank-1.log", INDEPENDENT)
    assert measure(run_record(_ended(plan), tmp_path)).throughput == 20.0


def test_a_run_without_figures_tells_the_error_in_its_log(tmp_path: Path) -> None:
    error = b"Traceback (most recent call last):\n  File x\nMemoryError: too large\n"
    _place(tmp_path, "attempt-1/node-0", "rank-0.log", INDEPENDENT.partition(b"Step")[0] + error)
    result = measure(run_record(_ended(_plan()), tmp_path))
    assert "MemoryError: too large" in (result.reason or "")


@pytest.mark.parametrize("read", [folder_records, log_records])
def test_a_folder_without_logs_says_what_was_looked_for_and_found(
    read: Callable[[Path], list[RunRecord]], tmp_path: Path
) -> None:
    (tmp_path / "picture.png").touch()
    with pytest.raises(UsageError, match=r"no logs(?s:.*)experiment\.yaml(?s:.*)\.log(?s:.*)found picture\.png"):
        read(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere: no such folder"):
        folder_records(tmp_path / "nowhere")


def test_the_logs_of_an_experiment_come_in_its_order_with_what_it_says(tmp_path: Path) -> None:
    _experiment(tmp_path, "{name: b, nodes: 2, note: noted}", "{name: a}")
    _write(tmp_path / "logs" / "a" / "all.log", [5.0])
    _write(tmp_path / "logs" / "b" / "rank-0.log", [9.0])
    _write(tmp_path / "logs" / "b" / "rank-1.log", [9.0])
    rows = summarize(folder_records(tmp_path)).rows
    assert [(row.label, row.nodes, row.gpus_per_node, row.throughput, row.note) for row in rows] == [
        ("b", 2, 1, 9.0, "noted"),
        ("a", 1, 1, 5.0, None),
    ]
    assert [row.scaling_efficiency for row in rows] == [0.9, 1.0]


def test_a_setup_without_logs_is_a_row_that_says_where_they_should_be(tmp_path: Path) -> None:
    _experiment(tmp_path, "{name: a}", "{name: b}")
    _write(tmp_path / "logs" / "a" / "all.log", [5.0])
    rows = summarize(experiment_records(tmp_path)).rows
    assert [row.throughput for row in rows] == [5.0, None]
    assert rows[1].reason == f"no log in {tmp_path / 'logs' / 'b'}"


def test_repeats_and_swept_parameters_have_folders_of_their_own(tmp_path: Path) -> None:
    _experiment(tmp_path, "{name: a}", more="repeats: 2\nsweep: {batch_size: [16, 32]}\n")
    for size in (16, 32):
        for repeat in (1, 2):
            _write(tmp_path / "logs" / f"a batch_size={size}" / f"repeat-{repeat}" / "all.log", [size + repeat])
    rows = summarize(experiment_records(tmp_path)).rows
    assert [(row.label, row.throughput, len(row.repeats)) for row in rows] == [
        ("a batch_size=16", 17.5, 2),
        ("a batch_size=32", 33.5, 2),
    ]


def test_an_experiment_without_any_log_is_an_error_that_says_how_to_run_it(tmp_path: Path) -> None:
    _experiment(tmp_path, "{name: a}")
    _write(tmp_path / "logs" / "misspelt" / "all.log", [5.0])
    with pytest.raises(UsageError, match=r"no logs of its runs(?s:.*)found misspelt(?s:.*)cloudbench run") as caught:
        experiment_records(tmp_path)
    assert str(tmp_path / "logs" / "a") in str(caught.value)


def test_a_wrong_experiment_is_an_error_of_its_file(tmp_path: Path) -> None:
    _experiment(tmp_path, "{name: a, node: 2}")
    with pytest.raises(SpecError, match="did you mean 'nodes'"):
        folder_records(tmp_path)


def test_a_log_in_which_two_runs_have_figures_stands_for_none_of_them(tmp_path: Path) -> None:
    _place(tmp_path, "attempt-1/node-0", "rank-0.log", INDEPENDENT + INDEPENDENT)
    result = measure(run_record(_ended(_plan()), tmp_path))
    assert result.reason == "the log holds 2 runs, and which of them counts is not known"


def test_a_run_without_files_says_where_they_should_be(tmp_path: Path) -> None:
    result = measure(run_record(_ended(_plan()), tmp_path))
    assert result.reason == f"no rank-*.log in {tmp_path / 'attempt-1'}"


def test_a_plan_of_a_format_that_is_no_longer_known_has_no_result_with_that_reason(tmp_path: Path) -> None:
    _place(tmp_path, "attempt-1/node-0", "rank-0.log", tf_cnn_log([5.0]))
    result = measure(run_record(_ended(msgspec.structs.replace(_plan(), format="foo")), tmp_path))
    assert (result.status, result.throughput) == ("no-result", None)
    assert result.reason == "unknown log format 'foo'; known: tf_cnn_benchmarks, horovod_synthetic"


def test_a_failed_run_tells_its_own_reason_and_what_it_printed(tmp_path: Path) -> None:
    _place(tmp_path, "attempt-1/node-0", "rank-0.log", tf_cnn_log([5.0]))
    run = _ended(_plan(), Outcome.FAILED, reason="rank 1 exited with code 3")
    result = measure(run_record(run, tmp_path))
    assert (result.status, result.throughput) == ("failed", None)
    assert result.reason == "rank 1 exited with code 3; printed: 5.00 images/sec (job)"


def test_a_run_is_read_from_its_last_attempt_and_remembers_the_earlier_ones(tmp_path: Path) -> None:
    for attempt in (1, 2):
        log = INDEPENDENT.replace(b"10.00", b"%d0.00" % attempt)
        _place(tmp_path, f"attempt-{attempt}/node-0", "rank-0.log", log)
    status = Status(outcome=Outcome.PREEMPTED)
    lost = Attempt(number=1, status=status, duration_s=60.0, lost_usd=0.5, files_lost="the machine is gone")
    plan = msgspec.structs.replace(_plan(), launcher="single")
    run = msgspec.structs.replace(_ended(plan), attempt=2, attempts=(lost,))
    record = run_record(run, tmp_path)
    assert measure(record).throughput == 20.0
    assert (record.attempts, record.lost, record.lost_logs) == (2, (lost,), (1,))


@pytest.mark.parametrize(
    ("setup", "gpus", "note"),
    [
        (Setup(), {"missing": "nvidia-smi is not installed"}, "local process, 4 CPU ranks"),
        (Setup(service="docker", image="img:1"), {"missing": "-"}, "local docker, img:1, 4 CPU ranks"),
        (Setup(), [{"name": "NVIDIA H200"}, {"name": "NVIDIA H200"}], "local process, NVIDIA H200"),
        (Setup(note="my own words"), {"missing": "-"}, "my own words"),
        (
            Setup(provider="azure", service="batch", sku="NC12", priority="low-priority", storage="azure-files"),
            [{"name": "Tesla K80"}],
            "Azure Batch/lowpriority + azure files, NC12",
        ),
    ],
)
def test_a_run_is_noted_by_what_it_ran_on(setup: Setup, gpus: Any, note: str, tmp_path: Path) -> None:
    for node in range(2):
        facts = {"gpus": gpus, "cpu": {"model": "A CPU"}}
        _place(tmp_path, f"attempt-1/node-{node}", "facts.json", json.dumps(facts).encode())
    assert run_record(_ended(_plan(setup, nodes=2)), tmp_path).note == note


@pytest.mark.parametrize(("note", "told"), [("my own words", "my own words"), (None, "Azure Batch/dedicated, NC12")])
def test_a_rehearsal_s_note_says_what_it_was(note: str | None, told: str, tmp_path: Path) -> None:
    plan = msgspec.structs.replace(_plan(Setup(provider="azure", sku="NC12", note=note)), rehearsal=True)
    assert run_record(_ended(plan), tmp_path).note == f"{told}; rehearsed on CPU"


def test_a_log_that_names_cpus_beats_the_gpus_of_the_machine(tmp_path: Path) -> None:
    facts = {"gpus": [{"name": "NVIDIA H200"}], "cpu": {"model": "A CPU"}}
    _place(tmp_path, "attempt-1/node-0", "facts.json", json.dumps(facts).encode())
    _place(tmp_path, "attempt-1/node-0", "rank-0.log", INDEPENDENT)
    record = run_record(_ended(_plan()), tmp_path)
    assert (record.hardware, record.note) == ("A CPU", "local process, 2 CPU ranks")


def test_files_that_a_dying_node_left_half_written_are_no_error(tmp_path: Path) -> None:
    _place(tmp_path, "attempt-1/node-0", "facts.json", b'{"gpus": [')
    _place(tmp_path, "attempt-1/node-0", "status.json", b"")
    record = run_record(_ended(_plan()), tmp_path)
    assert (record.hardware, record.duration_s) == (None, None)


def test_a_real_run_of_two_nodes_is_found_again(tmp_path: Path) -> None:
    experiment = Experiment(name="x", templates=("t",), setups=(Setup(nodes=2, gpus_per_node=2),))
    store = Store(tmp_path / "home")
    provider = local_provider(tmp_path / "local", service=None, attached=True, machine=Machine())
    (plan,) = plan_experiment(experiment, {"t": TEMPLATE_THAT_PRINTS}, owner=store.owner, submission=1)
    store.add([plan], at=0.0)
    (run,) = Engine(store, lambda _: provider).drive([plan.id])
    record = run_record(run, store.folder(run.id))
    store.close()
    (row,) = summarize([record]).rows
    assert (row.run, row.status, row.nodes, row.gpus_per_node) == (run.id, "ok", 2, 2)
    assert (row.throughput, row.throughput_per_gpu) == (40.0, 10.0)
    assert row.note == "local process, 4 CPU ranks"
    assert row.duration_s is not None
    assert row.duration_s > 0
    assert record.parsed is not None
    assert record.parsed.printed == (40.0,) * 4


def _experiment(folder: Path, *setups: str, more: str = "") -> None:
    listed = "".join(f"  - {setup}\n" for setup in setups)
    (folder / "experiment.yaml").write_text(f"name: x\nsetups:\n{listed}{more}")


def _write(path: Path, totals: list[float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tf_cnn_log(totals))


def _place(folder: Path, below: str, name: str, content: bytes) -> None:
    (folder / below).mkdir(parents=True, exist_ok=True)
    (folder / below / name).write_bytes(content)


def _plan(setup: Setup | None = None, *, nodes: int = 1) -> RunPlan:
    experiment = Experiment(name="x", templates=("t",), setups=(setup or Setup(),))
    (plan,) = plan_experiment(experiment, {"t": TEMPLATE}, owner="me", submission=1)
    return msgspec.structs.replace(plan, nodes=nodes)


def _ended(plan: RunPlan, outcome: Outcome = Outcome.SUCCEEDED, *, reason: str | None = None) -> Run:
    return Run(plan=plan, phase=Phase.RELEASED, status=Status(outcome=outcome, reason=reason))
