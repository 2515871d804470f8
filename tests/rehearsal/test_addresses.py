"""Addresses that no two nodes on this machine share."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Iterator

import pytest

from cloudbench.errors import UsageError
from cloudbench.rehearsal.addresses import Addresses

BLOCK = 254


@pytest.fixture
def addresses() -> Iterator[Callable[[], Addresses]]:
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(contextlib.closing(Addresses()))


def test_no_two_rehearsals_get_the_same_address(addresses: Callable[[], Addresses]) -> None:
    one, other = addresses(), addresses()
    taken = [each.take() for _ in range(BLOCK + 2) for each in (one, other)]
    assert len(set(taken)) == len(taken)


def test_programs_can_listen_on_the_same_port_of_each(addresses: Callable[[], Addresses]) -> None:
    one, other = (addresses().take() for _ in range(2))
    with socket.socket() as first, socket.socket() as second:
        first.bind((one, 0))
        second.bind((other, first.getsockname()[1]))


def test_the_addresses_of_local_runs_are_left_alone(addresses: Callable[[], Addresses]) -> None:
    assert all(not address.startswith("127.0.") for address in (addresses().take() for _ in range(20)))


def test_an_address_that_is_given_back_is_taken_again_when_the_others_are(addresses: Callable[[], Addresses]) -> None:
    some = addresses()
    first = some.take()
    some.give_back(first)
    assert [some.take() for _ in range(BLOCK)].index(first) == BLOCK - 1


def test_an_address_from_elsewhere_is_not_given_to_others(addresses: Callable[[], Addresses]) -> None:
    some = addresses()
    some.take()
    some.give_back("10.0.0.4")
    assert "10.0.0.4" not in [some.take() for _ in range(BLOCK)]


def test_other_systems_are_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UsageError, match="needs Linux") as caught:
        Addresses()
    assert caught.value.todo
