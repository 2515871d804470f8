"""tf_cnn_benchmarks, and the training program that ships with cloudbench: banner, step lines, totals, weights.

A step line is one process's mean since warm-up; `total images/sec` is the whole job's, printed once by every process.
Only where the banner shows that every process trained on its own is a total one process's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median

import msgspec

from cloudbench.parsers.advance import RATE, STEP, advance, middle_between_steps, step_line
from cloudbench.parsers.checks import independent, ranks_disagree, throughput_of
from cloudbench.parsers.ranks import Ranks
from cloudbench.parsers.reader import Evidence
from cloudbench.parsers.text import Lines, found, prefix_at, rank_of, tag_at
from cloudbench.parsers.values import Kind, Observation, ParsedRun, Scope

NAME = "tf_cnn_benchmarks"
UNIT = "images/sec"

_EXAMPLES = b" examples/sec\n"
_EVAL = re.compile(rb"\n([^\n]*[ \t])(\d{1,18}(?:\.\d+)?) examples/sec(?=\n)")
_SPREAD = re.compile(rb" \+/- (\d{1,18}\.\d)(?!\d)")
_NOT_FINITE_LOSS = re.compile(rb"\)[ \t]+(?:nan|-?inf)(?=\s)", re.IGNORECASE)

_HEADER = re.compile(rb"Step[ \t]+Img/sec")
_TOTAL = re.compile(rb"total images/sec: *(\S*)")
# At the very end of a log only a figure with its two decimals is known to be whole.
_TOTAL_FIGURE = re.compile(rb"(\d{1,18}\.\d\d)(?!\d)|(\d{1,18}(?:\.\d+)?)(?=\s)")
_WEIGHTS = re.compile(rb"weights sha256: *([0-9a-f]{64})(?![0-9a-f])")

_KEY = (
    rb"TensorFlow:|Model:|Dataset:|Mode:|SingleSess:|Batch size:|Num batches:|Num epochs:|Devices:|NUMA bind:"
    rb"|Data format:|Layout optimizer:|Optimizer:|Variables:|AllReduce:|Sync:|Horovod on:|==="
)
# Each branch begins with a literal, which is what makes the search fast. Two ranks may share a line.
_BANNER = re.compile(
    rb"(?:Model: +(?P<model>[\w.-]{1,64}?)|Mode: +(?P<mode>[\w. ]{1,64}?)|Batch size: +(?P<whole>\d{1,18}) global"
    rb"|Devices: +\[(?P<devices>[^\[\]\n]*)\]|Variables: +(?P<update>\w{1,64}?))"
    rb"(?=[ \t]{0,64}(?:\n|[ \d.]{1,64} per device|" + _KEY + rb"))"
)
_PER_DEVICE = re.compile(rb" per device")
_LAST_NUMBER = re.compile(rb"(?<!\d)\d{1,18}(?:\.\d+)?\Z")
_BATCH_SIZE = re.compile(rb"Batch size: ")
_UPDATE = b"Variables:"
_UPDATE_BELOW = 512
"""The update is the last of a banner that is read; this far below it its line ends."""
_BANNER_ABOVE = 1024
_BANNER_BELOW = 4096
"""How far a banner reaches above and below its batch size, in bytes: it lists the devices of all ranks."""

_STEP_AND_TOTAL_AGREE = 0.01
"""Over 3,930 public logs the last step and the total differ by 0.68 % at most."""


class Reader:
    """Reads the blocks of one log, in order; memory grows with ranks and runs, not with lines."""

    def __init__(self, *, observations: bool) -> None:
        self._observations = observations
        self._runs: list[_Run] = []
        self._prelude: dict[str, bytes] = {}
        self._lines = Lines()
        self.evidence = Evidence.NONE

    def feed(self, block: bytes) -> None:
        """Take the next block of `cloudbench.parsers.text.blocks`."""
        start = 0
        for mark in _marks(block):
            self._take_steps(block, start, mark.start())
            self._take_mark(block, mark, tag_at(block, mark.start()))
            start = mark.end()
        self._take_steps(block, start, len(block))
        if self.evidence is Evidence.NONE and b"tf_cnn_benchmarks" in block:
            self.evidence = Evidence.NAMED
        if self._observations:
            self._lines.end(block)

    def finish(self) -> tuple[ParsedRun, ...]:
        """The runs, when all blocks have been read."""
        return tuple(run.finish() for run in self._runs)

    def _take_mark(self, block: bytes, mark: re.Match[bytes], tag: bytes | None) -> None:
        if mark.re is _TOTAL:
            figure = _TOTAL_FIGURE.match(block, mark.start(1))
            self._take_total(tag, float(figure[0]) if figure else None, mark, block)
        elif mark.re is _HEADER:
            self.evidence = max(self.evidence, Evidence.NAMED)
            self._take_header(tag)
        elif mark.re is _WEIGHTS:
            self._current().weights.append(mark[1].decode())
        elif mark.re is _PER_DEVICE:
            number = _LAST_NUMBER.search(prefix_at(block, mark.start()))
            if number:
                self._take_banner(tag, "each", number[0])
        elif mark.lastgroup:
            self._take_banner(tag, mark.lastgroup, mark[mark.lastgroup])

    def _current(self) -> _Run:
        return self._runs[-1] if self._runs else self._begin()

    def _begin(self) -> _Run:
        self._runs.append(_Run())
        return self._runs[-1]

    def _take_banner(self, tag: bytes | None, field: str, value: bytes) -> None:
        if field in ("model", "mode"):  # these come before the line by which a banner is known
            self._prelude[field] = value
            return
        if field == "whole":
            self.evidence = max(self.evidence, Evidence.NAMED)
            run = self._current()
            if not run.ranks.may_start(tag, after_steps=0):
                run = self._begin()
            run.banners += 1
            run.banner = {**self._prelude, **run.banner}
            self._prelude = {}
        self._current().banner.setdefault(field, value)

    def _take_header(self, tag: bytes | None) -> None:
        run = self._current()
        late = not run.ranks.may_start(tag, after_steps=1)
        # A rank whose banner belongs to this run and that still owes its header is slow, not new.
        if late and run.headers >= run.banners:
            run = self._begin()
        run.headers += 1

    def _take_total(self, tag: bytes | None, value: float | None, mark: re.Match[bytes], block: bytes) -> None:
        run = self._current()
        if tag is not None and run.ranks.ended(tag):
            run = self._begin()
        self.evidence = Evidence.FIGURES
        run.ranks.end(tag)
        if not value:
            run.not_totals.append(mark[1][:20].decode(errors="replace"))
            return
        run.totals.append(value)
        if self._observations:
            line = self._lines.at(block, mark.start())
            run.observations.append(
                Observation(value=value, unit=UNIT, scope="job", kind="total", line=line, rank=rank_of(tag))
            )

    def _take_steps(self, block: bytes, start: int, end: int) -> None:
        first = block.find(RATE, start, end)
        if first < 0:
            if block.find(_EXAMPLES, start, end) >= 0:
                for line in _EVAL.finditer(block, start, end):
                    self._observe_step(block, line, "window")
            return
        start = max(start, block.rfind(b"\n", start, first))  # what stands before it is most of many logs
        if self._observations:
            for line in STEP.finditer(block, start, end):
                self._observe_step(block, line, "cumulative")
        else:
            self._take_lines(block, start, end)
        # A loss that is not finite stays so: the last line tells.
        if self._runs and _NOT_FINITE_LOSS.search(block, block.rfind(RATE, start, end), end):
            self._runs[-1].not_finite_loss = True

    def _take_lines(self, block: bytes, start: int, end: int) -> None:
        together = advance(block, start, end)
        if together and self._current().ranks.advance(together):
            self.evidence = Evidence.FIGURES
        elif middle := middle_between_steps(block, start, end):
            self._take_lines(block, start, middle)
            self._take_lines(block, middle, end)
        else:
            for prefix, figure in STEP.findall(block, start, end):
                line = step_line(prefix, figure)
                if line:
                    self._take_step(*line)

    def _take_step(self, tag: bytes | None, step: int, figure: bytes) -> None:
        self.evidence = Evidence.FIGURES
        if not self._current().ranks.step(tag, step, figure):
            self._begin().ranks.step(tag, step, figure)

    def _observe_step(self, block: bytes, line: re.Match[bytes], kind: Kind) -> None:
        said = step_line(line[1], line[2])
        if said is None:
            return
        self._take_step(*said)
        if not self._observations:
            return
        spread = _SPREAD.match(block, line.end())
        self._current().observations.append(
            Observation(
                value=float(line[2]),
                unit=UNIT,
                scope="process",
                kind=kind,
                line=self._lines.at(block, line.start(1)),
                step=said.step,
                rank=rank_of(said.tag),
                uncertainty=float(spread[1]) if spread else None,
                uncertainty_kind="sem" if spread else None,
            )
        )


def _marks(block: bytes) -> list[re.Match[bytes]]:
    """Everything in a block but its step lines, in order."""
    marks = [
        *found(_TOTAL, b"total images/sec:", block),
        *found(_HEADER, b"Step", block),
        *found(_WEIGHTS, b"weights sha256:", block),
    ]
    banners = list(found(_BATCH_SIZE, b"Batch size: ", block))
    if banners:
        start, end = max(0, banners[-1].start() - _BANNER_ABOVE), banners[0].start() + _BANNER_BELOW
        last = block.rfind(_UPDATE, start, end)
        end = min(end, last + _UPDATE_BELOW) if last >= 0 else end
        marks += [*_BANNER.finditer(block, start, end), *_PER_DEVICE.finditer(block, start, end)]
    return sorted(marks, key=re.Match.start)


class _Run:
    """What has been read of one run."""

    def __init__(self) -> None:
        self.ranks = Ranks()
        self.banners = self.headers = 0
        self.banner: dict[str, bytes] = {}
        self.totals: list[float] = []
        self.not_totals: list[str] = []
        self.weights: list[str] = []
        self.not_finite_loss = False
        self.observations: list[Observation] = []

    def finish(self) -> ParsedRun:
        devices = tuple(name.decode() for name in re.findall(rb"'([^']*)'", self.banner.get("devices", b"")))
        each = float(self.banner["each"]) if "each" in self.banner else None
        whole = int(self.banner["whole"]) if "whole" in self.banner else None
        figures = [float(figure) for _, figure in self.ranks.last]
        seen = max(len(figures), len(self.totals)) or None
        exchanging = _exchanging(devices, whole, each) or self._exchanging_by_figures(figures)
        alone = exchanging == 1 and seen is not None and seen > 1
        processes = seen if alone else exchanging or (seen if figures else None)
        total_scope: Scope = "process" if alone else "job"
        # There one process drives the devices of all workers; with every other update a line is its own process's.
        drives_all = self.banner.get("update") == b"distributed_all_reduce"
        step_scope: Scope = "job" if drives_all else "process"
        mode = self.banner["mode"].decode().strip() if "mode" in self.banner else None
        return ParsedRun(
            throughput=throughput_of(self.totals),
            unit=UNIT,
            scope=total_scope,
            printed=tuple(self.totals),
            processes=processes,
            gpus=_gpus(devices, processes),
            steps=self.ranks.steps,
            warnings=tuple(self._warnings(figures, mode, 1 if alone or step_scope == "job" else processes, alone)),
            reason=None if self.totals else self._reason(figures, step_scope),
            model=self.banner["model"].decode() if "model" in self.banner else None,
            mode=mode,
            batch_size_global=whole,
            batch_size_per_device=round(each) if each is not None else None,
            variable_update=self.banner["update"].decode() if "update" in self.banner else None,
            devices=devices,
            weights=tuple(self.weights),
            observations=tuple(
                msgspec.structs.replace(seen, scope=total_scope if seen.kind == "total" else step_scope)
                for seen in self.observations
            ),
        )

    def _exchanging_by_figures(self, figures: list[float]) -> int | None:
        """Without a banner: how many processes a total covers, where it is a whole number of last steps."""
        if not self.totals or not figures or not median(figures):
            return None
        times = max(1, round(median(self.totals) / median(figures)))
        return times if _agree(median(self.totals), median(figures), times) else None

    def _reason(self, figures: list[float], scope: Scope) -> str:
        if self.not_totals:
            return f"the total is {self.not_totals[-1]!r}, which is no figure"
        if figures:
            covers = "the job" if scope == "job" else "one process"
            return (
                f"no total: the log ends at step {self.ranks.steps}, where {covers} had reached "
                f"{median(figures):g} {UNIT} on average"
            )
        if self.headers:
            return "no total: the log ends before the first step line"
        return "no total: the log ends while the program was starting"

    def _warnings(self, figures: list[float], mode: str | None, covered: int | None, alone: bool) -> Iterator[str]:
        if mode is not None and "train" not in mode.lower():
            yield f"inference, not training (mode: {mode})"
        if self.not_finite_loss:
            yield "the loss is not finite"
        if alone:
            yield independent(max(len(figures), len(self.totals)))
        else:
            yield from ranks_disagree(self.totals, self.weights)
        if not self.totals:
            return
        if self.not_totals:
            yield f"left out, not a figure: total {', '.join(self.not_totals)}"
        if len(self.totals) < len(figures):
            yield f"{len(self.totals)} of {len(figures)} processes printed a total"
        if figures and covered and not _agree(median(self.totals), median(figures), covered):
            yield (
                f"the total, {median(self.totals):g}, and the last step of {covered} "
                f"process{'es' if covered > 1 else ''}, {covered * median(figures):g}, do not agree"
            )


def _agree(total: float, figure: float, processes: int) -> bool:
    # A step line has one decimal, a total two.
    allowed = _STEP_AND_TOTAL_AGREE * total + 0.05 * processes + 0.005
    return abs(total - processes * figure) <= allowed


def _tasks(devices: tuple[str, ...]) -> int:
    """Of how many workers the devices are that one process lists; 0 where it names none.

    The original writes `/job:worker/task:1/gpu:0`, and since TensorFlow 2 `job:worker/replica:0/task1/gpu:0`.
    """
    return len({task[0] for task in map(re.compile(r"/task:?\d+").search, devices) if task})


def _exchanging(devices: tuple[str, ...], whole: int | None, each: float | None) -> int | None:
    """How many processes exchange gradients, by the banner; None where it does not tell.

    A process lists the devices of all ranks or workers, or its own only.
    """
    if devices and all(name.startswith("horovod/") for name in devices):
        return len(devices)
    if not devices or not whole or not each:
        return None
    return max(1, round(whole / (each * len(devices)))) * max(1, _tasks(devices))


def _gpus(devices: tuple[str, ...], processes: int | None) -> int | None:
    if not devices or processes is None:
        return None
    on_gpu = sum("gpu" in name.lower() for name in devices)
    lists_all = devices[0].startswith("horovod/") or _tasks(devices) > 1
    return on_gpu if lists_all else on_gpu * processes
