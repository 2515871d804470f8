"""What a run's headline figures come to over its ranks, in one log or in one log a rank, and whether they agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

_SAME_TOTAL = 0.01
"""Ranks time the same steps, each with its own clock: over a hundred steps they differ by 0.01 %, over ten by more."""
_ROUNDING = 0.011


def throughput_of(printed: Sequence[float]) -> float | None:
    """The median of headline figures; rounded, because half of two figures' sum has more digits than it knows."""
    return round(median(printed), 6) if printed else None


def ranks_disagree(totals: Sequence[float], weights: Sequence[str]) -> Iterator[str]:
    """Warnings about a job's totals, and digests of its trained weights, that should be equal over ranks."""
    if totals and max(totals) - min(totals) > _SAME_TOTAL * median(totals) + _ROUNDING:
        yield f"ranks disagree on the total: {min(totals):g} to {max(totals):g}"
    if len(set(weights)) > 1:
        yield "ranks ended with different weights: gradients were not exchanged"


def independent(processes: int) -> str:
    """The warning about processes that trained each on its own."""
    return f"{processes} independent jobs, one a process: every figure is one process's"
