"""Ports that stay free until they are used, and the network interface of an address."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import random
import socket
import struct
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from cloudbench.node.place import MAIN_PORT

if TYPE_CHECKING:
    from collections.abc import Iterable

_SIOCGIFADDR = 0x8915
_SIOCGIFNETMASK = 0x891B


class ReservedPorts:
    """Free ports of this machine, held on every address until `release`.

    They lie below the range from which the kernel takes the source ports of outgoing connections, so that none
    of those takes one in the time between the release and its use; and on Linux no other of this class takes one
    for as long as this one lives.
    """

    def __init__(self, count: int) -> None:
        self._sockets: list[socket.socket] = []
        self._names: list[socket.socket] = []
        weakref.finalize(self, _close, self._names)
        highest = _highest_free_port()
        while len(self._sockets) < count:
            number = random.randint(highest // 2, highest)  # noqa: S311 - not a secret
            if number != MAIN_PORT:
                self._reserve(number)
        self.numbers = tuple(sock.getsockname()[1] for sock in self._sockets)

    def release(self) -> None:
        """Let the ports go: those that asked for them use them now."""
        _close(self._sockets)

    def _reserve(self, number: int) -> None:
        """Hold a port and a name that stands for it, unless somebody has one of the two."""
        port = socket.socket()
        name = socket.socket(socket.AF_UNIX)
        try:
            if sys.platform == "linux":  # a name of this kind is no file, and ends with its process
                name.bind(f"\0cloudbench-port-{number}")
            port.bind(("", number))
        except OSError as error:
            _close((port, name))
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            self._sockets.append(port)
            self._names.append(name)


def _close(sockets: Iterable[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def _highest_free_port() -> int:
    """The port below the source ports; Linux's default where the machine does not tell or leaves no room."""
    try:
        lowest_source_port = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        lowest_source_port = 0
    return lowest_source_port - 1 if lowest_source_port > 10000 else 32767


def interface_of(address: str) -> str | None:
    """The name of the network interface that carries `address`, or the network it lies in; None where none does.

    Linux only, IPv4 only: elsewhere None.
    """
    try:
        wanted = ipaddress.ip_address(socket.gethostbyname(address))
        names = [name for _, name in socket.if_nameindex()]
    except (OSError, ValueError):
        return None
    networks = {}
    for name in names:
        own, mask = (_ask_interface(name, request) for request in (_SIOCGIFADDR, _SIOCGIFNETMASK))
        if own is not None and own == str(wanted):
            return name
        if own is not None and mask is not None:
            networks[name] = ipaddress.ip_network(f"{own}/{mask}", strict=False)
    return next((name for name, network in networks.items() if wanted in network), None)


def _ask_interface(name: str, request: int) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock.fileno(), request, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])
