"""Ranks that advance together: nearly all step lines of nearly all logs, read from their two ends and their number."""

from __future__ import annotations

import re
from typing import NamedTuple

from cloudbench.parsers.text import tag_of

RATE = b"images/sec: "
_RATE_END = b"es/sec: "  # is counted twice as fast; whatever else ends so makes the number of lines wrong

# Numbers have at most 18 digits, so that no line of digits is ever an infinite figure. Whatever repeats is bounded or
# ends at what begins it, so that no line takes time that grows faster than its length.
STEP = re.compile(rb"\n([^\n]*?[ \t])images/sec: +(\d{1,18}(?:\.\d+)?)(?= )")
_STEP_NUMBER = re.compile(rb"(?<![\d.])\d{1,18}(?=\s+\Z)")


_MOST_AT_ONCE = 64
"""So few lines are read one by one as fast as by trying again."""


class StepLine(NamedTuple):
    """What one line says: a rank's tag (None where it has none), its step, and the figure as printed."""

    tag: bytes | None
    step: int
    figure: bytes


class Advance(NamedTuple):
    """What ranks that advanced together printed: their `first` step, the one `before` the last, each one's last line.

    The last lines are those of the last step, or of the one before it where a rank has not come that far.
    """

    first: int
    before: int
    last: tuple[StepLine, ...]


def step_line(prefix: bytes, figure: bytes) -> StepLine | None:
    """The line with this prefix in front of `images/sec:` and this figure behind; None where it tells no step."""
    number = _STEP_NUMBER.search(prefix)
    return StepLine(tag_of(prefix), int(number[0]), figure) if number else None


def advance(block: bytes, start: int, end: int) -> Advance | None:
    """The step lines of a part of a block, where they are those of ranks that advance together.

    They are when every rank prints its line at the first step, once, and at the last two, and there are as many lines
    as make steps at equal distances in between. With a line too many or too few it is None: then only reading each
    line tells.
    """
    head = _head(block, start, end)
    ranks = len(head) - 1
    tail = _tail(block, start, end, 2 * ranks)
    if ranks < 1 or len(tail) < 2 * ranks:
        return None
    first, second, final = head[0].step, head[-1].step, tail[-1].step
    reached = [line for line in tail if line.step == final]
    waiting = tail[-ranks - len(reached) : -len(reached)]
    before = waiting[-1].step if waiting else final
    if (
        not first < second <= final
        or not first <= before < final
        or any(line.step != before for line in waiting)
        or tail[-len(reached) :] != reached
        or (final - second) % (final - before)
        or block.count(_own_text(block, start), start, end) != ranks
        or block.count(_RATE_END, start, end) != ranks * ((final - second) // (final - before) + 1) + len(reached)
    ):
        return None
    if reached[0].tag is None:
        last = (*waiting[: ranks - len(reached)], *reached)
    else:
        last = tuple({line.tag: line for line in (*waiting, *reached)}.values())
    same = len(last) == ranks and {line.tag for line in last} == {line.tag for line in head[:-1]}
    return Advance(first, before, last) if same else None


def middle_between_steps(block: bytes, start: int, end: int) -> int | None:
    """Where a part can be cut in two halves that may do what the whole does not; None where it is small.

    The cut is in front of a line with another step than the line before it.
    """
    if block.count(_RATE_END, start, end) < _MOST_AT_ONCE:
        return None
    middle = block.rfind(b"\n", start, (start + end) // 2)
    before = None
    for found in STEP.finditer(block, max(start, middle), end):
        line = step_line(found[1], found[2])
        if before and line and line.step != before.step:
            return found.start()
        before = line
    return None


def _own_text(block: bytes, start: int) -> bytes:
    """What only lines of the same step have: all in front of the first figure, from just before its step on."""
    end = block.index(RATE, start) + len(RATE)
    line = block[start:end]
    return line[len(line[: -len(RATE)].rstrip().rstrip(b"0123456789")) - 1 :]


def _head(block: bytes, start: int, end: int) -> list[StepLine]:
    """The lines of the first step and one more; nothing where there is no other step."""
    lines: list[StepLine] = []
    for found in STEP.finditer(block, start, end):
        line = step_line(found[1], found[2])
        if line is None:
            break
        lines.append(line)
        if line.step != lines[0].step:
            return lines
    return []


def _tail(block: bytes, start: int, end: int, count: int) -> list[StepLine]:
    """So many lines at the end, or fewer."""
    position = end
    for _ in range(count):
        position = max(start, block.rfind(RATE, start, position))
    found = STEP.findall(block, max(start, block.rfind(b"\n", start, position)), end)
    return [line for line in (step_line(prefix, figure) for prefix, figure in found) if line]
