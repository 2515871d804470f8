"""What a person reads, cell by cell: the columns of the table and of Markdown, in the order of the published tables."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cloudbench.results.summary import Row, Summary, why_none

MISSING = "-"


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """Text, not yet escaped for any format. `remarks` are the warnings, told below the table.

    `failed` says of each row whether it has no result.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    failed: tuple[bool, ...]
    remarks: tuple[str, ...]


NUMERIC = range(1, 6)
"""The columns that are set flush right."""


def sheet(summary: Summary) -> Sheet:
    """The summary as text: two decimals, `-` with the reason in the note where there is no result.

    Units are in the header where all rows share one, else beside each figure. A `*` behind a label leads to the
    remarks.
    """
    units = {row.unit for row in summary.rows if row.throughput is not None and row.unit is not None}
    shared = units.pop() if len(units) == 1 else None
    name = shared or "throughput"
    labels = [row.label for row in summary.rows]
    # Runs of the same setup with other parameters share a label; their ids tell them apart.
    tests = [one_line(row.run if row.run and labels.count(row.label) > 1 else row.label) for row in summary.rows]
    return Sheet(
        header=("test", "node", "gpu", name, f"{name}/gpu", "scaling", "note"),
        rows=tuple(
            _cells(test, row, beside="" if shared else f" {row.unit or ''}".rstrip())
            for test, row in zip(tests, summary.rows, strict=True)
        ),
        failed=tuple(row.throughput is None for row in summary.rows),
        remarks=tuple(
            f"* {test}: {one_line(text)}"
            for test, row in zip(tests, summary.rows, strict=True)
            for text in row.warnings
        ),
    )


def one_line(text: str) -> str:
    """The text without line ends, tabs and what a terminal would obey."""
    return "".join(character for character in " ".join(text.split()) if character.isprintable())


def _cells(test: str, row: Row, *, beside: str) -> tuple[str, ...]:
    return (
        test + (" *" if row.warnings else ""),
        _number(row.nodes),
        _number(row.gpus_per_node),
        _figure(row.throughput, beside),
        _figure(row.throughput_per_gpu, beside),
        _figure(row.scaling_efficiency),
        _note(row),
    )


def _number(number: int | None) -> str:
    return MISSING if number is None else str(number)


def _figure(figure: float | None, beside: str = "") -> str:
    return MISSING if figure is None else f"{figure:.2f}{beside}"


def _note(row: Row) -> str:
    parts: Sequence[str | None] = [row.note]
    if row.throughput is None:
        parts = [why_none(row.status, row.reason), row.note]
    elif row.spread is not None and row.spread.over == "repeats":
        parts = [row.note, f"median of {row.spread.count}: {row.spread.low:.2f} to {row.spread.high:.2f}"]
    return one_line("; ".join(part for part in parts if part)) or MISSING
