"""The rows of a summary: one for each setup, its repeats taken together. Pure."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Iterable, Sequence

import msgspec

from cloudbench.results.attempts import count_attempts
from cloudbench.results.measurement import Result, RunRecord, Spread, measure


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a row."""

    run: str | None
    throughput: float | None
    status: str
    reason: str | None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One setup. What is missing is `None`, and `reason` says why there is no throughput.

    `throughput` is the median over the repeats that have one; `run` is the id of the only run, or the common
    beginning of the repeats' ids. `scaling_efficiency` is the throughput over what the smallest row of the same
    training would give with as many GPUs: 1.0 is perfect. `duration_s` is the median over all repeats that have one,
    with a throughput or without, from the start of the first node to the end of the last. `attempts` are those of all
    repeats, and `lost_usd` is what those cost that were preempted; where that is not known, the note says why.
    """

    label: str
    run: str | None
    nodes: int | None
    gpus_per_node: int | None
    throughput: float | None
    throughput_per_gpu: float | None
    unit: str | None
    status: str
    reason: str | None
    note: str | None
    scaling_efficiency: float | None
    spread: Spread | None
    repeats: tuple[Repeat, ...]
    duration_s: float | None
    attempts: int | None
    lost_usd: float | None
    warnings: tuple[str, ...]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a person came for."""

    rows: tuple[Row, ...]


def summarize(records: Iterable[RunRecord]) -> Summary:
    """One row for each group, in the order in which the groups first appear; a run that comes twice counts once."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        group = groups.setdefault(record.group, [])
        if record not in group:
            group.append(record)
    rows = []
    for members in groups.values():
        in_order = sorted(members, key=lambda record: record.repeat)
        rows.append(_row([(record, measure(record)) for record in in_order]))
    return Summary(rows=_with_scaling(rows))


def why_none(status: str, reason: str | None) -> str:
    """Status and reason of a run without a throughput, in words that say nothing twice."""
    if not reason:
        return status
    return reason if reason.startswith(status) else f"{status}: {reason}"


def _row(group: Sequence[tuple[RunRecord, Result]]) -> tuple[RunRecord, Row]:
    """A row, and the run that speaks for it."""
    good = [(record, result) for record, result in group if result.throughput is not None]
    first, told = (good or group)[0]
    throughputs = [result.throughput for _, result in good if result.throughput is not None]
    attempts = count_attempts([record for record, _ in group])
    row = Row(
        label=first.label,
        run=first.group if first.run and len(group) > 1 else first.run,
        nodes=first.nodes,
        gpus_per_node=first.gpus_per_node,
        throughput=_median(throughputs),
        throughput_per_gpu=_median(result.throughput_per_gpu for _, result in good),
        unit=told.unit,
        status=told.status,
        reason=told.reason,
        note="; ".join(filter(None, [first.note, attempts.words])) or None,
        scaling_efficiency=None,
        spread=_spread_over_repeats(throughputs) if len(group) > 1 else told.spread,
        repeats=tuple(
            Repeat(run=record.run, throughput=result.throughput, status=result.status, reason=result.reason)
            for record, result in group
        ),
        duration_s=_median(record.duration_s for record, _ in group),
        attempts=attempts.count,
        lost_usd=attempts.lost_usd,
        warnings=tuple(_warnings(group)),
    )
    return first, row


def _median(figures: Iterable[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return statistics.median(known) if known else None


def _spread_over_repeats(throughputs: Sequence[float]) -> Spread | None:
    if len(throughputs) < 2:
        return None
    return Spread(over="repeats", scope="job", count=len(throughputs), low=min(throughputs), high=max(throughputs))


def _warnings(group: Sequence[tuple[RunRecord, Result]]) -> Iterable[str]:
    """The warnings of all repeats, each once with the repeats that it concerns; a repeat left out is one as well."""
    some_good = any(result.throughput is not None for _, result in group)
    repeats: dict[str, list[int]] = {}
    for record, result in group:
        left_out = some_good and result.throughput is None
        told = [*result.warnings, *([f"left out, {why_none(result.status, result.reason)}"] if left_out else [])]
        for warning in dict.fromkeys(told):
            repeats.setdefault(warning, []).append(record.repeat)
    for warning, numbers in repeats.items():
        which = f"repeat{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}: "
        yield which + warning if len(group) > 1 else warning


def _with_scaling(rows: Sequence[tuple[RunRecord, Row]]) -> tuple[Row, ...]:
    """The rows with their scaling efficiency, where another row of the same training is there to compare with."""
    trainings: dict[bytes, list[tuple[int, int, float]]] = {}
    for record, row in rows:
        if record.experiment is not None and record.gpus is not None and row.throughput_per_gpu is not None:
            size = (record.gpus, record.nodes or 0, row.throughput_per_gpu)
            trainings.setdefault(_training(record, row), []).append(size)
    scaled = []
    for record, row in rows:
        sizes = trainings.get(_training(record, row), [])
        if len(sizes) > 1 and row.throughput_per_gpu is not None:
            base_per_gpu = min(sizes, key=operator.itemgetter(0, 1))[2]
            row = msgspec.structs.replace(row, scaling_efficiency=row.throughput_per_gpu / base_per_gpu)
        scaled.append(row)
    return tuple(scaled)


def _training(record: RunRecord, row: Row) -> bytes:
    """Rows of which one can be held against the other: the same training on the same kind of hardware."""
    return msgspec.json.encode(
        [record.experiment, record.template, record.parameters, record.hardware, row.unit], order="deterministic"
    )
