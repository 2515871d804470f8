from __future__ import annotations

import json
from typing import Any

import pytest

from cloudbench.providers.azure.vm_status import Machine, Seen, conclude, glance, outcome_of, read_machine, words_of
from cloudbench.providers.verdict import NodeStatus
from cloudbench.run import Outcome

NOW = "2026-03-04T12:00:00+00:00"
RUNNING = Machine(state="succeeded", power="running", changed_at="2026-03-04T11:00:00.1234567Z")
TAKEN = Machine(state="succeeded", power="deallocated", changed_at="2026-03-04T11:30:00.1234567Z")
SUCCEEDED = NodeStatus(state="ended", outcome=Outcome.SUCCEEDED, exit_code=0)


def seen(*machines: Machine, spot: bool = False, **changes: Any) -> Seen:
    tags = {
        "cloudbench_nodes": "2",
        "cloudbench_priority": "low-priority" if spot else "dedicated",
        "cloudbench_until": "2026-03-04T13:00:00+00:00",
        **changes.pop("tags", {}),
    }
    return Seen(tags=tags, machines={f"node-{index}": each for index, each in enumerate(machines)}, **changes)


def test_a_machine_is_read_from_the_listing() -> None:
    statuses = [
        {"code": "ProvisioningState/failed/AllocationFailed", "message": "none left", "time": "2026-03-04T11:00:00Z"},
        {"code": "PowerState/deallocated"},
    ]
    listed = {"properties": {"provisioningState": "Failed", "instanceView": {"statuses": statuses}}}
    assert read_machine(listed) == Machine(
        state="failed",
        power="deallocated",
        error={"code": "AllocationFailed", "message": "none left"},
        changed_at="2026-03-04T11:00:00Z",
    )
    assert read_machine({}) == Machine()


def test_a_job_goes_on_until_every_node_has_ended() -> None:
    assert glance(seen(), now=NOW).outcome is None  # type: ignore[union-attr]
    going = glance(seen(RUNNING, RUNNING, ended=frozenset({1})), now=NOW)
    assert going is not None
    assert going.outcome is None
    assert going.vendor_state == "node-0 running, node-1 running"
    assert glance(seen(RUNNING, RUNNING, ended=frozenset({0, 1})), now=NOW) is None


def test_a_spot_machine_that_is_gone_was_taken_back() -> None:
    status = glance(seen(RUNNING, TAKEN, spot=True), now=NOW)
    assert status is not None
    assert status.outcome is Outcome.PREEMPTED
    assert "node-1" in (status.reason or "")


def test_a_spot_machine_that_is_taken_back_after_the_job_changes_nothing() -> None:
    late = seen(RUNNING, TAKEN, spot=True, ended=frozenset({0, 1}))
    assert glance(late, now=NOW) is None
    assert conclude(late, [SUCCEEDED, SUCCEEDED], [(), ()], stopped=False, now=NOW).outcome is Outcome.SUCCEEDED
    failed = NodeStatus(state="ended", outcome=Outcome.FAILED, exit_code=3)
    assert conclude(late, [failed, failed], [(), ()], stopped=False, now=NOW).outcome is Outcome.FAILED


def test_a_spot_machine_whose_node_had_the_time_to_say_that_it_ends_was_taken_back() -> None:
    told = NodeStatus(state="ended", outcome=Outcome.CANCELLED, exit_code=None, reason="node 1 got SIGTERM")
    taken = seen(RUNNING, TAKEN, spot=True, ended=frozenset({0, 1}))
    assert glance(taken, now=NOW) is None
    status = conclude(taken, [told, told], [(), ()], stopped=False, now=NOW)
    assert status.outcome is Outcome.PREEMPTED
    assert "node-1" in (status.reason or "")
    assert conclude(taken, [told, told], [(), ()], stopped=True, now=NOW).outcome is Outcome.CANCELLED


def test_what_is_gone_at_the_time_that_was_set_reached_the_limit() -> None:
    for spot in (True, False):
        over = seen(TAKEN, TAKEN, spot=spot, tags={"cloudbench_until": "2026-03-04T11:29:00+00:00"})
        assert glance(over, now=NOW) is None
        status = conclude(over, [None, None], [(), ()], stopped=False, now=NOW)
        assert status.outcome is Outcome.TIMED_OUT
        assert "2026-03-04T11:29" in (status.reason or "")


def test_a_dedicated_machine_that_somebody_took_away_is_no_preemption() -> None:
    assert glance(seen(TAKEN, RUNNING), now=NOW).outcome is None  # type: ignore[union-attr]
    status = conclude(seen(TAKEN, TAKEN), [None, None], [(), ()], stopped=False, now=NOW)
    assert status.outcome is Outcome.INFRASTRUCTURE
    assert "node 0's program, node 1's program" in (status.reason or "")


def test_a_machine_that_somebody_deleted_is_waited_for_until_its_time_is_over() -> None:
    there = seen(RUNNING, ended=frozenset({0}))
    assert glance(there, now=NOW).outcome is None  # type: ignore[union-attr]
    assert glance(there, now="2026-03-04T13:01:00+00:00") is None


def test_a_machine_that_failed_ends_the_job_with_its_words() -> None:
    failed = Machine(state="failed", error={"code": "ZonalAllocationFailed", "message": "none left\nat all"})
    status = glance(seen(RUNNING, failed), now=NOW)
    assert status is not None
    assert status.outcome is Outcome.NO_CAPACITY
    assert status.reason == "1 of 2 machines could be had — Azure says: ZonalAllocationFailed: none left"


def test_a_deployment_that_failed_without_a_machine_ends_the_job() -> None:
    error = {"code": "DeploymentFailed", "message": "see", "details": [{"code": "PublicIPCountLimitReached"}]}
    status = glance(seen(RUNNING, error=error), now=NOW)
    assert status is not None
    assert status.outcome is Outcome.INFRASTRUCTURE
    assert "PublicIPCountLimitReached" in (status.reason or "")


def test_causes_are_found_in_details_and_in_json_inside_of_messages() -> None:
    inner = {"error": {"code": "QuotaExceeded", "message": "0 cores are left"}}
    error = {"code": "DeploymentFailed", "message": "see", "details": [{"code": "Bad", "message": json.dumps(inner)}]}
    assert outcome_of(error) is Outcome.QUOTA
    assert words_of(error) == "QuotaExceeded: 0 cores are left"
    assert words_of({"code": "Alone", "message": "it is"}) == "Alone: it is"


@pytest.mark.parametrize(
    ("said", "stopped", "outcome"),
    [
        ([SUCCEEDED, SUCCEEDED], False, Outcome.SUCCEEDED),
        ([SUCCEEDED, SUCCEEDED], True, Outcome.SUCCEEDED),
        ([SUCCEEDED, None], False, Outcome.INFRASTRUCTURE),
        ([None, None], True, Outcome.CANCELLED),
        ([NodeStatus(state="running"), NodeStatus(state="running")], True, Outcome.CANCELLED),
        ([NodeStatus(state="ended", outcome=Outcome.FAILED, exit_code=3), SUCCEEDED], True, Outcome.FAILED),
    ],
)
def test_how_a_job_ended_is_what_its_nodes_say(said: list[NodeStatus | None], stopped: bool, outcome: Outcome) -> None:
    status = conclude(seen(RUNNING, RUNNING), said, [(), ("last words",)], stopped=stopped, now=NOW)
    assert status.outcome is outcome


def test_a_script_that_failed_before_the_node_program_gives_its_last_lines() -> None:
    status = conclude(seen(RUNNING, RUNNING), [None, None], [("GET failed: 404",), ()], stopped=False, now=NOW)
    assert status.outcome is Outcome.INFRASTRUCTURE
    assert status.last_lines == ("GET failed: 404",)


def test_without_a_group_there_is_no_job() -> None:
    status = glance(Seen(), now=NOW)
    assert status is not None
    assert status.outcome is Outcome.INFRASTRUCTURE
    deleting = glance(seen(RUNNING, deleting=True), now=NOW)
    assert deleting is not None
    assert not deleting.ended
