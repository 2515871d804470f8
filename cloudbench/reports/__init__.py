"""A summary as bytes, for a person or for a program. Pure: the caller owns the file."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from cloudbench.results.summary import Summary

Format = Literal["table", "md", "csv", "json"]
FORMATS: tuple[str, ...] = get_args(Format)


def render(summary: Summary, format_: Format, *, width: int = 120, colour: bool = False) -> bytes:
    """The summary in that format, as UTF-8 with a line end at its end.

    `width` (in columns) and `colour` are the terminal's and shape the table alone.
    """
    if format_ == "json":
        return msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"
    if format_ == "csv":
        from cloudbench.reports.csv import render_csv

        return render_csv(summary)
    if format_ == "md":
        from cloudbench.reports.markdown import render_markdown

        return render_markdown(summary)
    from cloudbench.reports.table import render_table

    return render_table(summary, width=width, colour=colour)
