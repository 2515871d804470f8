"""Addresses for the nodes of a rehearsal, which nobody else on this machine gives to a node."""

from __future__ import annotations

import contextlib
import random
import socket
import sys
import threading
from collections import deque

from cloudbench.errors import InfrastructureError, UsageError

_BLOCKS = [f"127.{second}.{third}" for second in range(1, 255) for third in range(256)]  # never 127.0.*


class Addresses:
    """Addresses of 127.0.0.0/8, taken from blocks of 254 that are held until `close` or the end of this process.

    Raises:
        UsageError: this system does not have the whole range.
    """

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise UsageError(
                "a rehearsal needs Linux",
                why="every node of it has an address of its own, which no other system gives without an administrator",
                todo="run cloudbench in a Linux virtual machine, in a container or in WSL",
            )
        self._lock = threading.Lock()
        self._guards: dict[str, socket.socket] = {}
        self._free: deque[str] = deque()

    def take(self) -> str:
        """One that is free, and was so for the longest time."""
        with self._lock:
            if not self._free:
                guard, block = _hold_a_block()
                self._guards[block] = guard
                self._free.extend(f"{block}.{number}" for number in range(1, 255))
            return self._free.popleft()

    def give_back(self, address: str) -> None:
        """Let another node have it, unless it was never taken here."""
        with self._lock:
            if address.rpartition(".")[0] in self._guards:
                self._free.append(address)

    def close(self) -> None:
        """Let others have the blocks."""
        with self._lock:
            self._free.clear()
            while self._guards:
                self._guards.popitem()[1].close()


def _hold_a_block() -> tuple[socket.socket, str]:
    """A block that nobody holds, and the socket whose name holds it.

    An abstract socket belongs to the same network namespace as the addresses and ends with its process.
    """
    for block in random.sample(_BLOCKS, len(_BLOCKS)):
        guard = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            guard.bind(f"\0cloudbench-addresses-{block}")
            return guard, block
        guard.close()
    raise InfrastructureError("no address is left for a node", why="rehearsals on this machine hold all of 127.0.0.0/8")
