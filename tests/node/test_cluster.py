"""Who this node is. How nodes meet is tested with whole programs, in test_run."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudbench.node.cluster import Peer, find_place
from cloudbench.node.job import NodeError


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    secret = tmp_path / "secret"
    secret.write_text("sesame\n")
    return {
        "CLOUDBENCH_NODE_INDEX": "1",
        "CLOUDBENCH_NODE_COUNT": "2",
        "CLOUDBENCH_NODE_ADDRESS": "10.0.0.1",
        "CLOUDBENCH_MAIN_ADDRESS": "main.example",
        "CLOUDBENCH_MAIN_PORT": "4000",
        "CLOUDBENCH_SECRET_FILE": str(secret),
    }


def test_plain_variables_tell_the_place(variables: dict[str, str]) -> None:
    place = find_place(variables)
    assert (place.node, place.nodes, place.address) == (1, 2, "10.0.0.1")
    assert (place.main_address, place.main_port, place.secret) == ("main.example", 4000, b"sesame")
    assert (place.gpus, place.lifeline) == (None, None)


@pytest.mark.parametrize(("text", "gpus"), [("", ()), ("0", ("0",)), ("2, 3", ("2", "3"))])
def test_gpus_are_none_at_all_or_those_named(variables: dict[str, str], text: str, gpus: tuple[str, ...]) -> None:
    assert find_place({**variables, "CLOUDBENCH_GPUS": text}).gpus == gpus


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CLOUDBENCH_NODE_COUNT", None, "CLOUDBENCH_NODE_COUNT is not set"),
        ("CLOUDBENCH_MAIN_PORT", "http", "not usable"),
        ("CLOUDBENCH_SECRET_FILE", "/nowhere", "not usable"),
        ("CLOUDBENCH_SECRET_FILE", "/dev/null", "the secret file is empty"),
        ("CLOUDBENCH_NODE_INDEX", "2", "is 2, with 2 nodes"),
        ("CLOUDBENCH_NODE_INDEX", None, "nothing tells which node this is"),
    ],
)
def test_what_is_wrong_is_named(variables: dict[str, str], name: str, value: str | None, message: str) -> None:
    changed = {key: text for key, text in {**variables, name: value}.items() if text is not None}
    with pytest.raises(NodeError, match=message):
        find_place(changed)


def test_peer_survives_the_way_through_json() -> None:
    peer = Peer(0, "10.0.0.1", "host", (1, 2), 3, 4, 5)
    assert Peer.from_message({**peer._asdict(), "rank_ports": [1, 2]}) == peer
