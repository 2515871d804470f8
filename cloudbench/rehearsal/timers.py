"""What a stand-in will do at which time of its clock, played in the order of those times."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count

from cloudbench.rehearsal.clock import Clock


class Timers:
    """Actions at their times. A clock that was turned on far plays all between, each at its own moment."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.now = clock.now()
        self.next_at = math.inf  # when there is something to do again
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do it that long after the moment that is being played."""
        heapq.heappush(self._due, (self.now + seconds, next(self._order), action))
        self.next_at = self._due[0][0]
        self.clock.wake()

    def play(self) -> None:
        """Do all that is due, then let the moment be the present."""
        present = self.clock.now()  # what becomes due meanwhile comes next time, at its own moment
        while self.next_at <= present:
            at, _, action = heapq.heappop(self._due)
            self.next_at = self._due[0][0] if self._due else math.inf
            self.now = max(self.now, at)
            action()
        self.now = max(self.now, present)

    def wait(self, *, unless: Callable[[], bool]) -> None:
        """Wait until something is due, also where that is only arranged meanwhile."""
        until = self.next_at
        self.clock.wait_until(until, unless=lambda: self.next_at < until or unless())
