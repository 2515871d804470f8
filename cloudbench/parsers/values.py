"""What a parser gives back: figures with their scope, and runs with a result or a reason for none."""

from __future__ import annotations

from typing import Literal

import msgspec

Scope = Literal["gpu", "process", "node", "job"]
"""What one printed number covers."""

Kind = Literal["step", "cumulative", "window", "total"]
"""What one printed number averages: one step, all steps since warm-up, the last few steps, or the whole run."""

UncertaintyKind = Literal["sem", "std", "std95", "mad"]
"""Standard error of the mean, standard deviation, 1.96 times that, or median absolute deviation."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One number from a log.

    `rank` is the rank that the line's prefix names, None where it names none. `line` counts from 1; a bare
    carriage return ends a line too.
    """

    value: float
    unit: str
    scope: Scope
    kind: Kind
    line: int
    step: int | None = None
    rank: int | None = None
    uncertainty: float | None = None
    uncertainty_kind: UncertaintyKind | None = None


class ParsedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a training program, over all the ranks whose lines the log holds.

    `throughput` is the median of `printed` (every headline figure, as printed) at `scope`, or None with a `reason`.
    `processes` and `gpus` are those of the whole run, `steps` is the last step that was printed. The fields after
    `reason` repeat what the program said about itself; `weights` are the digests of the trained weights, one a rank.
    `observations` are there only where they were asked for.
    """

    throughput: float | None
    unit: str
    scope: Scope
    printed: tuple[float, ...] = ()
    processes: int | None = None
    gpus: int | None = None
    steps: int | None = None
    warnings: tuple[str, ...] = ()
    reason: str | None = None
    model: str | None = None
    mode: str | None = None
    batch_size_global: int | None = None
    batch_size_per_device: int | None = None
    variable_update: str | None = None
    devices: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    observations: tuple[Observation, ...] | msgspec.UnsetType = msgspec.UNSET


class ParsedLog(msgspec.Struct, frozen=True, kw_only=True):
    """One log: its format (None where none was recognised) and its runs in the order of their first lines.

    `status` is `ok` where at least one run has a throughput; otherwise `reason` says why there is no result.
    """

    format: str | None
    status: Literal["ok", "no-result"]
    reason: str | None = None
    runs: tuple[ParsedRun, ...] = ()
    path: str | None = None
