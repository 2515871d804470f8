"""The table as GitHub's Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cloudbench.reports.columns import NUMERIC, sheet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudbench.results.summary import Summary

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&#])")


def render_markdown(summary: Summary) -> bytes:
    """A table with one line for each row; the remarks are a list below it."""
    text = sheet(summary)
    rule = ["--:" if index in NUMERIC else "---" for index in range(len(text.header))]
    lines = [_line(map(_escaped, text.header)), _line(rule), *(_line(map(_escaped, cells)) for cells in text.rows)]
    if text.remarks:
        lines += ["", *(f"- {_escaped(remark.removeprefix('* '))}" for remark in text.remarks)]
    return ("\n".join(lines) + "\n").encode()


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """The text as itself: no pipe ends a cell, nothing is taken for Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", text)
