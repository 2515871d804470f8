"""What `status` and `summary` say of a run that took several attempts, and how a run without files is let go."""

import contextlib
import json
from pathlib import Path

import msgspec
import pytest

from cloudbench.cli.progress import Progress
from cloudbench.plan import RunPlan, plan_experiment
from cloudbench.run import AttemptBegan, Ended, Event, FilesLost, Outcome, Phase, PhaseEntered, Run, Status
from cloudbench.spec import Experiment, JobTemplate, Setup
from cloudbench.store import Store
from tests.cli.conftest import Cloudbench

TEMPLATE = JobTemplate(name="t", command="true", format="tf_cnn_benchmarks", launcher="single", ranks_per_node="1")
PREEMPTED = Ended(status=Status(outcome=Outcome.PREEMPTED, reason="the node was preempted"))


def preempted(home: Path) -> RunPlan:
    """A run that waits for its third attempt, with the journal that a client would have left."""
    asked = Experiment(name="x", templates=("t",), setups=(Setup(),))
    (plan,) = plan_experiment(asked, {"t": TEMPLATE}, owner="me", submission=1)
    plan = msgspec.structs.replace(plan, retries=2, usd_per_hour=3.6)
    events: list[Event] = []
    for number in (2, 3):
        phases = (Phase.PROVISIONING, Phase.READY, Phase.RUNNING)
        events += [*(PhaseEntered(phase=phase) for phase in phases), PREEMPTED]
        events += [PhaseEntered(phase=phase) for phase in (Phase.COLLECTING, Phase.RELEASING)]
        events.append(AttemptBegan(number=number))
    with contextlib.closing(Store(home)) as store:
        store.add((plan,), at=0.0)
        for second, event in enumerate(events):
            store.append(plan.id, event, at=10.0 * second)
    return plan


def test_status_says_which_attempt_of_how_many_it_is(cloudbench: Cloudbench, tmp_path: Path) -> None:
    run = preempted(tmp_path / "home").id
    header, row = cloudbench("status").stdout.splitlines()
    assert header.split() == ["RUN", "PHASE", "ATTEMPT", "OUTCOME", "REASON"]
    assert row.split() == [run, "planned", "3", "of", "3", "-"]
    assert row.index("3 of 3") == header.index("ATTEMPT")
    (found,) = json.loads(cloudbench("status", "--format", "json").stdout)["runs"]
    assert (found["attempt"], found["most_attempts"], found["outcome"]) == (3, 3, None)
    assert [(lost["number"], lost["duration_s"]) for lost in found["earlier_attempts"]] == [(1, 40.0), (2, 40.0)]
    assert found["earlier_attempts"][0]["status"]["reason"] == "the node was preempted"
    assert found["earlier_attempts"][0]["lost_usd"] == pytest.approx(0.04)


def test_a_cloud_that_cannot_be_asked_hides_no_other_run(cloudbench: Cloudbench, tmp_path: Path) -> None:
    run = preempted(tmp_path / "home")
    setup = Setup(provider="azure", sku="NC4as_T4_v3")
    lost = msgspec.structs.replace(run, id="lost", setup=setup, account="somebody's")
    with contextlib.closing(Store(tmp_path / "home")) as store:
        store.add((lost,), at=0.0)
        store.append("lost", PhaseEntered(phase=Phase.RUNNING), at=1.0)
    shown = cloudbench("status")
    assert shown.returncode == 0
    assert [line.split()[:2] for line in shown.stdout.splitlines()[1:]] == [[run.id, "planned"], ["lost", "running"]]
    assert "how lost stands is not known: " in shown.stderr


def test_the_row_of_a_run_counts_its_attempts_and_what_was_lost(cloudbench: Cloudbench, tmp_path: Path) -> None:
    run = preempted(tmp_path / "home").id
    (row,) = json.loads(cloudbench("summary", run, "--format", "json").stdout)["rows"]
    assert (row["attempts"], row["status"]) == (3, "planned")
    assert row["lost_usd"] == pytest.approx(0.08)
    assert row["note"].endswith("; 3 attempts, 0.08 USD lost")


def test_the_logs_of_an_earlier_attempt_can_be_asked_for(cloudbench: Cloudbench, tmp_path: Path) -> None:
    run = preempted(tmp_path / "home").id
    for attempt in (1, 2):
        node = tmp_path / "home" / "runs" / run / f"attempt-{attempt}" / "node-0"
        node.mkdir(parents=True)
        (node / "rank-0.log").write_text(f"this is attempt {attempt}\n")
    for attempt in ("1", "2"):
        ended = cloudbench("logs", run, "--attempt", attempt, "--follow")
        assert ended.stdout == f"this is attempt {attempt}\n"
        assert ended.stderr == f"{run}: attempt {attempt} was preempted, and another one follows\n"
    newest = cloudbench("logs", run)
    assert (newest.stdout, newest.stderr) == ("", f"{run}: no such log yet (planned)\n")
    refused = cloudbench("logs", run, "--attempt", "4")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "the run is at attempt 3" in refused.stderr


def test_a_run_without_its_files_is_let_go_when_a_person_says_so(cloudbench: Cloudbench, steps_template: Path) -> None:
    run = cloudbench("submit", "--template", str(steps_template), "--detach").stdout.strip()
    cloudbench("logs", run, "--follow")
    home = steps_template.parent / "home"
    (home / "runs" / run / "attempt-1").write_text("in the way")
    refused = cloudbench("collect", run)
    assert refused.returncode == 1
    assert f"cloudbench cancel {run} --release-anyway" in refused.stderr
    ended = cloudbench("cancel", run, "--release-anyway")
    assert (ended.returncode, ended.stdout.strip()) == (0, run)
    assert "files of attempt 1 are lost" in ended.stderr
    (row,) = json.loads(cloudbench("summary", run, "--format", "json").stdout)["rows"]
    assert row["note"].endswith("; logs of attempt 1 lost")
    assert not list((home / "local").glob(f"{run}*"))


def test_lost_files_and_new_attempts_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = preempted(tmp_path)
    progress = Progress(lambda run_id: "")
    progress.event(Run(plan=plan), FilesLost(reason="\x1b[31mthe share does not answer"))
    progress.event(Run(plan=plan, attempt=2), AttemptBegan(number=2))
    assert capsys.readouterr().err.splitlines() == [
        f"{plan.id}: files of attempt 1 are lost (the share does not answer)",
        f"{plan.id}: attempt 2 of 3",
    ]
