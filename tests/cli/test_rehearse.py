"""A rehearsal as a person meets it: one command, no account, real nodes, and nothing left of it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.conftest import Cloudbench
from tests.processes import of_run
from tests.providers.conformance import until

Started = Callable[..., "subprocess.Popen[str]"]

QUICK = "{allocation_s: 0.2, boot_s: 0.1, start_s: 0.1, leave_s: 0.1, delete_s: 0.2"
AZURE = ["--provider", "azure", "--sku", "NC12"]


@pytest.fixture
def quick(tmp_path: Path) -> Callable[[str], str]:
    """A scenario file with short delays, and what else is asked for."""

    def write(more: str = "") -> str:
        path = tmp_path / "scenario.yaml"
        path.write_text(f"{QUICK}{more}}}\n")
        return str(path)

    return write


def rows(output: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(output)["rows"]
    return found


def test_a_rehearsal_needs_no_account_and_leaves_nothing(
    cloudbench: Cloudbench, quick: Callable[[str], str], steps_template: Path, tmp_path: Path
) -> None:
    ended = cloudbench(
        "submit", *AZURE, "--template", str(steps_template), "--nodes", "2", "--priority", "low-priority",
        "--rehearse", "--scenario", quick(""), "--format", "json",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    [row] = rows(ended.stdout)
    assert (row["nodes"], row["throughput"]) == (2, 20.0)
    assert "Azure Batch" in row["note"]
    assert "rehearsed on CPU" in row["note"]
    assert "This is a rehearsal" in ended.stderr
    assert "warning: Standard_NC12 (2 x K80 of 12 GiB) has been retired since 2023" in ended.stderr
    assert list((tmp_path / "home" / "rehearsals").iterdir()) == []
    [run] = json.loads(cloudbench("status", "--format", "json").stdout)["runs"]
    assert (run["phase"], run["outcome"]) == ("released", "succeeded")
    assert of_run(run["run"]) == []
    assert "images/sec: 10.0" in cloudbench("logs", run["run"], "--node", "1").stdout


def test_a_preempted_run_is_tried_again_and_says_so(
    cloudbench: Cloudbench, quick: Callable[[str], str], steps_template: Path
) -> None:
    ended = cloudbench(
        "submit", *AZURE, "--template", str(steps_template), "--set", "steps=12", "--set", "pause_s=0.25",
        "--priority", "low-priority", "--rehearse", "--scenario", quick(", preempt_after_s: 1"), "--format", "json",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    [row] = rows(ended.stdout)
    assert row["attempts"] == 2
    assert "preempted" in ended.stderr


def test_a_run_without_quota_ends_with_4_and_the_services_words(cloudbench: Cloudbench, steps_template: Path) -> None:
    ended = cloudbench(
        "submit", *AZURE, "--template", str(steps_template), "--rehearse", "--scenario", "pool-quota", "--repeat", "1"
    )
    assert ended.returncode == 4
    assert "quota: the machines could not be asked for — Azure says: " in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([*AZURE], 4, "has been retired since 2023"),
        (["--provider", "azure", "--sku", "NC4as_T4_v3"], 3, "no Azure account is set: batch_endpoint"),
        ([*AZURE, "--rehearse", "--detach"], 2, "the stand-ins of a rehearsal live in this command"),
        ([*AZURE, "--scenario", "quota"], 2, "only a rehearsal goes by one"),
        ([*AZURE, "--rehearse", "--scenario", "quotas"], 2, "did you mean 'quota'?"),
        ([*AZURE, "--rehearse", "--storage", "floppy"], 2, "storage floppy"),
        ([*AZURE, "--rehearse", "--service", "bach"], 2, "did you mean 'batch'?"),
        ([*AZURE, "--rehearse", "--azure", "share=mine"], 2, "a rehearsal has an account of its own"),
        ([*AZURE, "--aws", "bucket=mine"], 2, "nothing is to run there"),
        ([*AZURE, "--rehearse", "--storage", "azure-blob/Data"], 2, "no container can be called 'Data'"),
        ([*AZURE, "--rehearse", "--image", "Mine"], 2, "no container image can be called 'Mine'"),
        ([*AZURE, "--azure", "sharing=x"], 2, "did you mean 'share'?"),
        ([*AZURE, "--azure", "storage_key=x"], 2, "others on this machine can read a command line"),
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


def test_a_dry_run_needs_no_account_to_print_the_requests(cloudbench: Cloudbench) -> None:
    ended = cloudbench("submit", *AZURE, "--nodes", "2", "--dry-run", "--format", "json")
    assert ended.returncode == 4, "and then tells that the size is retired"
    job = json.loads(ended.stdout)["steps"][-1]["body"]["POST /jobs"]
    assert job["poolInfo"]["autoPoolSpecification"]["pool"]["vmSize"] == "Standard_NC12"
    assert "(storage_account)" in ended.stdout


@pytest.fixture
def served(started: Started, environment: dict[str, str], quick: Callable[[str], str]) -> subprocess.Popen[str]:
    """Stand-ins that are up, and this environment's account."""
    process = started("rehearse", "--serve", "--scenario", quick(""), "--format", "json")
    assert process.stdout
    values = json.loads(process.stdout.readline())
    environment.update({f"CLOUDBENCH_AZURE_{key.upper()}": value for key, value in values.items()})
    return process


def test_stand_ins_that_are_kept_up_serve_any_client(
    cloudbench: Cloudbench, served: subprocess.Popen[str], environment: dict[str, str], steps_template: Path
) -> None:
    submit = ["submit", "--provider", "azure", "--sku", "NC4as_T4_v3", "--template", str(steps_template), "--yes"]
    detached = cloudbench(*submit, "--detach", "--format", "json")
    assert detached.returncode == 0, detached.stderr
    [run] = json.loads(detached.stdout)["runs"]

    elsewhere = {**environment, "CLOUDBENCH_AZURE_SHARE": "another"}
    environment.clear()
    environment.update(elsewhere)
    refused = cloudbench("collect", run)
    assert refused.returncode == 3
    assert "is in another account than the one that is set" in refused.stderr

    environment["CLOUDBENCH_AZURE_SHARE"] = "cloudbench"
    driven = cloudbench("resume", run, "--format", "json")
    assert driven.returncode == 0, driven.stderr
    [row] = rows(driven.stdout)
    assert row["throughput"] == 10.0
    assert "rehearsed on CPU" in row["note"], "nobody takes its figure for Azure's"

    served.send_signal(signal.SIGINT)
    assert served.wait(timeout=60) == 0


def test_no_key_is_anywhere_that_a_run_leaves_or_shows(
    cloudbench: Cloudbench,
    started: Started,
    served: subprocess.Popen[str],
    environment: dict[str, str],
    steps_template: Path,
    tmp_path: Path,
) -> None:
    environment |= {"CLOUDBENCH_AZURE_REGISTRY_SERVER": "registry.example"}
    environment |= {"CLOUDBENCH_AZURE_REGISTRY_USERNAME": "puller", "CLOUDBENCH_AZURE_REGISTRY_PASSWORD": "sesame-4711"}
    secrets = [value for key, value in environment.items() if key in {
        "CLOUDBENCH_AZURE_BATCH_KEY", "CLOUDBENCH_AZURE_STORAGE_KEY", "CLOUDBENCH_AZURE_REGISTRY_PASSWORD"
    }]  # fmt: skip
    assert len(secrets) == 3
    submit = ["submit", "--provider", "azure", "--sku", "NC4as_T4_v3", "--template", str(steps_template)]
    submit += ["--image", "registry.example/image", "--yes"]
    told = [cloudbench(*submit, "--dry-run").stdout, cloudbench(*submit, "--dry-run", "--format", "json").stdout]
    assert "registry.example/image" in told[0]

    client = started(*submit, "--set", "steps=10", "--set", "pause_s=0.3", "--set", "exit_code=3")
    seen: set[str] = set()
    while client.poll() is None:
        commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
        seen |= {" ".join(command) for command in commands if "cloudbench" in " ".join(command)}
    told += client.communicate()
    assert client.returncode == 5
    assert any("cloudbench-node.pyz push" in command for command in seen)

    environment["CLOUDBENCH_AZURE_STORAGE_KEY"] = secrets[0]
    for arguments in (submit, ["doctor", "--provider", "azure"]):
        refused = cloudbench(*arguments)
        assert refused.returncode == 3
        told += [refused.stdout, refused.stderr]
    told += seen
    told += [path.read_bytes().decode("latin-1") for path in (tmp_path / "home").glob("journal*")]
    told += [path.read_bytes().decode("latin-1") for path in (tmp_path / "home" / "runs").rglob("*") if path.is_file()]
    assert any("went wrong: as asked" in text for text in told)
    for secret in [*secrets, "sig="]:
        assert [text[:200] for text in told if secret in text] == []


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_rehearsal_that_is_cut_off_leaves_nothing(
    cloudbench: Cloudbench,
    started: Started,
    quick: Callable[[str], str],
    steps_template: Path,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    client = started(
        "submit", *AZURE, "--template", str(steps_template), "--set", "steps=6000", "--set", "pause_s=0.2",
        "--rehearse", "--scenario", quick(""),
    )  # fmt: skip
    until(lambda: json.loads(cloudbench("status", "--format", "json").stdout)["runs"])
    [run] = json.loads(cloudbench("status", "--format", "json").stdout)["runs"]
    until(lambda: "images/sec" in cloudbench("logs", run["run"]).stdout)

    client.send_signal(number)
    _, told = client.communicate(timeout=240)
    deadline = time.monotonic() + 240  # a node that cannot push any more gives up after a minute
    while of_run(run["run"]):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    if number == signal.SIGKILL:
        assert cloudbench("resume", run["run"]).returncode == 5
        assert "images/sec" in cloudbench("logs", run["run"]).stdout, "no line that was printed is lost"
    else:
        assert client.returncode == 130, told

    [run] = json.loads(cloudbench("status", "--format", "json").stdout)["runs"]
    assert run["phase"] == "released"
    assert list((tmp_path / "home" / "rehearsals").iterdir()) == []


@pytest.mark.tensorflow
@pytest.mark.parametrize("service", ["batch", "vm"])
def test_a_rehearsal_trains_in_containers_of_a_real_engine(
    cloudbench: Cloudbench, quick: Callable[[str], str], cpu_image: str, tmp_path: Path, service: str
) -> None:
    ended = cloudbench(
        "submit", *AZURE, "--service", service, "--nodes", "2", "--image", cpu_image,
        "--rehearse", "--scenario", quick(""), "--format", "json",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    [row] = rows(ended.stdout)
    assert (row["nodes"], row["gpus_per_node"], row["status"]) == (2, 2, "ok")
    facts = [json.loads(path.read_text()) for path in (tmp_path / "home").rglob("facts.json")]
    assert [found["image"] for found in facts] == [cpu_image] * 2
