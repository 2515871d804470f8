"""The time that the stand-ins of one rehearsal live by: the real one, and what a test has turned it on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Clock:
    """Seconds since 1970, never backwards; every delay of a stand-in is counted here and nowhere else."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._base = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since 1970, with what the clock has been turned on."""
        return self._base + time.monotonic()

    def advance(self, seconds: float) -> None:
        """Turn the clock on, and wake all who wait for it."""
        with self._changed:
            self._base += seconds
            self._changed.notify_all()

    def wake(self) -> None:
        """Let all who wait look again at what they wait for."""
        with self._changed:
            self._changed.notify_all()

    def wait_until(self, at: float, *, unless: Callable[[], bool] | None = None) -> None:
        """Wait until the clock shows `at` (infinity is allowed), or `unless` holds: looked at after each `wake`."""
        with self._changed:
            while not (unless and unless()):
                left = at - self.now()
                if left <= 0:
                    return
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
