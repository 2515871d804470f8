"""What every format's module offers to whoever reads a log: a `Reader` class and its `NAME`."""

from __future__ import annotations

import enum
from typing import Protocol

from cloudbench.parsers.values import ParsedRun


class Evidence(enum.IntEnum):
    """How surely the log is of the reader's format, so far."""

    NONE = 0
    NAMED = 1
    """The program said its name or printed its banner."""
    FIGURES = 2
    """It printed figures: nobody else's log looks like that."""


class Reader(Protocol):
    """Reads one log of one format.

    `feed` takes the blocks of `cloudbench.parsers.text.blocks` in order and accepts any bytes without an exception;
    `finish` gives the runs when all have been taken. Memory grows with the ranks and runs in a log, not its lines,
    except for the observations where these were asked for.
    """

    evidence: Evidence

    def __init__(self, *, observations: bool) -> None: ...

    def feed(self, block: bytes) -> None:
        """Take the next block."""

    def finish(self) -> tuple[ParsedRun, ...]:
        """All runs, in the order of their first lines."""
