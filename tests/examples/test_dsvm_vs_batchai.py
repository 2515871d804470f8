"""The example prints the document's own table."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudbench.reports import render
from cloudbench.results.summary import Row, Summary, summarize
from cloudbench.sources import folder_records

FOLDER = Path(__file__).parents[2] / "examples" / "dsvm-vs-batchai"
DSVM = "DSVM (python3) + local"
LOW_PRIORITY = "BatchAI (tensorflow/tensorflow:latest-gpu-py3)/lowpriority + azure files"
DEDICATED = "BatchAI (tensorflow/tensorflow:latest-gpu-py3)/dedicated + azure files"
DOCUMENT = [
    ("test-1", 1, 1, 56.57, 56.57, DSVM),
    ("test-2", 1, 2, 109.34, 54.67, DSVM),
    ("test-3", 2, 1, 109.72, 54.86, DSVM),
    ("test-4", 2, 2, 209.87, 52.47, DSVM),
    ("test-5", 2, 1, 106.38, 53.19, LOW_PRIORITY),
    ("test-6", 2, 2, 205.18, 51.30, LOW_PRIORITY),
    ("test-7", 2, 2, 211.02, 52.76, DEDICATED),
]


@pytest.fixture(scope="module")
def summary() -> Summary:
    return summarize(folder_records(FOLDER))


def test_the_rows_are_the_documents(summary: Summary) -> None:
    assert [_row(row) for row in summary.rows] == [
        (label, nodes, gpus, pytest.approx(total, abs=0.01), pytest.approx(per_gpu, abs=0.01), note)
        for label, nodes, gpus, total, per_gpu, note in DOCUMENT
    ]
    assert all(row.unit == "images/sec" and not row.warnings for row in summary.rows)


def test_the_printed_table_is_the_documents_to_the_last_digit(summary: Summary) -> None:
    lines = render(summary, "md").decode().splitlines()
    printed = []
    for line in lines[2:]:
        label, node, gpu, rate, each, _, note = (cell.strip() for cell in line.replace("\\", "").strip("|").split("|"))
        printed.append((label, int(node), int(gpu), float(rate), float(each), note))
    # Of the four totals of test 4 the document shows the greatest, 209.87; the median is 209.86.
    assert printed == [(*row[:3], 209.86 if row[0] == "test-4" else row[3], *row[4:]) for row in DOCUMENT]


def test_the_readme_shows_what_is_printed(summary: Summary) -> None:
    assert render(summary, "md").decode() in (FOLDER / "README.md").read_text("utf-8")


def test_scaling_is_held_against_the_single_gpu(summary: Summary) -> None:
    assert [row.scaling_efficiency for row in summary.rows] == pytest.approx(
        [per_gpu / 56.57 for *_, per_gpu, _ in DOCUMENT], abs=0.001
    )


def _row(row: Row) -> tuple[object, ...]:
    return row.label, row.nodes, row.gpus_per_node, row.throughput, row.throughput_per_gpu, row.note
