"""The table of a terminal, and its picture."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from cloudbench.reports.columns import sheet
from cloudbench.reports.table import render_svg, render_table
from cloudbench.results.summary import Summary
from tests.reports.summaries import SUMMARY, summaries, summary
from tests.results.runs import parsed


def test_the_table_reads_like_the_published_ones() -> None:
    assert render_table(SUMMARY, width=100).decode().splitlines() == [
        "test        node   gpu   images/sec   images/sec/gpu   scaling   note",
        "─" * 100,
        "one node       1     1        56.57            56.57      1.00   DSVM (python3) + local",
        "two nodes      2     1       109.72            54.86      0.97   DSVM (python3) + local",
        "cut            1     1            -                -         -   no-result: no total: the log ends",
        "                                                                 at step 20; batch",
    ]


@given(any_summary=summaries(), width=st.integers(1, 200))
def test_no_figure_is_cut_however_narrow_the_terminal(any_summary: Summary, width: int) -> None:
    words = render_table(any_summary, width=width).decode().split()
    for row in any_summary.rows:
        for figure in (row.throughput, row.throughput_per_gpu, row.scaling_efficiency):
            assert figure is None or f"{figure:.2f}" in words


def test_markup_in_a_label_is_text() -> None:
    assert b"[red]a[/red] :bug:" in render_table(summary(label="[red]a[/red] :bug:"), width=100)


def test_colours_come_only_where_they_are_asked_for() -> None:
    assert b"\x1b[" not in render_table(SUMMARY, width=100)
    assert b"\x1b[31m" in render_table(SUMMARY, width=100, colour=True)


def test_warnings_stand_below_the_table() -> None:
    text = render_table(summary(log=parsed(1.0, warnings=("the loss is not finite",))), width=100).decode()
    assert text.splitlines()[-1] == "* a: the loss is not finite"


def test_the_picture_is_an_svg_with_the_tables_text_and_needs_no_network() -> None:
    picture = render_svg(SUMMARY, width=100, title="cloudbench summary")
    text = "".join(ElementTree.fromstring(picture).itertext()).replace("\xa0", " ")  # noqa: S314 - our own
    for cell in (*sheet(SUMMARY).header, "two nodes", "109.72", "54.86", "cloudbench summary"):
        assert cell in text
    assert b"url(http" not in picture
    assert b"@font-face" not in picture
