"""How a job of AWS Batch stands, by what the service tells of it."""

from __future__ import annotations

from typing import Any

import pytest

from cloudbench.providers.aws.batch_status import RELEASED, STOPPED, Waited, conclude, glance, unplaceable
from cloudbench.providers.verdict import NodeStatus
from cloudbench.run import Outcome, Status

NOW = 1_800_000_000.0
WAITED = Waited(explained_s=900.0, unexplained_s=1800.0)
GOOD = NodeStatus(state="ended", outcome=Outcome.SUCCEEDED, exit_code=0)
BAD = NodeStatus(state="ended", outcome=Outcome.FAILED, exit_code=3, reason="rank 1 failed", last_lines=("broken",))
RUNNING = NodeStatus(state="running")


def job(status: str, reason: str | None = None, *, waits_s: float = 0.0, **more: Any) -> dict[str, Any]:
    found = {"jobId": "a1", "status": status, "createdAt": int((NOW - waits_s) * 1000), **more}
    return found if reason is None else {**found, "statusReason": reason}


@pytest.mark.parametrize("status", ["SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING"])
def test_a_job_goes_on_in_the_words_of_the_service(status: str) -> None:
    assert glance(job(status, waits_s=60), NOW, WAITED) == Status(vendor_state=status)


@pytest.mark.parametrize("status", ["STARTING", "RUNNING"])
def test_a_job_that_has_machines_does_not_wait(status: str) -> None:
    found = glance(job(status, waits_s=100_000), NOW, WAITED)
    assert found is not None
    assert not found.ended


@pytest.mark.parametrize(
    ("words", "outcome", "told"),
    [
        ("MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - too much", Outcome.INFRASTRUCTURE, "asks for more than"),
        ("MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE - x", Outcome.INFRASTRUCTURE, "environment may have"),
        ("ACTION_REQUIRED - CE(s) are invalid", Outcome.INFRASTRUCTURE, "cannot be used"),
    ],
)
def test_what_no_waiting_heals_ends_at_once(words: str, outcome: Outcome, told: str) -> None:
    status = glance(job("RUNNABLE", words), NOW, WAITED)
    assert status is not None
    assert status.outcome is outcome
    assert told in str(status.reason)
    assert str(status.reason).endswith(f"AWS says: {words}")


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        ("CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - no p3.8xlarge", Outcome.NO_CAPACITY),
        ("UNDETERMINED - root cause is undetermined", Outcome.NO_CAPACITY),
        ("UNDETERMINED - VcpuLimitExceeded", Outcome.QUOTA),
    ],
)
def test_what_may_pass_is_waited_for_and_then_ends_with_the_services_words(words: str, outcome: Outcome) -> None:
    early, late = (glance(job("RUNNABLE", words, waits_s=waits_s), NOW, WAITED) for waits_s in (899, 901))
    assert early is not None
    assert late is not None
    assert not early.ended
    assert late.outcome is outcome
    assert words in str(late.reason)


def test_a_job_that_waits_without_a_reason_ends_in_an_outcome_too() -> None:
    status = glance(job("RUNNABLE", waits_s=1801), NOW, WAITED)
    assert status is not None
    assert status.outcome is Outcome.NO_CAPACITY
    assert "quota" in str(status.reason)


def test_a_problem_of_the_environment_ends_a_job_that_waits_for_it() -> None:
    waiting = Status(vendor_state="RUNNABLE")
    assert unplaceable(waiting, None) == waiting
    assert unplaceable(waiting, "INVALID: no such role").outcome is Outcome.INFRASTRUCTURE
    assert unplaceable(waiting, "INVALID: VcpuLimitExceeded").outcome is Outcome.QUOTA


def test_a_job_that_succeeded_has_nodes_that_did_said_or_not() -> None:
    status = conclude(job("SUCCEEDED"), [GOOD, None], low_priority=False)
    assert (status.outcome, status.exit_code, status.reason) == (Outcome.SUCCEEDED, 0, None)


def test_a_rank_that_failed_is_the_cause() -> None:
    failed = job("FAILED", "Essential container in task exited", container={"exitCode": 3})
    status = conclude(failed, [GOOD, BAD], low_priority=False)
    assert (status.outcome, status.exit_code, status.last_lines) == (Outcome.FAILED, 3, ("broken",))
    assert status.vendor_state == "job FAILED: Essential container in task exited"


@pytest.mark.parametrize(("low_priority", "outcome"), [(True, Outcome.PREEMPTED), (False, Outcome.INFRASTRUCTURE)])
def test_a_machine_that_is_gone_is_a_preemption_on_spot_only(low_priority: bool, outcome: Outcome) -> None:
    status = conclude(job("FAILED", "Host EC2 (instance i-1) terminated."), [RUNNING], low_priority=low_priority)
    assert status.outcome is outcome
    assert "Host EC2 (instance i-1) terminated." in str(status.reason)


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        (STOPPED, Outcome.CANCELLED),
        (RELEASED, Outcome.INFRASTRUCTURE),
        ("Job attempt duration exceeded timeout", Outcome.TIMED_OUT),
    ],
)
@pytest.mark.parametrize("said", [[None], [RUNNING]])
def test_what_ended_a_job_from_outside_is_its_outcome(
    reason: str, outcome: Outcome, said: list[NodeStatus | None]
) -> None:
    status = conclude(job("FAILED", reason), said, low_priority=False)
    assert status.outcome is outcome
    assert status.reason


def test_a_node_that_never_said_a_word_leaves_the_services_words() -> None:
    pulled = job("FAILED", "Task failed to start", container={"reason": "CannotPullContainerError: manifest unknown"})
    status = conclude(pulled, [None, None], low_priority=False)
    assert status.outcome is Outcome.INFRASTRUCTURE
    assert "the image could not be pulled" in str(status.reason)
    assert "manifest unknown" in str(status.reason)
    killed = job(
        "FAILED", "Essential container in task exited", container={"exitCode": 137, "reason": "OutOfMemoryError"}
    )
    status = conclude(killed, [None], low_priority=False)
    assert status.exit_code == 137
    assert "OutOfMemoryError" in str(status.reason)


def test_a_job_that_the_queue_gave_up_had_no_machine() -> None:
    words = "Canceled by JobStateTimeLimit action due to reason: CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"
    assert conclude(job("FAILED", words), [None], low_priority=False).outcome is Outcome.NO_CAPACITY
