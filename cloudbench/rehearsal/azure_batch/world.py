"""What pools, jobs and tasks of one stand-in share: its time, its nodes' machine room, its lock and its threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from cloudbench.errors import InfrastructureError
from cloudbench.rehearsal.azure_batch.scenario import Scenario
from cloudbench.rehearsal.azure_batch.wire import Body, stamp
from cloudbench.rehearsal.timers import Timers

if TYPE_CHECKING:
    from cloudbench.rehearsal.clock import Clock
    from cloudbench.rehearsal.machines import Machine, Machines

# The folder behind an entry of a pool's `mountConfiguration`; an OSError says why it cannot be mounted.
Shares = Callable[[Body], Path]


def no_shares(mount: Body) -> Path:
    """No share is there to be mounted."""
    raise FileNotFoundError(f"no such share: {', '.join(mount)}")


class World:
    """Everything of a stand-in changes under `lock`, at the moment `timers.now`.

    Args:
        account: name of the Batch account.
        shares: where the folder behind a mount is.
    """

    def __init__(self, machines: Machines, clock: Clock, scenario: Scenario, *, account: str, shares: Shares) -> None:
        self.machines = machines
        self.scenario = scenario
        self.account = account
        self.shares = shares
        self.url = ""
        self.lock = threading.RLock()
        self.timers = Timers(clock)
        self.prefetched: list[tuple[str, str]] = []
        self.preemptions_left = scenario.preemptions
        self.closing = threading.Event()
        self._versions = count(1)
        self._threads: set[threading.Thread] = set()

    @property
    def now(self) -> float:
        """The moment that is being played, in seconds since 1970."""
        return self.timers.now

    def stamp(self) -> str:
        """The moment as bodies carry it."""
        return stamp(self.now)

    def etag(self) -> str:
        """A new version of something."""
        return f"0x8D{next(self._versions):013X}"

    def background(self, work: Callable[[], None]) -> None:
        """Do what takes its time in a thread of its own; `close` waits for it."""

        def run() -> None:
            try:
                work()
            finally:
                with self.lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name="stand-in work", daemon=True)
        with self.lock:
            self._threads.add(thread)
        thread.start()

    def happens(self, change: Callable[[], None]) -> None:
        """Make a change that comes from outside, now: by a process that has ended."""
        with self.lock:
            self.timers.play()
            change()
        self.timers.clock.wake()

    def end(self, machine: Machine) -> None:
        """Take a machine away, without waiting for its processes' end."""

        def end() -> None:
            with contextlib.suppress(InfrastructureError):
                machine.end()

        self.background(end)

    def close(self) -> None:
        """Wait until all background work has ended; the machines are the caller's."""
        self.closing.set()
        while True:
            with self.lock:
                threads = list(self._threads)
            if not threads:
                return
            for thread in threads:
                thread.join()
