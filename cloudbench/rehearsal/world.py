"""What the parts of one stand-in share: its time, its machines, its lock and its threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from cloudbench.errors import InfrastructureError
from cloudbench.rehearsal.timers import Timers

if TYPE_CHECKING:
    from cloudbench.rehearsal.clock import Clock
    from cloudbench.rehearsal.machines import Machine, Machines


class World:
    """Everything of a stand-in changes under `lock`, at the moment `now`.

    Args:
        machines: where its nodes are; they outlive it, and are closed by whoever made them.
    """

    def __init__(self, machines: Machines, clock: Clock) -> None:
        self.machines = machines
        self.url = ""  # where the stand-in answers, once it does
        self.lock = threading.RLock()
        self.timers = Timers(clock)
        self.faults: list[Exception] = []  # what went wrong in the stand-in itself
        self.closing = threading.Event()
        self._time = threading.Thread(target=self._pass_time, name="stand-in time", daemon=True)
        self._work: set[threading.Thread] = set()

    @property
    def now(self) -> float:
        """The moment that is being played, in seconds since 1970."""
        return self.timers.now

    def start(self) -> None:
        """Let time pass."""
        self._time.start()

    def background(self, work: Callable[[], None]) -> None:
        """Do what takes its time in a thread of its own; `close` waits for it."""

        def run() -> None:
            try:
                work()
            except Exception as error:
                self.faults.append(error)
            finally:
                with self.lock:
                    self._work.discard(thread)

        thread = threading.Thread(target=run, name="stand-in work", daemon=True)
        with self.lock:
            self._work.add(thread)
        thread.start()

    def happens(self, change: Callable[[], None]) -> None:
        """Make a change that comes from outside, now: a process has ended, or a test wants something."""
        with self.lock:
            self.timers.play()
            change()
        self.timers.clock.wake()

    def end(self, machine: Machine, ended: Callable[[], None] | None = None) -> None:
        """Take a machine away, without waiting for its processes' end: `ended` happens then."""

        def end() -> None:
            with contextlib.suppress(InfrastructureError):
                machine.end()
            if ended is not None:
                self.happens(ended)

        self.background(end)

    def stop(self) -> None:
        """Let no more time pass."""
        self.closing.set()
        self.timers.clock.wake()
        if self._time.is_alive():
            self._time.join()

    def close(self) -> None:
        """Let no more time pass, and wait until all background work has ended."""
        self.stop()
        while True:
            with self.lock:
                work = list(self._work)
            if not work:
                return
            for thread in work:
                thread.join()

    def _pass_time(self) -> None:
        while not self.closing.is_set():
            with self.lock:
                try:
                    self.timers.play()
                except Exception as error:
                    self.faults.append(error)
            self.timers.wait(unless=self.closing.is_set)
