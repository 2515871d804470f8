"""How a job on EC2 instances stands, by what the service lists of them."""

from __future__ import annotations

import pytest

from cloudbench.providers.aws.ec2_status import (
    ENDED_BY,
    RELEASED,
    STOPPED,
    Instance,
    conclude,
    glance,
    read_instance,
)
from cloudbench.providers.verdict import NodeStatus
from cloudbench.run import Outcome

GOOD = NodeStatus(state="ended", outcome=Outcome.SUCCEEDED, exit_code=0)
BAD = NodeStatus(state="ended", outcome=Outcome.FAILED, exit_code=3, reason="rank 1 failed")
RUNNING = NodeStatus(state="running")


def instance(state: str, reason: str = "", *, ended_by: str | None = None, index: int = 0) -> Instance:
    tags = {ENDED_BY: ended_by} if ended_by else {}
    return Instance(id=f"i-{index}", index=index, state=state, reason=reason, words=f"{reason}: words", tags=tags)


def test_an_instance_is_read_from_its_listing() -> None:
    listed = {
        "InstanceId": "i-1",
        "AmiLaunchIndex": 2,
        "State": {"Name": "terminated"},
        "StateReason": {"Code": "Server.SpotInstanceTermination", "Message": "Spot"},
        "Tags": [{"Key": "a", "Value": "b"}],
    }
    read = read_instance(listed)
    assert (read.index, read.taken_back, read.alive, read.tags) == (2, True, False, {"a": "b"})


def test_a_job_goes_on_while_an_instance_is_there() -> None:
    status = glance([instance("running"), instance("pending", index=1)])
    assert status is not None
    assert (status.outcome, status.vendor_state) == (None, "1 pending, 1 running")
    for state in ("running", "shutting-down"):
        still = glance([instance("terminated", "Client.InstanceInitiatedShutdown"), instance(state, index=1)])
        assert still is not None
        assert not still.ended


def test_one_spot_instance_that_is_taken_back_ends_the_job() -> None:
    status = glance([instance("running"), instance("shutting-down", "Server.SpotInstanceTermination", index=1)])
    assert status is not None
    assert status.outcome is Outcome.PREEMPTED
    assert "1 of 2 spot instances" in str(status.reason)
    assert "AWS says: Server.SpotInstanceTermination: words" in str(status.reason)


def test_instances_that_ended_themselves_leave_what_the_nodes_said() -> None:
    ended = [instance("terminated", "Client.InstanceInitiatedShutdown", index=index) for index in range(2)]
    assert glance(ended) is None
    assert conclude(ended, [GOOD, GOOD]).outcome is Outcome.SUCCEEDED
    failed = conclude(ended, [GOOD, BAD])
    assert (failed.outcome, failed.exit_code, failed.reason) == (Outcome.FAILED, 3, "rank 1 failed")


@pytest.mark.parametrize("said", [[None], [RUNNING]])
@pytest.mark.parametrize(
    ("ended_by", "outcome"),
    [(STOPPED, Outcome.CANCELLED), (RELEASED, Outcome.INFRASTRUCTURE), (None, Outcome.INFRASTRUCTURE)],
)
def test_who_terminated_the_instances_is_told_apart(
    ended_by: str | None, outcome: Outcome, said: list[NodeStatus | None]
) -> None:
    status = conclude([instance("terminated", "Client.UserInitiatedShutdown", ended_by=ended_by)], said)
    assert status.outcome is outcome
    assert status.reason


def test_instances_that_never_came_are_a_lack_of_capacity() -> None:
    status = conclude([instance("terminated", "Server.InsufficientInstanceCapacity")], [None])
    assert status.outcome is Outcome.NO_CAPACITY


def test_a_job_whose_instances_are_forgotten_is_what_its_nodes_said() -> None:
    assert conclude([], [GOOD]).outcome is Outcome.SUCCEEDED
