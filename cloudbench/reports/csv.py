"""The rows for a spreadsheet or a data frame: full figures, one column a field, empty where something is missing."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from cloudbench.reports.columns import one_line

if TYPE_CHECKING:
    from cloudbench.results.summary import Row, Summary


def render_csv(summary: Summary) -> bytes:
    """RFC 4180 with a header line.

    A spreadsheet evaluates a cell that begins like a formula, and labels, reasons and notes hold words that others
    wrote. So text that begins with `=`, `+`, `-` or `@` gets an apostrophe in front. Numbers stay as they are.
    """
    written = io.StringIO(newline="")
    writer = csv.DictWriter(written, fieldnames=_COLUMNS)
    writer.writeheader()
    for row in summary.rows:
        writer.writerow({name: _cell(value) for name, value in _values(row).items()})
    return written.getvalue().encode()


_COLUMNS = (
    "label",
    "run",
    "nodes",
    "gpus_per_node",
    "throughput",
    "throughput_per_gpu",
    "unit",
    "status",
    "reason",
    "note",
    "scaling_efficiency",
    "spread_over",
    "spread_scope",
    "spread_low",
    "spread_high",
    "repeats",
    "duration_s",
    "attempts",
    "lost_usd",
    "warnings",
)


def _values(row: Row) -> dict[str, Any]:
    spread = row.spread
    special = {
        "spread_over": spread.over if spread else None,
        "spread_scope": spread.scope if spread else None,
        "spread_low": spread.low if spread else None,
        "spread_high": spread.high if spread else None,
        "repeats": len(row.repeats),
        "warnings": "; ".join(row.warnings),
    }
    return {name: special[name] if name in special else getattr(row, name) for name in _COLUMNS}


def _cell(value: float | str | None) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value)
    text = one_line(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
