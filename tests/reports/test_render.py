"""Every format: bytes that say the same as the rows."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudbench.reports import FORMATS, render
from cloudbench.results.summary import Row, Summary
from tests.reports.summaries import SUMMARY, summaries, summary
from tests.results.runs import parsed


@pytest.mark.parametrize("format_", FORMATS)
def test_the_same_summary_gives_the_same_bytes(format_: Any) -> None:
    assert render(SUMMARY, format_) == render(SUMMARY, format_)
    assert render(SUMMARY, format_).endswith(b"\n")


@given(any_summary=summaries(), width=st.integers(1, 200), colour=st.booleans())
def test_any_summary_can_be_rendered(any_summary: Summary, width: int, colour: bool) -> None:
    for format_ in FORMATS:
        render(any_summary, format_, width=width, colour=colour).decode()  # type: ignore[arg-type]


def test_json_has_the_fields_that_scripts_rely_on() -> None:
    rows = json.loads(render(SUMMARY, "json"))["rows"]
    assert {
        name: rows[1][name]
        for name in ("label", "run", "nodes", "gpus_per_node", "throughput", "throughput_per_gpu", "unit", "status")
    } == {
        "label": "two nodes",
        "run": "x-two-nodes-5f0c1a",
        "nodes": 2,
        "gpus_per_node": 1,
        "throughput": 109.72,
        "throughput_per_gpu": 54.86,
        "unit": "images/sec",
        "status": "ok",
    }
    assert (rows[1]["reason"], rows[1]["note"]) == (None, "DSVM (python3) + local")
    assert (rows[2]["status"], rows[2]["throughput"]) == ("no-result", None)
    assert rows[2]["reason"] == "no total: the log ends at step 20"


@given(any_summary=summaries())
def test_json_gives_every_number_back(any_summary: Summary) -> None:
    rows = json.loads(render(any_summary, "json"), parse_constant=_refuse)["rows"]
    assert [_numbers(row) for row in rows] == [_numbers(row) for row in any_summary.rows]


@given(any_summary=summaries())
def test_csv_gives_every_number_back(any_summary: Summary) -> None:
    rows = list(csv.DictReader(io.StringIO(render(any_summary, "csv").decode(), newline="")))
    read = [{name: float(row[name]) if row[name] else None for name in _NUMBERS} for row in rows]
    assert read == [_numbers(row) for row in any_summary.rows]


@pytest.mark.parametrize("label", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1+1", "\r=1+1"])
def test_csv_holds_no_text_that_a_spreadsheet_would_evaluate(label: str) -> None:
    (row,) = csv.DictReader(io.StringIO(render(summary(label=label, note=label), "csv").decode(), newline=""))
    assert row["label"] == row["note"] == "'" + label.strip()


@given(label=st.text(max_size=20), note=st.text(max_size=20))
def test_markdown_keeps_its_columns_whatever_the_text(label: str, note: str) -> None:
    lines = render(summary(label=label, note=note), "md").decode().splitlines()
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines] == [8, 8, 8]


def test_markdown_shows_text_as_it_is() -> None:
    lines = render(summary(label="<b>*a*|b</b>"), "md").decode().splitlines()
    assert lines[2].startswith(r"| \<b\>\*a\*\|b\</b\> | 1 | 1 | 1.00 |")


def test_markdown_lists_the_warnings_below_the_table() -> None:
    text = render(summary(log=parsed(1.0, warnings=("the loss is not finite",))), "md").decode()
    assert text.endswith("|\n\n- a: the loss is not finite\n")


_NUMBERS = ("nodes", "gpus_per_node", "throughput", "throughput_per_gpu", "scaling_efficiency", "duration_s")


def _numbers(row: Row | dict[str, Any]) -> dict[str, float | None]:
    return {name: row[name] if isinstance(row, dict) else getattr(row, name) for name in _NUMBERS}


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
