"""Runs and logs as the tests of results and reports need them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from hypothesis import strategies as st

from cloudbench.parsers import ParsedRun, Scope
from cloudbench.results.measurement import RunRecord
from cloudbench.run import Attempt, Outcome, Status


def parsed(*printed: float, scope: Scope = "job", **fields: Any) -> ParsedRun:
    """What a parser gives for these headline figures."""
    throughput = median(printed) if printed else None
    return ParsedRun(throughput=throughput, unit="images/sec", scope=scope, printed=printed, **fields)


def record(label: str = "a", *, log: ParsedRun | None = None, **fields: Any) -> RunRecord:
    """A run that succeeded, on one node with one GPU where nothing else is said."""
    values = {"group": label, "nodes": 1, "gpus_per_node": 1, "outcome": Outcome.SUCCEEDED, **fields}
    return RunRecord(label=label, parsed=log, **values)


def tf_cnn_log(totals: Sequence[float]) -> bytes:
    """The end of a log of tf_cnn_benchmarks in which each rank printed one of these totals."""
    lines = []
    for total in totals:
        lines += ["-" * 64, f"total images/sec: {total:.2f}", "-" * 64]
    return "\n".join([*lines, ""]).encode()


FIGURES = st.floats(allow_nan=True, allow_infinity=True)
SCOPES: st.SearchStrategy[Scope] = st.sampled_from(["gpu", "process", "node", "job"])
COUNTS = st.none() | st.integers(0, 64)
TEXTS = st.text(max_size=30)
ATTEMPTS = st.builds(
    Attempt,
    number=st.integers(1, 4),
    status=st.just(Status(outcome=Outcome.PREEMPTED)),
    duration_s=st.none() | st.floats(0, 1e6),
    lost_usd=st.none() | st.floats(0, 1e6),
    lost_usd_reason=st.none() | TEXTS,
    files_lost=st.none() | TEXTS,
)


@st.composite
def parsed_runs(draw: st.DrawFn) -> ParsedRun:
    """Anything that a parser could give, and what none should."""
    return parsed(
        *draw(st.lists(FIGURES, max_size=6)),
        scope=draw(SCOPES),
        processes=draw(COUNTS),
        gpus=draw(COUNTS),
        warnings=tuple(draw(st.lists(TEXTS, max_size=2))),
        reason=draw(st.none() | TEXTS),
    )


@st.composite
def records(draw: st.DrawFn) -> RunRecord:
    """Any run, of a few groups and trainings."""
    group = draw(st.sampled_from(["a", "b", "c"]))
    return RunRecord(
        label=draw(TEXTS),
        group=group,
        run=draw(st.none() | st.just(group)),
        repeat=draw(st.integers(1, 5)),
        experiment=draw(st.sampled_from([None, "x"])),
        parameters=draw(st.sampled_from([{}, {"batch_size": 32}])),
        nodes=draw(st.none() | st.integers(1, 64)),
        gpus_per_node=draw(st.none() | st.integers(1, 16)),
        ranks=draw(st.none() | st.integers(1, 8)),
        note=draw(st.none() | TEXTS),
        outcome=draw(st.none() | st.sampled_from(Outcome)),
        reason=draw(st.none() | TEXTS),
        parsed=draw(st.none() | parsed_runs()),
        independent=draw(st.booleans()),
        duration_s=draw(st.none() | st.floats(0, 1e6)),
        attempts=draw(st.none() | st.integers(1, 4)),
        lost=tuple(draw(st.lists(ATTEMPTS, max_size=2))),
        lost_logs=tuple(draw(st.lists(st.integers(1, 4), max_size=2))),
    )
