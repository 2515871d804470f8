from __future__ import annotations

from typing import Any

import pytest

from cloudbench.providers.azure.batch_status import STOPPED, Seen, conclude, glance, with_words_of_nodes
from cloudbench.providers.verdict import NodeStatus
from cloudbench.run import Outcome, Status

SUCCEEDED = NodeStatus(state="ended", outcome=Outcome.SUCCEEDED, exit_code=0)
FAILED = NodeStatus(state="ended", outcome=Outcome.FAILED, exit_code=3, reason="rank 1 failed", last_lines=("boom",))
RUNNING = NodeStatus(state="running")
LOST = NodeStatus(state="ended", outcome=Outcome.INFRASTRUCTURE, reason="node 1 was lost")
TASK = {"executionInfo": {"result": "success", "exitCode": 0}}
BROKEN_TASK = {
    "executionInfo": {
        "result": "failure",
        "exitCode": 3,
        "failureInfo": {"category": "usererror", "code": "FailureExitCode", "message": "The task exited with 3\n"},
    }
}


def seen(*, low_priority: bool = False, counts: dict[str, int] | None = None, **pool: Any) -> Seen:
    target = "targetLowPriorityNodes" if low_priority else "targetDedicatedNodes"
    here = {"id": "p", "state": "active", "allocationState": "steady", target: 2, **pool}
    return Seen(job={"id": "j", "state": "active"}, pool=here, counts=counts or {})


def completed(reason: str = "AllTasksCompleted", *, low_priority: bool = False) -> Seen:
    target = "targetLowPriorityNodes" if low_priority else "targetDedicatedNodes"
    job = {
        "id": "j",
        "state": "completed",
        "executionInfo": {"terminateReason": reason},
        "poolInfo": {"autoPoolSpecification": {"pool": {target: 2}}},
    }
    return Seen(job=job)


def outcome_of(status: Status | None) -> Outcome:
    assert status
    assert status.outcome
    assert status.reason
    return status.outcome


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("AccountCoreQuotaReached", Outcome.QUOTA),
        ("AccountLowPriorityCoreQuotaReached", Outcome.QUOTA),
        ("AccountSpotCoreQuotaReached", Outcome.QUOTA),
        ("AllocationFailed", Outcome.NO_CAPACITY),
        ("AllocationTimedout", Outcome.NO_CAPACITY),
        ("OverconstrainedAllocationRequestError", Outcome.NO_CAPACITY),
        ("UnsupportedVMSize", Outcome.NO_CAPACITY),
        ("SomethingNew", Outcome.INFRASTRUCTURE),
    ],
)
def test_machines_that_cannot_be_had_end_the_job_with_the_services_words(code: str, outcome: Outcome) -> None:
    error = {"code": code, "message": "Words of Azure", "values": [{"name": "Limit", "value": "12"}]}
    status = glance(seen(currentDedicatedNodes=1, resizeErrors=[error]))
    assert outcome_of(status) is outcome
    assert status
    assert status.reason == f"1 of 2 nodes could be had — Azure says: {code}: Words of Azure (Limit: 12)"
    assert status.vendor_state == code


def test_an_old_resize_error_on_a_pool_that_has_its_nodes_means_nothing() -> None:
    error = {"code": "AllocationFailed", "message": "of yesterday"}
    status = glance(seen(currentDedicatedNodes=2, resizeErrors=[error], counts={"running": 2}))
    assert status
    assert not status.ended
    still = glance(seen(allocationState="resizing", currentDedicatedNodes=0, resizeErrors=[error]))
    assert still
    assert not still.ended


def test_a_pool_that_could_not_be_made_ends_the_job() -> None:
    error = {"code": "PoolQuotaReached", "message": "No more pools", "category": "usererror"}
    active = Seen(job={"id": "j", "state": "active", "executionInfo": {"schedulingError": error}})
    assert outcome_of(glance(active)) is Outcome.QUOTA
    ended = Seen(job={"id": "j", "state": "completed", "executionInfo": {"schedulingError": error}})
    assert glance(ended) is None
    assert outcome_of(conclude(ended, None, [None, None])) is Outcome.QUOTA


@pytest.mark.parametrize(
    ("counts", "outcome"),
    [
        ({"preempted": 1, "running": 1}, Outcome.PREEMPTED),
        ({"startTaskFailed": 2}, Outcome.INFRASTRUCTURE),
        ({"unusable": 1, "idle": 1}, Outcome.INFRASTRUCTURE),
    ],
)
def test_nodes_that_are_not_well_end_the_job(counts: dict[str, int], outcome: Outcome) -> None:
    assert outcome_of(glance(seen(low_priority=True, currentLowPriorityNodes=2, counts=counts))) is outcome


def test_the_services_words_about_its_nodes_are_told() -> None:
    status = Status(outcome=Outcome.INFRASTRUCTURE, reason="unusable: 1 of 2 nodes")
    nodes = [
        {"id": "a", "state": "idle"},
        {"id": "b", "state": "unusable", "errors": [{"code": "DiskFull", "message": "No room"}]},
        {"id": "c", "startTaskInfo": {"exitCode": 4, "failureInfo": {"code": "FailureExitCode"}}},
    ]
    reason = with_words_of_nodes(status, nodes).reason
    assert reason == (
        "unusable: 1 of 2 nodes — Azure says: b unusable: DiskFull: No room; c None: FailureExitCode (exit code 4)"
    )


def test_an_image_that_cannot_be_pulled_is_named_so() -> None:
    status = Status(outcome=Outcome.INFRASTRUCTURE, reason="unusable: 1 of 2 nodes")
    error = {"code": "ContainerInvalidImage", "message": "Failed to pull image nobody/nothing"}
    found = with_words_of_nodes(status, [{"id": "a", "state": "unusable", "errors": [error]}])
    assert found.reason
    assert found.reason.startswith("an image could not be pulled — Azure says: a unusable: ContainerInvalidImage")


def test_a_job_that_goes_on_is_told_in_the_services_words() -> None:
    status = glance(seen(allocationState="resizing", counts={"starting": 2, "total": 2}))
    assert status == Status(vendor_state="job active; pool resizing; 2 starting")


@pytest.mark.parametrize("job", [None, {"id": "j", "state": "deleting"}])
def test_a_job_that_is_not_there_has_ended(job: dict[str, Any] | None) -> None:
    assert outcome_of(glance(Seen(job=job))) is Outcome.INFRASTRUCTURE


def test_what_the_nodes_said_is_how_the_job_ended() -> None:
    status = conclude(completed(), TASK, [SUCCEEDED, SUCCEEDED])
    assert (status.outcome, status.exit_code, status.reason) == (Outcome.SUCCEEDED, 0, None)
    status = conclude(completed(), BROKEN_TASK, [LOST, FAILED])
    assert (status.outcome, status.exit_code, status.reason) == (Outcome.FAILED, 3, "rank 1 failed")
    assert status.last_lines == ("boom",)
    assert status.vendor_state
    assert "FailureExitCode" in status.vendor_state


@pytest.mark.parametrize("said", [None, RUNNING])
def test_a_task_that_succeeded_needs_no_word_of_its_nodes(said: NodeStatus | None) -> None:
    assert conclude(completed(), TASK, [said, said]).outcome is Outcome.SUCCEEDED


def test_a_task_that_failed_without_a_word_of_its_nodes_is_told_in_the_services_words() -> None:
    status = conclude(completed(), BROKEN_TASK, [None, None])
    assert outcome_of(status) is Outcome.INFRASTRUCTURE
    assert status.exit_code == 3
    assert status.reason
    assert "FailureExitCode: The task exited with 3" in status.reason


@pytest.mark.parametrize(
    ("reason", "outcome", "told"),
    [
        (STOPPED, Outcome.CANCELLED, "stopped on request"),
        ("UserTerminate", Outcome.CANCELLED, "UserTerminate"),
        ("MaxWallClockTimeExpiry", Outcome.TIMED_OUT, "MaxWallClockTimeExpiry"),
    ],
)
@pytest.mark.parametrize("said", [None, RUNNING, SUCCEEDED])
def test_what_ended_the_job_from_outside_is_the_cause(
    reason: str, outcome: Outcome, told: str, said: NodeStatus | None
) -> None:
    status = conclude(completed(reason), BROKEN_TASK, [said, None])
    assert outcome_of(status) is outcome
    assert status.reason
    assert told in status.reason


def test_a_failure_is_not_hidden_by_a_later_stop() -> None:
    assert conclude(completed(STOPPED), BROKEN_TASK, [FAILED, RUNNING]).outcome is Outcome.FAILED


def test_a_low_priority_node_that_vanished_was_taken_back() -> None:
    status = conclude(completed(low_priority=True), BROKEN_TASK, [LOST, RUNNING])
    assert outcome_of(status) is Outcome.PREEMPTED
    assert conclude(completed(), BROKEN_TASK, [LOST, RUNNING]).outcome is Outcome.INFRASTRUCTURE
    assert conclude(completed(low_priority=True), BROKEN_TASK, [LOST, LOST]).outcome is Outcome.INFRASTRUCTURE
