"""What a node watches beside its ranks and its peers: signals, and the life of its client."""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
from typing import TYPE_CHECKING

from cloudbench.node.job import NodeError

if TYPE_CHECKING:
    from pathlib import Path

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_CHECK_EVERY_S = 0.5
_GONE_AFTER_S = 5.0


class Signals:
    """Wakes the selector when a child ends or a signal comes, and remembers the one that asks to end."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.ending: signal.Signals | None = None
        self._read_end, write_end = os.pipe()
        for descriptor in (self._read_end, write_end):
            os.set_blocking(descriptor, False)
        selector.register(self._read_end, selectors.EVENT_READ, self._drain)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _ENDING:
            signal.signal(number, self._end)

    def _end(self, number: int, _frame: object) -> None:
        self.ending = signal.Signals(number)

    def _drain(self) -> None:
        os.read(self._read_end, 4096)


class Lifeline:
    """The file that the client holds locked: it is gone when others can lock it for some seconds in a row.

    The nodes take it shared, so that they do not take each other for the client.

    Raises:
        NodeError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise NodeError(f"the client's lock file cannot be opened: {error}") from error
        self._free_since: float | None = None
        self._check_at = 0.0

    def is_lost(self, now: float) -> bool:
        """Whether the client is gone; looks a few times a second at most."""
        if now >= self._check_at:
            self._check_at = now + _CHECK_EVERY_S
            if self._held():
                self._free_since = None
            elif self._free_since is None:
                self._free_since = now
        return self._free_since is not None and now - self._free_since >= _GONE_AFTER_S

    def _held(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return False
