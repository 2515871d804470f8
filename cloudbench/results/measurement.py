"""One run's throughput, from what is known of the run and what its log says. Pure.

The rule is to claim nothing that the log does not carry: a figure that covers the whole job is taken as it stands, a
figure that covers less is scaled up only where it is certain by what, and everything else is no result with a reason.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from cloudbench.parsers.values import ParsedRun, Scope
from cloudbench.run import Attempt, Outcome, Phase
from cloudbench.spec import Scalar

_PLAUSIBLE = (1e-6, 1e12)
"""Where a throughput can lie, whatever its unit. What lies outside, NaN included, is a failure to measure."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one run, wherever it comes from.

    Runs that differ only in `repeat` share their `group`. `outcome` and `phase` are both `None` where only logs are
    left of a run; `outcome` alone is `None` while the run goes on, and until it is collected:
    `uncollected` where its job is known to have ended. `reason` says why the run did not succeed, or why its log has
    no figure. `ranks` counts the training processes of the whole run, and `hardware` names what they
    computed on. `independent` is True where they are known to have trained on their own, exchanging nothing.
    `attempts` counts them all, `lost` are those whose machines were taken back, and `lost_logs` the numbers of those
    whose logs did not all come home.
    """

    label: str
    group: str
    run: str | None = None
    repeat: int = 1
    experiment: str | None = None
    template: str | None = None
    parameters: dict[str, Scalar | None] = {}
    nodes: int | None = None
    gpus_per_node: int | None = None
    ranks: int | None = None
    hardware: str | None = None
    note: str | None = None
    phase: Phase | None = None
    outcome: Outcome | None = None
    uncollected: bool = False
    reason: str | None = None
    parsed: ParsedRun | None = None
    independent: bool = False
    duration_s: float | None = None
    attempts: int | None = None
    lost: tuple[Attempt, ...] = ()
    lost_logs: tuple[int, ...] = ()

    @property
    def gpus(self) -> int | None:
        """GPUs of the whole run, by its setup or else by its log."""
        if self.nodes is not None and self.gpus_per_node is not None:
            return self.nodes * self.gpus_per_node
        return (self.parsed.gpus if self.parsed else None) or None


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The least and the greatest of several figures.

    `over` says of what: the throughput of repeats, or the figures that the ranks of one run printed, each of which
    covers `scope`.
    """

    kind: Literal["range"] = "range"
    over: Literal["ranks", "repeats"]
    scope: Scope
    count: int
    low: float
    high: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A run's throughput at job scope, or `None` with a reason.

    `status` is `ok`, `no-result` for a log without a figure that stands, else how the run ended or how far it is.
    """

    status: str
    reason: str | None = None
    throughput: float | None = None
    throughput_per_gpu: float | None = None
    unit: str | None = None
    spread: Spread | None = None
    warnings: tuple[str, ...] = ()


class _NoResultError(Exception):
    """Why a log's figures make no throughput of the job."""


def measure(record: RunRecord) -> Result:
    """What the run amounts to. Figures of a run that did not succeed are told in the reason and stand for nothing."""
    parsed = record.parsed
    unit = parsed.unit if parsed else None
    warnings = parsed.warnings if parsed else ()
    if record.outcome not in (None, Outcome.SUCCEEDED):
        reason = record.reason or f"the run ended as {record.outcome.value}"
        return Result(status=record.outcome.value, reason=reason + _printed(parsed), unit=unit, warnings=warnings)
    if record.outcome is None and record.phase is not None:
        reason = "the run has not ended"
        if record.uncollected:
            reason = f"ended, not collected yet: cloudbench collect {record.run}"
        return Result(status=record.phase.value, reason=reason + _printed(parsed), unit=unit)
    try:
        throughput, remarks = _job_throughput(record)
    except _NoResultError as error:
        return Result(status="no-result", reason=str(error), unit=unit, warnings=warnings)
    return Result(
        status="ok",
        throughput=throughput,
        throughput_per_gpu=throughput / record.gpus if record.gpus else None,
        unit=unit,
        spread=_spread_over_ranks(record),
        warnings=(*warnings, *remarks),
    )


def _job_throughput(record: RunRecord) -> tuple[float, list[str]]:
    """The throughput of the whole job, and what a reader must know about it."""
    parsed = record.parsed
    if parsed is None:
        raise _NoResultError(record.reason or "there is no log")
    if parsed.throughput is None:
        raise _NoResultError(record.reason or parsed.reason or "the log holds no throughput")
    if not all(_plausible(figure) for figure in parsed.printed):
        raise _NoResultError(f"the program failed to measure{_printed(parsed)}")
    if parsed.processes and record.ranks and parsed.processes < record.ranks:
        raise _NoResultError(f"the log tells of {parsed.processes} of {record.ranks} ranks{_printed(parsed)}")
    remarks: list[str] = []
    if parsed.gpus and record.gpus and parsed.gpus != record.gpus:
        remarks.append(f"the log tells of {parsed.gpus} GPUs, the setup of {record.gpus}")
    if parsed.scope == "job":
        # Every process prints the total of the whole job, so the totals are never added up.
        return parsed.throughput, remarks
    if parsed.scope == "gpu":
        throughput, remark = _from_gpus(record, parsed, parsed.throughput)
    else:
        throughput, remark = _from_parts(record, parsed, parsed.throughput)
    if not _plausible(throughput):
        raise _NoResultError(f"the figures make no throughput{_printed(parsed)}")
    return throughput, remarks + ([remark] if remark else [])


def _from_gpus(record: RunRecord, parsed: ParsedRun, median: float) -> tuple[float, str | None]:
    if not record.gpus:
        raise _NoResultError(f"the log tells the figure of one GPU, and not how many there were{_printed(parsed)}")
    if parsed.gpus and parsed.gpus != record.gpus:
        raise _NoResultError(
            f"the log tells the figure of one GPU, of {parsed.gpus} in the log but {record.gpus} in the setup"
            f"{_printed(parsed)}"
        )
    if record.gpus == 1:
        return median, None
    return median * record.gpus, f"the figure of one GPU times {record.gpus} GPUs"


def _from_parts(record: RunRecord, parsed: ParsedRun, median: float) -> tuple[float, str | None]:
    """From the figures of processes or nodes."""
    one, many, count = (
        ("node", "nodes", record.nodes) if parsed.scope == "node" else ("process", "processes", parsed.processes)
    )
    if count == 1:
        return median, None
    if count is None:
        raise _NoResultError(f"the log tells the figure of one {one}, and not how many there were{_printed(parsed)}")
    if not record.independent:
        raise _NoResultError(f"the log tells the figures of single {many}, none of the whole job{_printed(parsed)}")
    if len(parsed.printed) != count:
        raise _NoResultError(f"{len(parsed.printed)} of {count} independent {many} printed a figure{_printed(parsed)}")
    return math.fsum(parsed.printed), f"the sum of {count} independent {many}, which exchanged nothing"


def _spread_over_ranks(record: RunRecord) -> Spread | None:
    if record.parsed is None or len(record.parsed.printed) < 2:
        return None
    printed = record.parsed.printed
    return Spread(over="ranks", scope=record.parsed.scope, count=len(printed), low=min(printed), high=max(printed))


def _plausible(figure: float) -> bool:
    low, high = _PLAUSIBLE
    return low <= figure <= high  # False for NaN


def _printed(parsed: ParsedRun | None) -> str:
    """The figures that do not stand, for a reason to end with."""
    if parsed is None or not parsed.printed:
        return ""
    figures = [f"{figure:.2f}" for figure in sorted(parsed.printed)]
    shown = figures if len(figures) <= 4 else [*figures[:2], "…", *figures[-2:]]
    return f"; printed: {', '.join(shown)} {parsed.unit} ({parsed.scope})"
