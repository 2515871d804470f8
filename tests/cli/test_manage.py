"""A run that was left alone is found, followed, collected, cancelled and resumed from other terminals."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Cloudbench

Started = Callable[..., "subprocess.Popen[str]"]


def detached(cloudbench: Cloudbench, template: Path, *arguments: str) -> str:
    ended = cloudbench("submit", "--template", str(template), "--detach", *arguments)
    assert ended.returncode == 0, ended.stderr
    return str(ended.stdout.strip())


def state(cloudbench: Cloudbench, run: str) -> dict[str, object]:
    (found,) = json.loads(cloudbench("status", run, "--format", "json").stdout)["runs"]
    return dict(found)


def driven(
    cloudbench: Cloudbench, started: Started, template: Path, folder: Path
) -> tuple["subprocess.Popen[str]", str]:
    """A client that drives a long run whose rank has begun, and the run's id."""
    client = started("submit", "--template", str(template), "--set", "steps=600", "--set", "pause_s=0.1")
    while not list((folder / "home").glob("local/*/node-0/rank-0.log")):
        assert client.poll() is None
    (run,) = json.loads(cloudbench("status", "--format", "json").stdout)["runs"]
    return client, str(run["run"])


def test_a_detached_run_ends_without_a_client_and_is_collected_later(
    cloudbench: Cloudbench, steps_template: Path
) -> None:
    run = detached(cloudbench, steps_template, "--set", "steps=20", "--set", "pause_s=0.1")
    assert state(cloudbench, run)["phase"] == "running"
    followed = cloudbench("logs", run, "--follow")
    assert followed.stdout.count("(jitter") == 20
    assert followed.stdout.endswith("total images/sec: 10.00\n")
    assert state(cloudbench, run)["outcome"] == "succeeded"
    folder = Path(cloudbench("collect", run).stdout.strip())
    assert (folder / "attempt-1" / "node-0" / "rank-0.log").read_text().endswith("total images/sec: 10.00\n")
    assert state(cloudbench, run)["phase"] == "released"
    (row,) = json.loads(cloudbench("summary", run, "--format", "json").stdout)["rows"]
    assert row["throughput"] == 10.0


def test_a_running_run_can_be_collected_and_goes_on(cloudbench: Cloudbench, steps_template: Path) -> None:
    run = detached(cloudbench, steps_template, "--set", "steps=600", "--set", "pause_s=0.1")
    ended = cloudbench("collect", run)
    assert ended.returncode == 0
    assert "still running" in ended.stderr
    assert state(cloudbench, run)["phase"] == "running"
    assert cloudbench("cancel", run).stdout.strip() == run
    assert state(cloudbench, run) | {"phase": "released", "outcome": "cancelled"} == state(cloudbench, run)


def test_cancel_reaches_a_run_that_another_client_drives(
    cloudbench: Cloudbench, started: Started, steps_template: Path, tmp_path: Path
) -> None:
    client, run = driven(cloudbench, started, steps_template, tmp_path)
    assert cloudbench("cancel", run).returncode == 0
    client.communicate(timeout=180)
    assert client.returncode == 130
    assert state(cloudbench, run)["outcome"] == "cancelled"


def test_a_run_that_another_client_drives_is_not_resumed(
    cloudbench: Cloudbench, started: Started, steps_template: Path, tmp_path: Path
) -> None:
    _, run = driven(cloudbench, started, steps_template, tmp_path)
    ended = cloudbench("resume", run)
    assert ended.returncode == 2
    assert "another process drives run" in ended.stderr
    cloudbench("cancel", run)


def test_resume_of_a_finished_run_prints_its_row_again(cloudbench: Cloudbench, steps_template: Path) -> None:
    cloudbench("submit", "--template", str(steps_template))
    (run,) = json.loads(cloudbench("status", "--format", "json").stdout)["runs"]
    ended = cloudbench("resume", run["run"][-6:], "--format", "json")
    assert ended.returncode == 0
    assert json.loads(ended.stdout)["rows"][0]["throughput"] == 10.0


def test_logs_of_several_ranks_say_whose_line_it_is(cloudbench: Cloudbench, steps_template: Path) -> None:
    cloudbench("submit", "--template", str(steps_template), "--nodes", "2")
    (run,) = json.loads(cloudbench("status", "--format", "json").stdout)["runs"]
    both = cloudbench("logs", run["run"]).stdout.splitlines()
    assert {line.partition(" | ")[0] for line in both} == {"node-0/rank-0", "node-1/rank-1"}
    one = cloudbench("logs", run["run"], "--rank", "1").stdout.splitlines()
    assert [line.partition(" | ")[2] for line in both if line.startswith("node-1")] == one


def test_an_unknown_run_is_a_usage_error(cloudbench: Cloudbench) -> None:
    for command in ("logs", "collect", "cancel", "resume", "status", "summary"):
        ended = cloudbench(command, "nothing")
        assert ended.returncode == 2
        assert "no run 'nothing'" in ended.stderr


def test_the_name_of_a_row_of_repeats_stands_for_all_of_them(cloudbench: Cloudbench, steps_template: Path) -> None:
    ended = cloudbench("submit", "--template", str(steps_template), "--repeat", "2", "--format", "json")
    (row,) = json.loads(ended.stdout)["rows"]
    group = row["run"]
    found = json.loads(cloudbench("status", group, "--format", "json").stdout)["runs"]
    assert [run["run"] for run in found] == [f"{group}-r1", f"{group}-r2"]
    for command in ("collect", "cancel"):
        assert len(cloudbench(command, group, f"{group}-r1").stdout.splitlines()) == 2
    for command in ("resume", "summary"):
        (again,) = json.loads(cloudbench(command, group, "--format", "json").stdout)["rows"]
        assert len(again["repeats"]) == 2
    refused = cloudbench("logs", group)
    assert refused.returncode == 2
    assert "2 repeats, and one is needed" in refused.stderr


@pytest.mark.parametrize(
    "arguments", [["--rank", "5"], ["--node", "5"], ["--node", "0", "--rank", "1"], ["--node", "1", "--rank", "0"]]
)
def test_logs_of_a_rank_or_node_that_is_not_there_are_refused(
    cloudbench: Cloudbench, steps_template: Path, arguments: list[str]
) -> None:
    run = detached(cloudbench, steps_template, "--nodes", "2")
    ended = cloudbench("logs", run, *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "the run has ranks 0 to 1 on nodes 0 to 1" in ended.stderr
    cloudbench("cancel", run)


def test_a_run_on_one_node_of_several_has_one_rank(cloudbench: Cloudbench, steps_template: Path) -> None:
    run = detached(cloudbench, steps_template)
    ended = cloudbench("logs", run, "--rank", "1")
    assert "the run has rank 0 on node 0" in ended.stderr
    cloudbench("cancel", run)


def test_logs_of_a_run_whose_preparation_failed_are_those_of_the_preparation(
    cloudbench: Cloudbench, steps_template: Path
) -> None:
    steps_template.write_text(steps_template.read_text() + "prepare: echo no data there; exit 3\n")
    ended = cloudbench("submit", "--template", str(steps_template))
    assert ended.returncode == 5
    hint = ended.stderr.partition("all of it: cloudbench ")[2].split("\n")[0]
    assert cloudbench(*hint.split()).stdout == "no data there\n"


def test_a_run_that_ended_and_was_not_collected_says_so(cloudbench: Cloudbench, steps_template: Path) -> None:
    run = detached(cloudbench, steps_template)
    cloudbench("logs", run, "--follow")
    assert f"ended; cloudbench collect {run}" in cloudbench("status", run).stdout
    assert state(cloudbench, run) | {"phase": "running", "outcome": "succeeded", "collected": False} == state(
        cloudbench, run
    )
    (row,) = json.loads(cloudbench("summary", run, "--format", "json").stdout)["rows"]
    assert row["reason"].startswith(f"ended, not collected yet: cloudbench collect {run}")
    cloudbench("collect", run)
    assert "ended;" not in cloudbench("status", run).stdout
