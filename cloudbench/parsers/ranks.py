"""Which lines of an interleaved log belong to the same rank, and which to the same run."""

from __future__ import annotations

from cloudbench.parsers.advance import Advance

_NOTHING = (-1, b"")


class Ranks:
    """The ranks of one run, as their step lines tell them apart.

    A rank's steps only grow. Where lines carry a tag, the tag is the rank. Where they do not, a line continues the
    rank that is nearest behind it, else it is a further rank; and ranks that exchange gradients are never more than
    one line apart, so a line further back than that begins another run.
    """

    def __init__(self) -> None:
        self._open: dict[int, list[bytes]] = {}  # the last figures of ranks without a tag, by their last steps
        self._tagged: dict[bytes, tuple[int, bytes]] = {}
        self._ended: list[tuple[int, bytes]] = []
        self._ended_tags: set[bytes] = set()
        self._top = self._second = -1  # the two greatest steps seen
        self._any_end = False

    @property
    def last(self) -> list[tuple[int, bytes]]:
        """Last step of each rank, and the figure printed with it."""
        waiting = [(step, figure) for step, figures in self._open.items() for figure in figures]
        return [*self._ended, *waiting, *self._tagged.values()]

    @property
    def steps(self) -> int | None:
        """The greatest step printed."""
        return self._top if self._top >= 0 else None

    def may_start(self, tag: bytes | None, *, after_steps: int) -> bool:
        """Whether a line that a rank prints when it starts can still belong to this run.

        `after_steps`: how many different steps may have been printed by others before such a line.
        """
        if tag is not None:
            return tag not in self._tagged and tag not in self._ended_tags
        return not self._any_end and (self._top if after_steps == 0 else self._second) < 0

    def step(self, tag: bytes | None, step: int, figure: bytes) -> bool:
        """A rank printed `figure` at `step`; False, and nothing is taken, where it cannot be a rank of this run."""
        if tag is not None:
            if step < self._tagged.get(tag, _NOTHING)[0] or tag in self._ended_tags:
                return False
            self._tagged[tag] = (step, figure)
        else:
            behind = max([last for last in self._open if last < step], default=None)
            if self._any_end:  # others have ended, so no step beyond theirs can come
                fits = step == self._top or self._top < 0 or (behind is not None and step < self._top)
            else:
                fits = behind is not None or step >= self._second
            if not fits:
                return False
            if behind is not None:
                self._drop_one(behind)
            self._open.setdefault(step, []).append(figure)
        if step > self._second:
            self._saw(step)
        return True

    def advance(self, advance: Advance) -> bool:
        """All ranks went on together; False, and nothing is taken, where these cannot be all ranks of this run."""
        tagged = {line.tag: (line.step, line.figure) for line in advance.last if line.tag is not None}
        waiting = sum(map(len, self._open.values()))
        if self._any_end or advance.first <= self._top:
            return False
        if tagged:
            if waiting or len(tagged) != len(advance.last) or (self._tagged and self._tagged.keys() != tagged.keys()):
                return False
            self._tagged = tagged
        else:
            if self._tagged or waiting not in (0, len(advance.last)):
                return False
            self._open = {}
            for line in advance.last:
                self._open.setdefault(line.step, []).append(line.figure)
        self._saw(advance.before)
        self._saw(max(line.step for line in advance.last))
        return True

    def end(self, tag: bytes | None) -> None:
        """A rank printed its last figure."""
        self._any_end = True
        if tag is not None:
            self._ended_tags.add(tag)
        elif self._open:
            furthest = max(self._open)
            self._ended.append((furthest, self._drop_one(furthest)))

    def ended(self, tag: bytes | None) -> bool:
        """Whether this rank has printed its last figure (without tags: any rank has)."""
        return self._any_end if tag is None else tag in self._ended_tags

    def _drop_one(self, step: int) -> bytes:
        figure = self._open[step].pop()
        if not self._open[step]:
            del self._open[step]
        return figure

    def _saw(self, step: int) -> None:
        if step > self._top:
            self._top, self._second = step, self._top
        elif self._second < step < self._top:
            self._second = step
