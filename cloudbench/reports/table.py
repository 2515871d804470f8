"""The table a terminal shows, and the same table as a picture."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cloudbench.reports.columns import NUMERIC, Sheet, sheet

if TYPE_CHECKING:
    from cloudbench.results.summary import Summary

_LEAST_WORDS = 8
"""Columns that a label or a note is folded into at the least."""
_GAP = 3
"""Columns between two cells."""


def render_table(summary: Summary, *, width: int, colour: bool = False) -> bytes:
    """The table in `width` columns: words are folded, figures never cut, be the width too small for them."""
    written = io.StringIO()
    _print(sheet(summary), _console(written, width, colour=colour))
    return "".join(line.rstrip() + "\n" for line in written.getvalue().splitlines()).encode()


def render_svg(summary: Summary, *, width: int, title: str) -> bytes:
    """The table as an SVG picture of a terminal that is `width` columns wide."""
    console = _console(io.StringIO(), width, colour=True)
    console.record = True
    _print(sheet(summary), console)
    picture = console.export_svg(title=title)
    # A picture must not fetch fonts from a network; without them it is set in the reader's own monospace.
    return re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL).encode()


def _console(file: io.StringIO, width: int, *, colour: bool) -> Console:
    return Console(
        file=file,
        width=width,
        color_system="standard" if colour else None,
        force_terminal=colour,
        legacy_windows=False,
        highlight=False,
        _environ={},  # what the environment says of terminals and colours is the caller's business
    )


def _print(text: Sheet, console: Console) -> None:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, name in enumerate(text.header):
        if index in NUMERIC:
            table.add_column(Text(name), justify="right", no_wrap=True, header_style="bold")
        else:
            table.add_column(Text(name), overflow="fold", header_style="bold")
    for cells, failed in zip(text.rows, text.failed, strict=True):
        table.add_row(*map(Text, cells), style="red" if failed else "")
    console.width = max(console.width, _least_width(text))
    console.print(table, *(Text(remark, style="yellow") for remark in text.remarks), sep="\n")


def _least_width(text: Sheet) -> int:
    columns = enumerate(zip(text.header, *text.rows, strict=True))
    widths = [max(map(len, cells)) if index in NUMERIC else _LEAST_WORDS for index, cells in columns]
    return sum(widths) + _GAP * (len(widths) - 1)
