"""What nodes tell each other about themselves. How they meet is tested with whole programs, in test_run."""

from __future__ import annotations

from cloudbench.node.cluster import Peer


def test_peer_survives_the_way_through_json() -> None:
    peer = Peer(0, "10.0.0.1", "host", (1, 2), 3, 4, 5)
    assert Peer.from_message({**peer._asdict(), "rank_ports": [1, 2]}) == peer
