"""A rehearsal of AWS as a person meets it: one command, no account, real nodes, and nothing left of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cloudbench.rehearsal.aws import Scenario
from cloudbench.rehearsal.aws.rehearsal import AwsRehearsal
from tests.cli.conftest import Cloudbench
from tests.cli.test_rehearse import rows
from tests.processes import of_run

QUICK = "{change_s: 0.2, delete_s: 0.2, schedule_s: 0.1, boot_s: 0.2, pull_s: 0.1, idle_s: 0.2, explain_s: 0.2"
AWS = ["--provider", "aws", "--sku", "p2.xlarge"]


@pytest.fixture
def quick(tmp_path: Path) -> Callable[[str], str]:
    """A scenario file with short delays, and what else is asked for."""

    def write(more: str = "") -> str:
        path = tmp_path / "scenario.yaml"
        path.write_text(f"{QUICK}{more}}}\n")
        return str(path)

    return write


@pytest.fixture
def rehearsal(tmp_path: Path, environment: dict[str, str]) -> Iterator[AwsRehearsal]:
    """A stand-in that this environment names as its account."""
    scenario = Scenario(change_s=0.2, delete_s=0.2, schedule_s=0.1, boot_s=0.2, pull_s=0.1, idle_s=0.2, explain_s=0.2)
    rehearsal = AwsRehearsal(tmp_path / "rehearsal", scenario=scenario, containers=False)
    values: dict[str, str] = msgspec.to_builtins(rehearsal.start())
    environment.update({f"CLOUDBENCH_AWS_{key.upper()}": value for key, value in values.items()})
    yield rehearsal
    faults = rehearsal.aws.faults
    rehearsal.close()
    assert not faults


@pytest.mark.parametrize("service", ["batch", "ec2"])
def test_a_rehearsal_needs_no_account_and_leaves_nothing(
    cloudbench: Cloudbench, quick: Callable[[str], str], steps_template: Path, tmp_path: Path, service: str
) -> None:
    ended = cloudbench(
        "submit", *AWS, "--service", service, "--template", str(steps_template), "--nodes", "2",
        "--rehearse", "--scenario", quick(""), "--format", "json",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    [row] = rows(ended.stdout)
    assert (row["nodes"], row["throughput"]) == (2, 20.0)
    assert "rehearsed on CPU" in row["note"]
    assert "This is a rehearsal" in ended.stderr
    assert "warning: p2.xlarge (1 x K80 of 12 GiB) seems to be retired" in ended.stderr
    assert list((tmp_path / "home" / "rehearsals").iterdir()) == []
    [run] = json.loads(cloudbench("status", "--format", "json").stdout)["runs"]
    assert (run["phase"], run["outcome"]) == ("released", "succeeded")
    assert of_run(run["run"]) == []
    assert "images/sec: 10.0" in cloudbench("logs", run["run"], "--node", "1").stdout


@pytest.mark.slow
def test_an_interrupted_spot_run_is_tried_again_and_says_so(
    cloudbench: Cloudbench, quick: Callable[[str], str], steps_template: Path
) -> None:
    ended = cloudbench(
        "submit", *AWS, "--service", "ec2", "--nodes", "2", "--priority", "low-priority", "--template",
        str(steps_template), "--set", "steps=12", "--set", "pause_s=0.5", "--rehearse", "--scenario",
        quick(", interrupt_after_s: 2"), "--format", "json",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    [row] = rows(ended.stdout)
    assert row["attempts"] == 2
    assert "preempted" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([*AWS], 4, "the nearest that it has: g4dn.xlarge"),
        (["--provider", "aws", "--sku", "g4dn.xlarge", "--image", "mine"], 3, "no AWS account is set: region, bucket"),
        (["--provider", "aws", "--sku", "g4dn.xlarge"], 2, "no image is named"),
        ([*AWS, "--nodes", "2", "--priority", "low-priority", "--rehearse"], 2, "--service ec2"),
        ([*AWS, "--rehearse", "--scenario", "quotas"], 2, "did you mean 'quota'?"),
        ([*AWS, "--rehearse", "--storage", "floppy"], 2, "storage floppy"),
        ([*AWS, "--rehearse", "--service", "ec3"], 2, "did you mean 'ec2'?"),
        ([*AWS, "--aws", "buckets=x"], 2, "did you mean 'bucket'?"),
        ([*AWS, "--aws", "secret_key=x"], 2, "others on this machine can read a command line"),
        ([*AWS, "--rehearse", "--pool", "mine"], 2, "AWS has no pools"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_remembered(
    cloudbench: Cloudbench, arguments: list[str], code: int, told: str
) -> None:
    ended = cloudbench("submit", *arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr
    assert json.loads(cloudbench("status", "--format", "json").stdout) == {"runs": []}


def test_a_run_is_followed_and_collected_by_later_commands_in_the_same_account_only(
    cloudbench: Cloudbench, rehearsal: AwsRehearsal, steps_template: Path, environment: dict[str, str]
) -> None:
    current = ["--provider", "aws", "--sku", "g4dn.xlarge", "--image", "mine", "--template", str(steps_template)]
    started = cloudbench("submit", *current, "--detach", "--yes", "--format", "json")
    assert started.returncode == 0, started.stderr
    [run] = json.loads(started.stdout)["runs"]

    other = {**environment, "CLOUDBENCH_AWS_BUCKET": "another"}
    environment.update(other)
    refused = cloudbench("collect", run)
    assert refused.returncode == 3
    assert "is in another account than the one that is set" in refused.stderr

    environment["CLOUDBENCH_AWS_BUCKET"] = "cloudbench"
    ended = cloudbench("resume", run)
    assert ended.returncode == 0, ended.stderr
    assert "images/sec: 10.0" in cloudbench("logs", run).stdout


def checks(cloudbench: Cloudbench, code: int, *arguments: str) -> list[dict[str, Any]]:
    ended = cloudbench("doctor", "--provider", "aws", "--format", "json", *arguments)
    assert ended.returncode == code, ended.stderr
    found: list[dict[str, Any]] = json.loads(ended.stdout)["checks"]
    return found


@pytest.mark.parametrize("service", ["batch", "ec2"])
def test_the_doctor_finds_an_account_that_is_ready_and_reads_only(
    cloudbench: Cloudbench, rehearsal: AwsRehearsal, service: str
) -> None:
    found = checks(cloudbench, 0, "--service", service)
    assert {check["state"] for check in found} == {"ok", "note"}
    reads = ("Get", "Head", "List", "Describe")
    assert [call for call in rehearsal.aws.calls if not call.partition(":")[2].startswith(reads)] == []


def test_the_doctor_tells_what_is_missing(
    cloudbench: Cloudbench, rehearsal: AwsRehearsal, environment: dict[str, str]
) -> None:
    environment["CLOUDBENCH_AWS_BUCKET"] = "another"
    failure = next(check for check in checks(cloudbench, 4) if check["state"] == "failed")
    assert failure["todo"] == "aws s3 mb s3://another --region us-east-1"
    environment["CLOUDBENCH_AWS_SECRET_KEY"] = "wrong"  # noqa: S105
    [failure] = checks(cloudbench, 3)
    assert "refused the credentials" in failure["what"]


def test_no_key_is_anywhere_that_a_run_leaves_or_shows(
    cloudbench: Cloudbench, rehearsal: AwsRehearsal, steps_template: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    current = ["--provider", "aws", "--sku", "g4dn.xlarge", "--image", "mine", "--template", str(steps_template)]
    dry = cloudbench("submit", *current, "--dry-run")
    ended = cloudbench("submit", *current, "--yes")
    assert ended.returncode == 0, ended.stderr
    told = [dry.stdout, dry.stderr, ended.stdout, ended.stderr]
    left = [path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file()]
    for hidden in (environment["CLOUDBENCH_AWS_SECRET_KEY"], "X-Amz-Signature"):
        assert not [text for text in told if hidden in text]
        assert not [data for data in left if hidden.encode() in data]


@pytest.mark.slow
def test_one_experiment_runs_on_both_clouds_and_one_summary_shows_both(
    cloudbench: Cloudbench, steps_template: Path, tmp_path: Path
) -> None:
    experiment = tmp_path / "experiment.yaml"
    experiment.write_text(
        "name: both\n"
        f"templates: [{steps_template}]\n"
        "setups:\n"
        "  - {name: azure, provider: azure, sku: NC6, nodes: 2}\n"
        "  - {name: aws, provider: aws, sku: p2.xlarge, nodes: 2}\n"
        "  - {name: ec2, provider: aws, service: ec2, sku: p2.xlarge, nodes: 2}\n"
    )
    ended = cloudbench("run", str(experiment), "--rehearse", "--format", "json")
    assert ended.returncode == 0, ended.stderr
    assert [(row["label"], row["throughput"]) for row in rows(ended.stdout)] == [
        ("azure", 20.0),
        ("aws", 20.0),
        ("ec2", 20.0),
    ]
