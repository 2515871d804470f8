"""`submit`: one row on standard output, progress on standard error, and an exit code that tells."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import STEPS, Cloudbench
from tests.processes import of_run

Started = Callable[..., "subprocess.Popen[str]"]


def rows(printed: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(printed)["rows"]
    return found


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_the_row_goes_to_standard_output_and_progress_to_standard_error(
    cloudbench: Cloudbench, steps_template: Path
) -> None:
    ended = cloudbench("submit", "--template", str(steps_template), "--label", "here")
    assert ended.returncode == 0
    assert "here" in ended.stdout
    assert "10.00" in ended.stdout
    assert "running" in ended.stderr
    assert "running" not in ended.stdout


def test_json_has_numbers_where_there_are_numbers_and_null_where_there_are_none(
    cloudbench: Cloudbench, steps_template: Path
) -> None:
    ended = cloudbench("submit", "--template", str(steps_template), "--format", "json")
    (row,) = rows(ended.stdout)
    assert (row["nodes"], row["gpus_per_node"], row["throughput"], row["status"]) == (1, 1, 10.0, "ok")
    assert row["reason"] is None
    assert row["scaling_efficiency"] is None


def test_repeats_are_one_row(cloudbench: Cloudbench, steps_template: Path) -> None:
    (row,) = rows(cloudbench("submit", "--template", str(steps_template), "--repeat", "2", "--format", "json").stdout)
    assert [repeat["throughput"] for repeat in row["repeats"]] == [10.0, 10.0]  # type: ignore[attr-defined]


def test_a_job_that_fails_ends_with_5_its_exit_code_and_its_last_lines(
    cloudbench: Cloudbench, steps_template: Path
) -> None:
    ended = cloudbench("submit", "--template", str(steps_template), "--set", "exit_code=7", "--format", "json")
    assert ended.returncode == 5
    assert "exited with code 7" in ended.stderr
    assert "went wrong: as asked" in ended.stderr
    (row,) = rows(ended.stdout)
    assert row["throughput"] is None
    assert row["status"] == "failed"


def test_the_time_limit_ends_the_job_with_6(cloudbench: Cloudbench, steps_template: Path) -> None:
    ended = cloudbench("submit", "--template", str(steps_template), "--set", "pause_s=60", "--timeout", "2s")
    assert ended.returncode == 6
    assert "timed-out" in ended.stderr


def test_a_parameter_is_an_argument_and_never_a_command(
    cloudbench: Cloudbench, steps_template: Path, tmp_path: Path
) -> None:
    words = f"; touch {tmp_path}/x $(touch {tmp_path}/y) `touch {tmp_path}/z` ' \""
    ended = cloudbench("submit", "--template", str(steps_template), "--set", f"words={words}", "--set", "exit_code=1")
    assert ended.returncode == 5
    (run,) = json.loads(cloudbench("status", "--format", "json").stdout)["runs"]
    assert f"went wrong: {words}" in cloudbench("logs", run["run"]).stdout
    assert not {"x", "y", "z"} & {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--template", "tf_cnn_benchmark"], "did you mean 'tf_cnn_benchmarks'?"),
        (["--set", "modle=resnet20"], "did you mean 'model'?"),
        (["--set", "model"], "expected KEY=VALUE"),
        (["--set", "batch_size=many"], "expected a number"),
        (["--set", "variable_update=horovd"], "did you mean 'horovod'?"),
        (["--nodes", "2", "--set", "variable_update=replicated"], "one node only"),
        (["--timeout", "soon"], "is not a duration"),
        (["--provider", "azure"], "sku: azure has many machine sizes, and none was named"),
        (["--provider", "azure", "--sku", "NC13"], "did you mean 'NC12'?"),
        (["--provider", "azure", "--sku", "NC12", "--gpus-per-node", "4"], "more than Standard_NC12 has: 2 x K80"),
        (["--rehearse"], "trains on this machine already"),
        (["--full-size"], "only a rehearsal shrinks a job"),
        (["--service", "proces"], "did you mean 'process'?"),
        (["--setup", "locale"], "did you mean 'local'?"),
        (["--sku", "NC12"], "the local provider has no sku"),
        (["--nodes", "0"], "--nodes"),
        (["--max-cost", "5"], "no hourly price"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_remembered(
    cloudbench: Cloudbench, arguments: list[str], told: str
) -> None:
    ended = cloudbench("submit", *arguments)
    assert ended.returncode == 2
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    assert json.loads(cloudbench("status", "--format", "json").stdout) == {"runs": []}


def test_what_can_cost_more_than_its_limit_is_refused_with_6_and_the_price(cloudbench: Cloudbench) -> None:
    size = ("--provider", "azure", "--sku", "NC4as_T4_v3", "--nodes", "2")
    ended = cloudbench("submit", *size, "--timeout", "1h", "--max-cost", "1")
    assert ended.returncode == 6
    assert "azure 2x1 can cost 1.58 USD until its machines are ended, more than 1.00" in ended.stderr
    assert "list price of Standard_NC4as_T4_v3: 0.53 USD/h in eastus on 2026-06-18" in ended.stderr
    assert json.loads(cloudbench("status", "--format", "json").stdout) == {"runs": []}


def test_a_dry_run_prints_the_requests_and_does_nothing(cloudbench: Cloudbench, steps_template: Path) -> None:
    arguments = ["submit", "--template", str(steps_template), "--nodes", "2", "--dry-run", "--format", "json"]
    first, second = cloudbench(*arguments).stdout, cloudbench(*arguments).stdout
    assert first == second
    assert len(json.loads(first)["steps"][-1]["body"]["nodes"]) == 2
    assert json.loads(cloudbench("status", "--format", "json").stdout) == {"runs": []}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_collects_and_releases(
    cloudbench: Cloudbench, started: Started, steps_template: Path, tmp_path: Path, number: signal.Signals
) -> None:
    client = started("submit", "--template", str(steps_template), "--set", "steps=600", "--set", "pause_s=0.1")
    wait_for(lambda: [log for log in (tmp_path / "home").glob("local/*/node-0/rank-0.log") if log.stat().st_size])
    client.send_signal(number)
    _, told = client.communicate(timeout=180)
    assert client.returncode == 130
    (run,) = json.loads(cloudbench("status", "--format", "json").stdout)["runs"]
    assert (run["phase"], run["outcome"]) == ("released", "cancelled"), told
    assert run["reason"] == {
        signal.SIGINT: "interrupted from the keyboard", signal.SIGTERM: "interrupted by SIGTERM"
    }[number]  # fmt: skip
    assert "cloudbench resume" not in told
    assert of_run(run["run"]) == []
    assert "images/sec: 10.0" in cloudbench("logs", run["run"]).stdout


def test_after_a_killed_client_nothing_runs_and_resume_reports(
    cloudbench: Cloudbench, started: Started, steps_template: Path, tmp_path: Path
) -> None:
    client = started(
        "submit", "--template", str(steps_template), "--nodes", "2", "--set", "steps=600", "--set", "pause_s=0.1"
    )

    def logs() -> list[Path]:
        return list((tmp_path / "home").glob("local/*/node-*/rank-*.log"))

    wait_for(lambda: len(logs()) == 2 and all(log.stat().st_size for log in logs()))
    client.kill()
    (run,) = json.loads(cloudbench("status", "--format", "json").stdout)["runs"]
    wait_for(lambda: not of_run(run["run"]))
    printed = {log.name: log.read_bytes() for log in logs()}
    ended = cloudbench("resume", run["run"], "--format", "json")
    assert ended.returncode == 130
    (row,) = rows(ended.stdout)
    assert row["status"] == "cancelled"
    assert row["reason"]
    home = tmp_path / "home" / "runs" / run["run"]
    assert {log.name: log.read_bytes() for log in home.glob("attempt-1/node-*/rank-*.log")} == printed


def test_a_client_that_comes_back_at_once_finishes_the_run(
    cloudbench: Cloudbench, started: Started, steps_template: Path, tmp_path: Path
) -> None:
    client = started("submit", "--template", str(steps_template), "--set", "steps=30", "--set", "pause_s=0.1")
    wait_for(lambda: list((tmp_path / "home").glob("local/*/node-0/rank-0.log")))
    (run,) = json.loads(cloudbench("status", "--format", "json").stdout)["runs"]
    client.kill()
    client.wait()
    ended = cloudbench("resume", run["run"], "--format", "json")
    assert ended.returncode == 0, ended.stderr
    assert rows(ended.stdout)[0]["throughput"] == 10.0


def test_a_second_interrupt_names_the_run_that_is_left(
    cloudbench: Cloudbench, started: Started, steps_template: Path, tmp_path: Path
) -> None:
    steps_template.write_text(STEPS.replace("command: |\n", "command: |\n  trap '' TERM INT\n"))
    client = started("submit", "--template", str(steps_template), "--set", "steps=600", "--set", "pause_s=0.1")
    wait_for(lambda: [log for log in (tmp_path / "home").glob("local/*/node-0/rank-0.log") if log.stat().st_size])
    (run,) = json.loads(cloudbench("status", "--format", "json").stdout)["runs"]
    client.send_signal(signal.SIGINT)
    assert client.stderr
    while "ending it" not in client.stderr.readline():
        assert client.poll() is None
    client.send_signal(signal.SIGINT)
    _, told = client.communicate(timeout=180)
    assert client.returncode == 130
    assert told.endswith(
        f"cloudbench: interrupted again: the job may still be ending; cloudbench resume {run['run']}\n"
    )
    cloudbench("cancel", run["run"])


def test_the_last_lines_of_a_failed_run_do_nothing_to_the_terminal(
    cloudbench: Cloudbench, steps_template: Path
) -> None:
    words = "\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2J\x9b1mbold\b " + "x" * 300
    ended = cloudbench("submit", "--template", str(steps_template), "--set", f"words={words}", "--set", "exit_code=1")
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("  | went wrong: ")]
    assert line.startswith("  | went wrong: red bold xxx")
    assert line.endswith("x…")
    assert len(line) == len("  | ") + 200
