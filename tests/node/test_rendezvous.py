"""The key-value store that Horovod's ranks meet at, over real HTTP."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cloudbench.node.rendezvous import RendezvousStore

Ask = Callable[..., tuple[int, bytes]]


@pytest.fixture
def ask() -> Iterator[Ask]:
    store = RendezvousStore("127.0.1.1")
    store.start()

    def request(method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.1.1", store.port)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    yield request
    store.stop()


def test_value_is_not_found_until_it_is_there(ask: Ask) -> None:
    assert ask("GET", "/global/0") == (404, b"")
    assert ask("PUT", "/global/0", bytes(range(256))) == (200, b"")
    assert ask("GET", "/global/0") == (200, bytes(range(256)))


def test_scopes_are_apart(ask: Ask) -> None:
    ask("PUT", "/global/0", b"a")
    assert ask("GET", "/local_10.0.0.1/0") == (404, b"")


def test_scope_lasts_until_every_rank_has_met_the_others(ask: Ask) -> None:
    for rank in range(3):
        ask("PUT", f"/cross_0/{rank}", b"address")
        ask("PUT", f"/cross_0/rank_{rank}", b"host")
    for rank in range(2):
        assert ask("DELETE", f"/cross_0/{rank}") == (200, b"")
        assert ask("GET", "/cross_0/0") == (200, b"address")
    ask("DELETE", "/cross_0/2")
    assert ask("GET", "/cross_0/0") == (404, b"")
    assert ask("GET", "/cross_0/rank_0") == (404, b"")


def test_scope_can_be_used_again(ask: Ask) -> None:
    for value in (b"first", b"second"):
        ask("PUT", "/global/0", value)
        assert ask("GET", "/global/0") == (200, value)
        ask("DELETE", "/global/0")


def test_many_ranks_at_once(ask: Ask) -> None:
    def join(rank: int) -> bytes:
        ask("PUT", f"/global/{rank}", str(rank).encode())
        return ask("GET", f"/global/{rank}")[1]

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(join, range(128))) == [str(rank).encode() for rank in range(128)]


def test_requests_that_come_before_the_start_are_answered_after_it() -> None:
    store = RendezvousStore("127.0.1.1")
    connection = http.client.HTTPConnection("127.0.1.1", store.port)
    connection.request("GET", "/global/0")
    store.start()
    assert connection.getresponse().status == 404
    connection.close()
    store.stop()
