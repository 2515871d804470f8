"""What the services of one stand-in share: its time, its machines, its lock, its threads, and moto's state."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cloudbench.errors import InfrastructureError
from cloudbench.rehearsal.aws.cloud import Cloud
from cloudbench.rehearsal.aws.scenario import Scenario
from cloudbench.rehearsal.timers import Timers

if TYPE_CHECKING:
    from cloudbench.rehearsal.clock import Clock
    from cloudbench.rehearsal.machines import Machine, Machines


class World:
    """Everything of a stand-in changes under `lock`, at the moment `timers.now`."""

    def __init__(self, machines: Machines, clock: Clock, scenario: Scenario, file_systems: Path | None) -> None:
        self.machines = machines
        self.scenario = scenario
        self.file_systems = file_systems
        self.cloud = Cloud()
        self.url = ""
        self.lock = threading.RLock()
        self.timers = Timers(clock)
        self.faults: list[Exception] = []
        self.closing = threading.Event()
        self._threads: set[threading.Thread] = set()

    @property
    def now(self) -> float:
        """The moment that is being played, in seconds since 1970."""
        return self.timers.now

    @property
    def now_ms(self) -> int:
        """The moment as bodies carry it, in milliseconds since 1970."""
        return int(self.timers.now * 1000)

    def background(self, work: Callable[[], None]) -> None:
        """Do what takes its time in a thread of its own; `close` waits for it."""

        def run() -> None:
            try:
                work()
            except Exception as error:
                self.faults.append(error)
            finally:
                with self.lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name="stand-in work", daemon=True)
        with self.lock:
            self._threads.add(thread)
        thread.start()

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
