"""A rehearsal on virtual machines as a person meets it: one command, no account, and nothing left of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.conftest import STEPS
from tests.processes import told_by
from tests.providers.conformance import until

SCENARIO = "{allocation_s: 0.2, boot_s: 0.1, delete_s: 0.2"
VM = ["--provider", "azure", "--service", "vm", "--sku", "NC12", "--rehearse"]


def processes_below(folder: Path) -> list[psutil.Process]:
    """Those that run a program below a folder, or work there."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            named = any(str(folder) in word for word in process.cmdline()) or process.cwd().startswith(str(folder))
            if named and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


class Home:
    """A person's home, a template that prints steps, and the command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "steps.yaml").write_text(STEPS)

    def submit(self, *arguments: str, scenario: str = "") -> tuple[dict[str, Any], str]:
        """The only row of what is printed, and what was told meanwhile."""
        (self.folder / "scenario.yaml").write_text(f"{SCENARIO}{scenario}}}\n")
        named = ["--template", "steps.yaml", "--scenario", "scenario.yaml", "--format", "json"]
        ended = self.run("submit", *VM, *named, *arguments)
        [row] = json.loads(ended.stdout)["rows"]
        return row, ended.stderr

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A submission that goes on."""
        (self.folder / "scenario.yaml").write_text(f"{SCENARIO}}}\n")
        named = ["--template", "steps.yaml", "--scenario", "scenario.yaml"]
        return subprocess.Popen(
            [sys.executable, "-m", "cloudbench", "submit", *VM, *named, *arguments],
            env={**os.environ, "CLOUDBENCH_HOME": str(self.folder / "home")},
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "cloudbench", *arguments],
            env={**os.environ, "CLOUDBENCH_HOME": str(self.folder / "home")},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=240,
        )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.mark.parametrize("more", [["--priority", "low-priority", "--storage", "local"], ["--image", "some/image:1"]])
def test_a_rehearsal_trains_and_leaves_nothing(home: Home, more: list[str]) -> None:
    row, told = home.submit("--nodes", "2", *more)
    assert (row["nodes"], row["throughput"]) == (2, 20.0), told
    assert "DSVM" in row["note"]
    assert "This is a rehearsal" in told
    assert list((home.folder / "home" / "rehearsals").iterdir()) == []
    [run] = json.loads(home.run("status", "--format", "json").stdout)["runs"]
    assert (run["phase"], run["outcome"]) == ("released", "succeeded")
    assert "images/sec: 10.0" in home.run("logs", run["run"], "--node", "1").stdout


def test_a_preempted_run_is_tried_again(home: Home) -> None:
    slow = ["--set", "steps=12", "--set", "pause_s=0.25"]
    row, told = home.submit("--priority", "low-priority", *slow, scenario=", preempt_after_s: 1")
    assert row["attempts"] == 2, told
    assert row["throughput"] == 10.0


def test_the_dry_run_shows_the_template_and_no_secret(home: Home) -> None:
    shown = home.run("submit", *VM, "--template", "steps.yaml", "--dry-run").stdout
    assert "Microsoft.Compute/virtualMachines" in shown
    assert "(read-only address of push.json)" in shown
    assert "sig=" not in shown


def test_the_script_of_a_machine_does_not_outlive_a_killed_rehearsal(home: Home) -> None:
    client = home.start("--set", "steps=6000", "--set", "pause_s=0.2")
    rehearsals = home.folder / "home" / "rehearsals"

    def scripts() -> list[str]:
        return [told for told in told_by(processes_below(rehearsals)) if "./user-data" in told]

    try:
        until(lambda: list(rehearsals.glob("*/shares/cloudbench/runs/*/node-0/rank-0.log")))
        assert scripts()
        client.send_signal(signal.SIGKILL)
        client.wait()
        until(lambda: not scripts())
    finally:
        client.kill()
        client.wait()
        for process in processes_below(rehearsals):  # node programs watch the client themselves, at their leisure
            with contextlib.suppress(psutil.Error):
                process.kill()
