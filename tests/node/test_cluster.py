"""What nodes tell each other about themselves, and when. How whole programs meet is tested in test_run."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from cloudbench.node.cluster import Cluster, Peer, Received
from cloudbench.node.place import Place


def test_peer_survives_the_way_through_json() -> None:
    peer = Peer(0, "10.0.0.1", "host", (1, 2), 3, 4, 5)
    assert Peer.from_message({**peer._asdict(), "rank_ports": [1, 2]}) == peer


class Node:
    """A node that does nothing but talk."""

    def __init__(self, node: int, port: int) -> None:
        self.selector = selectors.DefaultSelector()
        place = Place(
            node=node,
            nodes=2,
            address=f"127.0.1.{node + 1}",
            main_address="127.0.1.1",
            main_port=port,
            secret=b"secret",
            gpus=None,
            lifeline=None,
        )
        self.cluster = Cluster(place, "run", 1, self.selector, lambda text: None)

    def take(self) -> list[object]:
        """Let it read what has come, for a moment; what it made of that."""
        for key, _ in self.selector.select(0.01):
            key.data()
        return list(self.cluster.events())

    def close(self) -> None:
        self.cluster.close()
        self.selector.close()


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node]]:
    with socket.socket() as sock:
        sock.bind(("127.0.1.1", 0))
        port = sock.getsockname()[1]
    with closing(Node(0, port)) as main, closing(Node(1, port)) as other:
        yield main, other


def heard(main: Node, other: Node) -> list[object]:
    """What node 0 hears first."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        events = main.take()
        if events:
            return events
        other.take()
    return []


def test_what_a_node_says_before_it_has_proven_itself_arrives_afterwards(nodes: tuple[Node, Node]) -> None:
    _, other = nodes
    other.cluster.tick(time.monotonic())
    assert other.cluster.meeting_main
    other.cluster.send(0, {"type": "failure"})
    assert heard(*nodes) == [Received(1, {"type": "failure"})]
    assert not other.cluster.meeting_main


def test_what_a_node_says_while_nobody_is_there_is_dropped(nodes: tuple[Node, Node]) -> None:
    _, other = nodes
    other.cluster.send(0, {"type": "failure"})
    assert not other.cluster.meeting_main
    other.cluster.tick(time.monotonic())
    other.cluster.send(0, {"type": "stopped"})
    assert heard(*nodes) == [Received(1, {"type": "stopped"})]
