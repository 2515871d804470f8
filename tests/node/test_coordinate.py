"""What node 0 decides."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cloudbench.node.coordinate import Cause, Coordinator, first_cause


def coordinator(nodes: int = 2) -> Coordinator:
    return Coordinator(nodes, now=0.0, peers_timeout_s=10.0, stop_timeout_s=5.0)


def cause(time: float, rank: int | None = None, **more: Any) -> Cause:
    return Cause(time=time, outcome="failed", reason=f"rank {rank} failed", failed_rank=rank, **more)


def say(coordinator: Coordinator, kind: str, *nodes: int, now: float = 1.0, **more: Any) -> list[dict[str, Any]]:
    return [answer for node in nodes for answer in coordinator.receive(node, {"type": kind, **more}, now)]


def greet(coordinator: Coordinator, *nodes: int) -> list[dict[str, Any]]:
    return [
        answer for node in nodes for answer in coordinator.receive(node, {"type": "hello", "peer": {"node": node}}, 1.0)
    ]


def test_every_step_waits_for_all_nodes() -> None:
    run = coordinator()
    assert greet(run, 1) == []
    assert greet(run, 0) == [{"type": "peers", "peers": [{"node": 0}, {"node": 1}]}]
    assert say(run, "ready", 0) == []
    assert say(run, "ready", 1) == [{"type": "go"}]
    assert say(run, "finished", 1) == []
    assert say(run, "finished", 0) == [{"type": "stop", "cause": None}]
    assert say(run, "stopped", 0, causes=[]) == []
    assert say(run, "stopped", 1, causes=[]) == [{"type": "verdict", "cause": None}]


def test_failure_stops_all_and_the_verdict_waits_for_earlier_ones() -> None:
    run = coordinator()
    greet(run, 0, 1)
    consequence, origin = cause(1.2, 0), cause(1.0, 1)
    (stop,) = say(run, "failure", 0, now=1.2, causes=[consequence.to_message(1.2)])
    assert (stop["type"], stop["cause"]["failed_rank"]) == ("stop", 0)
    assert say(run, "stopped", 0, now=1.3, causes=[]) == []
    (verdict,) = say(run, "stopped", 1, now=1.3, causes=[origin.to_message(1.3)])
    assert (verdict["type"], verdict["cause"]["failed_rank"]) == ("verdict", 1)


def test_a_node_that_comes_late_learns_how_the_run_ends() -> None:
    run = coordinator()
    greet(run, 0)
    say(run, "failure", 0, causes=[cause(1.0, 0).to_message(1.0)])
    assert [(answer["type"], answer["cause"]["failed_rank"]) for answer in say(run, "stopped", 0, causes=[])] == [
        ("verdict", 0)
    ]
    assert [(answer["type"], answer["cause"]["failed_rank"]) for answer in greet(run, 1)] == [
        ("stop", 0),
        ("verdict", 0),
    ]


def test_failure_after_the_start_was_missed_gives_no_start() -> None:
    run = coordinator()
    greet(run, 0, 1)
    say(run, "ready", 0)
    say(run, "failure", 1, causes=[cause(1.0).to_message(1.0)])
    assert say(run, "ready", 1) == []


def test_lost_node_is_the_cause_and_is_not_waited_for() -> None:
    run = coordinator(3)
    greet(run, 0, 1, 2)
    say(run, "failure", 0, now=1.0, causes=[cause(0.99, 0).to_message(1.0)])
    assert run.lost(2, "node 2", 1.1) == []
    say(run, "stopped", 0, now=1.2, causes=[])
    (verdict,) = say(run, "stopped", 1, now=1.2, causes=[])
    assert verdict["cause"]["outcome"] == "infrastructure"
    assert verdict["cause"]["reason"].startswith("node 2 was lost")


def test_node_that_leaves_after_it_stopped_is_no_loss() -> None:
    run = coordinator()
    greet(run, 0, 1)
    say(run, "finished", 0, 1)
    say(run, "stopped", 1, causes=[])
    assert run.lost(1, "node 1", 2.0) == []
    assert say(run, "stopped", 0, causes=[]) == [{"type": "verdict", "cause": None}]


def test_nodes_that_do_not_arrive_are_named() -> None:
    run = coordinator(4)
    greet(run, 0, 2)
    assert run.tick(9.9) == []
    (stop,) = run.tick(10.0)
    assert stop["cause"]["reason"] == "nodes 1, 3 did not arrive within 10 s"
    say(run, "stopped", 0, now=10.1, causes=[])
    (verdict,) = say(run, "stopped", 2, now=10.1, causes=[])
    assert verdict["cause"]["outcome"] == "infrastructure"


def test_node_that_does_not_stop_is_not_waited_for_longer_than_its_time() -> None:
    run = coordinator()
    greet(run, 0, 1)
    say(run, "finished", 0, 1, now=2.0)
    say(run, "stopped", 0, now=2.0, causes=[])
    assert run.tick(6.9) == []
    assert [message["type"] for message in run.tick(7.0)] == ["verdict"]
    assert run.tick(8.0) == []


def test_cause_from_outside_goes_before_failures_of_about_the_same_time() -> None:
    failed, killed = cause(1.0, 0), cause(1.4, 3, external=True)
    assert first_cause([failed, killed]) == killed
    late = cause(60.0, 3, external=True)
    assert first_cause([late, failed]) == failed


def test_no_cause_is_success() -> None:
    assert first_cause([]) is None


@given(st.lists(st.builds(cause, st.floats(0, 100), st.integers(0, 7), external=st.booleans())), st.randoms())
def test_first_cause_does_not_depend_on_the_order_of_arrival(causes: list[Cause], random: Any) -> None:
    shuffled = list(causes)
    random.shuffle(shuffled)
    first, again = first_cause(causes), first_cause(shuffled)
    assert (first and (first.time, first.external)) == (again and (again.time, again.external))


@given(st.builds(cause, st.floats(0, 100), st.integers(0, 7), last_lines=st.tuples(st.text())))
def test_cause_survives_the_way_to_a_node_with_another_clock(sent: Cause) -> None:
    received = Cause.from_message(sent.to_message(now=100.0), now=7100.0)
    assert abs(received.time - sent.time - 7000.0) < 1e-6
    assert received._replace(time=sent.time) == sent
