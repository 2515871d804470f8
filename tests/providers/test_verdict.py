from __future__ import annotations

import itertools

import pytest

from cloudbench.providers.verdict import Ending, Node, NodeStatus, judge
from cloudbench.run import Outcome

SUCCEEDED = NodeStatus(state="ended", outcome=Outcome.SUCCEEDED, exit_code=0, stamps={"end": 9.0})
RUNNING = NodeStatus(state="running")
FAILED = NodeStatus(
    state="ended", outcome=Outcome.FAILED, exit_code=3, reason="rank 1", last_lines=("boom",), stamps={"end": 8.0}
)
CANCELLED = NodeStatus(state="ended", outcome=Outcome.CANCELLED, reason="SIGTERM", stamps={"end": 7.0})
LOST = NodeStatus(state="ended", outcome=Outcome.INFRASTRUCTURE, reason="node 1 was lost", stamps={"end": 6.0})
STOPPED = Ending(at=5.0, outcome=Outcome.CANCELLED, reason="stopped on request")


def nodes(*statuses: NodeStatus | None) -> list[Node]:
    return [Node(index=index, alive=False, status=status) for index, status in enumerate(statuses)]


def test_a_job_has_ended_when_no_node_lives() -> None:
    alive = Node(index=0, alive=True, status=SUCCEEDED)
    assert not judge([alive, *nodes(FAILED)], STOPPED).ended
    assert judge(nodes(SUCCEEDED, SUCCEEDED), None).outcome is Outcome.SUCCEEDED


def test_what_each_node_does_is_told_while_the_job_runs() -> None:
    assert judge([Node(index=0, alive=True), Node(index=1, alive=True)], None).vendor_state == "starting"
    both = [Node(index=0, alive=True, status=RUNNING), Node(index=1, alive=True)]
    assert judge(both, None).vendor_state == "node 0 running, node 1 starting"


def test_one_node_that_did_not_succeed_is_enough() -> None:
    for others in ([SUCCEEDED], [SUCCEEDED, LOST], [CANCELLED, SUCCEEDED], [None]):
        for order in itertools.permutations([FAILED, *others]):
            status = judge(nodes(*order), None)
            assert (status.outcome, status.exit_code, status.reason) == (Outcome.FAILED, 3, "rank 1")
            assert status.last_lines == ("boom",)


def test_a_failure_is_not_hidden_by_a_later_stop() -> None:
    assert judge(nodes(FAILED, FAILED), STOPPED).outcome is Outcome.FAILED


@pytest.mark.parametrize("status", [CANCELLED, LOST, None])
def test_what_ended_the_job_from_this_side_is_the_cause(status: NodeStatus | None) -> None:
    verdict = judge(nodes(status, SUCCEEDED), STOPPED)
    assert (verdict.outcome, verdict.reason) == (Outcome.CANCELLED, "stopped on request")


def test_a_job_that_succeeded_before_it_could_be_stopped_succeeded() -> None:
    assert judge(nodes(SUCCEEDED, SUCCEEDED), STOPPED).outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize("last_word", [None, RUNNING])
def test_a_node_that_died_without_a_word_is_the_infrastructures(last_word: NodeStatus | None) -> None:
    dead = Node(index=1, alive=False, status=last_word, last_lines=("step 7",))
    status = judge([*nodes(SUCCEEDED), dead], None)
    assert status.outcome is Outcome.INFRASTRUCTURE
    assert status.reason
    assert "node 1" in status.reason
    assert status.last_lines == ("step 7",)


def test_a_machines_own_failure_names_its_node() -> None:
    broken = NodeStatus(state="ended", outcome=Outcome.INFRASTRUCTURE, reason="no image", stamps={"end": 6.0})
    assert judge(nodes(SUCCEEDED, broken), None).reason == "node 1: no image"
    assert judge(nodes(LOST, SUCCEEDED), None).reason == "node 1 was lost"
