"""Ports and interfaces of this machine."""

from __future__ import annotations

import random
import socket
import sys
from pathlib import Path

import pytest

from cloudbench.node.network import ReservedPorts, interface_of
from cloudbench.node.place import MAIN_PORT


def test_reserved_ports_are_distinct_and_taken_until_released() -> None:
    one, other = ReservedPorts(20), ReservedPorts(20)
    assert len({*one.numbers, *other.numbers}) == 40
    with socket.socket() as sock, pytest.raises(OSError, match="in use"):
        sock.bind(("127.0.1.9", one.numbers[0]))
    for ports in (one, other):
        ports.release()
    for number in one.numbers:
        socket.create_server(("127.0.1.9", number)).close()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has names that end with their process")
def test_what_was_released_for_its_use_is_not_reserved_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = ReservedPorts(1)
    ports.release()
    drawn, any_other = [ports.numbers[0], MAIN_PORT], random.randint
    monkeypatch.setattr(random, "randint", lambda *limits: drawn.pop() if drawn else any_other(*limits))
    other = ReservedPorts(1)
    other.release()
    assert not drawn
    assert other.numbers[0] not in (ports.numbers[0], MAIN_PORT)


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's settings")
def test_no_outgoing_connection_takes_a_reserved_port() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = ReservedPorts(50)
    ports.release()
    assert max(ports.numbers) < max(lowest, 32768)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.7", "localhost"])
def test_loopback_carries_its_whole_network(address: str) -> None:
    assert interface_of(address) == "lo"


def test_address_of_nobody_here_has_no_interface() -> None:
    assert interface_of("203.0.113.7") is None
