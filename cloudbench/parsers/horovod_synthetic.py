"""Horovod's synthetic benchmarks: iterations, the mean over them per GPU, and rank 0's total for the job.

`+-` is 1.96 standard deviations over the iterations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from cloudbench.parsers.advance import Advance, StepLine
from cloudbench.parsers.checks import throughput_of
from cloudbench.parsers.ranks import Ranks
from cloudbench.parsers.reader import Evidence
from cloudbench.parsers.text import Lines, found, rank_of, tag_at, tag_of
from cloudbench.parsers.values import Kind, Observation, ParsedRun, Scope

NAME = "horovod_synthetic"
UNIT = "images/sec"

_ITERATION = re.compile(rb"\n([^\n]*)Iter #(\d{1,18}): +(\d{1,18}(?:\.\d+)?) img/sec per (\S{1,64})")
_PLAIN_ITERATION = re.compile(rb"\nIter #(\d{1,18}): +(\d{1,18}(?:\.\d+)?) img/sec per (\S{1,64})")
_NUMBER = b"Iter #"
_RATE = b" img/sec per "
_MEAN = re.compile(rb"Img/sec per (?P<device>\S{1,64}): +(?P<mean>\d{1,18}(?:\.\d+)?)(?= *\+-|[ \t]*\n)")
_TOTAL = re.compile(
    rb"Total img/sec on (?P<count>\d{1,9}) (?P<device>\S{1,64}?)\(s\): +(?P<total>\d{1,18}(?:\.\d+)?)(?= *\+-|[ \t]*\n)"
)
_SPREAD = re.compile(rb" *\+-(\d{1,18}\.\d)(?!\d)")
_WORLD = re.compile(rb"Number of (?P<device>\S{1,64}?)s: +(?P<count>\d{1,9})(?=[ \t]*\n)")
_BANNER = re.compile(rb"Model: +(?P<model>[\w.-]{1,64})(?=[ \t]*\n)|Batch size: +(?P<batch>\d{1,9})(?=[ \t]*\n)")
_BANNER_REACH = 512
"""The model and the batch size stand at most this far above the number of GPUs, in bytes."""

_RATE_CHANGED = 0.25
"""Iterations of an undisturbed run differ by some per cent; a worker more or less changes the rate by more."""
_MEAN_AND_TOTAL_AGREE = 0.005


class Reader:
    """Reads the blocks of one log, in order; keeps the figure of every iteration, and nothing else of a line."""

    def __init__(self, *, observations: bool) -> None:
        self._observations = observations
        self._runs: list[_Run] = []
        self._lines = Lines()
        self.evidence = Evidence.NONE

    def feed(self, block: bytes) -> None:
        """Take the next block of `cloudbench.parsers.text.blocks`."""
        if b"mg/sec" in block or b"Number of " in block:
            start = 0
            for mark in _marks(block):
                self._take_iterations(block, start, mark.start())
                self._take_mark(block, mark, tag_at(block, mark.start()))
                start = mark.end()
            self._take_iterations(block, start, len(block))
        if self._observations:
            self._lines.end(block)

    def finish(self) -> tuple[ParsedRun, ...]:
        """The runs, when all blocks have been read."""
        return tuple(parsed for run in self._runs for parsed in run.finish())

    def _current(self) -> _Run:
        return self._runs[-1] if self._runs else self._begin()

    def _begin(self) -> _Run:
        self._runs.append(_Run())
        return self._runs[-1]

    def _take_mark(self, block: bytes, mark: re.Match[bytes], tag: bytes | None) -> None:
        run = self._current()
        device = mark["device"].decode(errors="replace")
        if mark.re is _WORLD:
            if not run.ranks.may_start(tag, after_steps=0) or run.totals:
                run = self._begin()
            run.banner.update(_fields(block, mark.start()))
            if b"Running warmup" in block:
                self.evidence = max(self.evidence, Evidence.NAMED)
        elif mark.re is _MEAN:
            if run.totals or (tag is not None and run.ranks.ended(tag)):
                run = self._begin()
            run.ranks.end(tag)
            run.means.append(float(mark["mean"]))
            self._observe(block, mark, "mean", tag, "total", _scope_of_one(device))
        else:
            if run.totals:
                run = self._begin()
            run.totals.append(float(mark["total"]))
            self._observe(block, mark, "total", tag, "total", "job")
        run.device = device
        if "count" in mark.re.groupindex:
            run.count = int(mark["count"])

    def _take_iterations(self, block: bytes, start: int, end: int) -> None:
        if block.find(_NUMBER, start, end) < 0 or (not self._observations and self._take_row(block, start, end)):
            return
        for line in _ITERATION.finditer(block, start, end):
            tag = tag_of(line[1])
            step = int(line[2])
            run = self._current()
            if run.totals or not run.take(tag, step, line[3]):
                run = self._begin()
                run.take(tag, step, line[3])
            run.device = line[4].decode(errors="replace")
            self._observe(block, line, 3, tag, "window", _scope_of_one(run.device), step)

    def _take_row(self, block: bytes, start: int, end: int) -> bool:
        """Take all lines at once where one rank alone prints, nothing in front and none missing; else take none."""
        count = block.count(_NUMBER, start, end)
        first = _PLAIN_ITERATION.match(block, block.find(b"\n" + _NUMBER, start, end))
        last = _PLAIN_ITERATION.match(block, block.rfind(b"\n" + _NUMBER, start, end))
        if (
            not first
            or not last
            or int(last[1]) - int(first[1]) != count - 1
            or block.count(b"\n" + _NUMBER, start, end) != count
            or block.count(_RATE, start, end) != count
        ):
            return False
        run = self._current()
        if run.totals or not run.take_row(int(first[1]), int(last[1]), block[first.start() : last.end()]):
            return False
        run.device = last[3].decode(errors="replace")
        self.evidence = Evidence.FIGURES
        return True

    def _observe(
        self,
        block: bytes,
        mark: re.Match[bytes],
        figure: str | int,
        tag: bytes | None,
        kind: Kind,
        scope: Scope,
        step: int | None = None,
    ) -> None:
        self.evidence = Evidence.FIGURES
        if not self._observations:
            return
        spread = _SPREAD.match(block, mark.end())
        self._current().observations.append(
            Observation(
                value=float(mark[figure]),
                unit=UNIT,
                scope=scope,
                kind=kind,
                line=self._lines.at(block, mark.start(figure)),
                step=step,
                rank=rank_of(tag),
                uncertainty=float(spread[1]) if spread else None,
                uncertainty_kind="std95" if spread else None,
            )
        )


def _marks(block: bytes) -> list[re.Match[bytes]]:
    """Everything in a block but its iterations, in order."""
    marks = [
        *found(_WORLD, b"Number of ", block),
        *found(_MEAN, b"Img/sec per ", block),
        *found(_TOTAL, b"Total img/sec on ", block),
    ]
    return sorted(marks, key=re.Match.start)


def _fields(block: bytes, end: int) -> Iterator[tuple[str, str]]:
    for field in _BANNER.finditer(block, max(0, end - _BANNER_REACH), end):
        if field.lastgroup:
            yield field.lastgroup, field[field.lastgroup].decode()


def _scope_of_one(device: str) -> Scope:
    return "process" if "cpu" in device.lower() else "gpu"


class _Run:
    """What has been read of one run."""

    def __init__(self) -> None:
        self.ranks = Ranks()
        self.banner: dict[str, str] = {}
        self.device = "GPU"
        self.count: int | None = None
        self.means: list[float] = []
        self.totals: list[float] = []
        self.excerpts: list[_Excerpt] = []
        self.observations: list[Observation] = []

    def take(self, tag: bytes | None, step: int, figure: bytes) -> bool:
        """A rank printed `figure` for its iteration `step`; False, and nothing is taken, where it is another run's."""
        before = self.ranks.steps
        if not self.ranks.step(tag, step, figure):
            return False
        self._excerpt_from(before, step, step).rates.append(float(figure))
        return True

    def take_row(self, first: int, last: int, lines: bytes) -> bool:
        """`take`, for the lines of the only rank; False, and nothing is taken, where others print too."""
        before = self.ranks.steps
        if not self.ranks.advance(Advance(first, last - 1, (StepLine(None, last, b""),))):
            return False
        self._excerpt_from(before, first, last).unread.append(lines)
        return True

    def _excerpt_from(self, before: int | None, first: int, last: int) -> _Excerpt:
        if before is None or first > before + 1:
            self.excerpts.append(_Excerpt(first=first))
        excerpt = self.excerpts[-1]
        excerpt.last = max(excerpt.last, last)
        return excerpt

    def finish(self) -> list[ParsedRun]:
        """The run; without a summary, one for every stretch of iterations that follow one another."""
        if self.totals:
            return [self._parsed(self.totals, "job", warnings=tuple(self._total_warnings()))]
        if self.means:
            return [self._parsed(self.means, _scope_of_one(self.device))]
        if self.excerpts:
            return [self._excerpt(index) for index in range(len(self.excerpts))]
        return [self._parsed([], "job", reason="the log ends before the first iteration")]

    def _excerpt(self, index: int) -> ParsedRun:
        excerpt = self.excerpts[index]
        following = self.excerpts[index + 1].first if index + 1 < len(self.excerpts) else float("inf")
        parsed = self._parsed(excerpt.rates, _scope_of_one(self.device), warnings=tuple(self._excerpt_warnings(index)))
        return msgspec.structs.replace(
            parsed,
            steps=excerpt.last + 1,
            observations=tuple(
                seen for seen in self.observations if seen.step is not None and excerpt.first <= seen.step < following
            ),
        )

    def _parsed(
        self, printed: Sequence[float], scope: Scope, *, reason: str | None = None, warnings: tuple[str, ...] = ()
    ) -> ParsedRun:
        # Only rank 0 prints, but for ports of the program in which every rank does.
        printing = max(len(self.ranks.last), len(self.means))
        processes = self.count or (printing if printing > 1 else None)
        return ParsedRun(
            throughput=throughput_of(printed),
            unit=UNIT,
            scope=scope,
            printed=tuple(printed),
            processes=processes,
            gpus=0 if "cpu" in self.device.lower() else processes,
            steps=None if self.ranks.steps is None else self.ranks.steps + 1,
            warnings=warnings,
            reason=reason,
            model=self.banner.get("model"),
            batch_size_per_device=int(self.banner["batch"]) if "batch" in self.banner else None,
            batch_size_global=int(self.banner["batch"]) * processes if "batch" in self.banner and processes else None,
            observations=tuple(self.observations),
        )

    def _total_warnings(self) -> Iterator[str]:
        if self.means and self.count:
            total, summed = median(self.totals), self.count * median(self.means)
            if abs(total - summed) > _MEAN_AND_TOTAL_AGREE * total + 0.05 * self.count + 0.05:
                yield f"the total, {total:g}, and the mean of {self.count} processes, {summed:g}, do not agree"

    def _excerpt_warnings(self, index: int) -> Iterator[str]:
        excerpt = self.excerpts[index]
        yield "no summary: each figure is that of one iteration"
        if index:
            before = self.excerpts[index - 1]
            yield f"the iterations before #{excerpt.first} are not in the log"
            if _changed(median(before.rates), median(excerpt.rates)):
                yield (
                    f"the rate went from {median(before.rates):g} to {median(excerpt.rates):g}: "
                    "were workers added or removed?"
                )
        if _changed(min(excerpt.rates), max(excerpt.rates)):
            yield (
                f"the rate varies from {min(excerpt.rates):g} to {max(excerpt.rates):g}: were workers added or removed?"
            )


class _Excerpt(msgspec.Struct, kw_only=True):
    """Iterations that follow one another, from number `first` on, over all ranks that print.

    Lines are read when their rates are asked for: where a summary follows them, nobody does.
    """

    first: int
    last: int = 0
    unread: list[bytes] = []
    read_rates: list[float] = []

    @property
    def rates(self) -> list[float]:
        """The figure of each iteration."""
        unread, self.unread = self.unread, []
        self.read_rates.extend(float(line[1]) for lines in unread for line in _PLAIN_ITERATION.findall(lines))
        return self.read_rates


def _changed(rate: float, other: float) -> bool:
    return abs(rate - other) > _RATE_CHANGED * max(rate, other)
