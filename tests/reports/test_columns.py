"""What a person reads in the cells."""

from __future__ import annotations

import msgspec
import pytest

from cloudbench.reports.columns import one_line, sheet
from cloudbench.results.summary import summarize
from cloudbench.run import Outcome
from tests.reports.summaries import SUMMARY, summary
from tests.results.runs import parsed, record


def test_columns_are_those_of_the_published_tables() -> None:
    text = sheet(SUMMARY)
    assert text.header == ("test", "node", "gpu", "images/sec", "images/sec/gpu", "scaling", "note")
    assert text.rows[:2] == (
        ("one node", "1", "1", "56.57", "56.57", "1.00", "DSVM (python3) + local"),
        ("two nodes", "2", "1", "109.72", "54.86", "0.97", "DSVM (python3) + local"),
    )


def test_no_result_is_a_dash_with_its_reason() -> None:
    text = sheet(SUMMARY)
    assert text.rows[2] == ("cut", "1", "1", "-", "-", "-", "no-result: no total: the log ends at step 20; batch")
    assert text.failed == (False, False, True)


def test_what_is_not_known_is_a_dash() -> None:
    assert sheet(summary(nodes=None)).rows == (("a", "-", "1", "1.00", "-", "-", "-"),)


def test_repeats_show_their_number_and_range_in_the_note() -> None:
    runs = [
        record("a", repeat=number, note="spot", log=parsed(figure)) for number, figure in enumerate((3.0, 1.0, 2.5))
    ]
    assert sheet(summarize(runs)).rows[0][-1] == "spot; median of 3: 1.00 to 3.00"


def test_one_repeat_with_a_figure_has_no_range() -> None:
    lost = record("a", repeat=2, note="spot", outcome=Outcome.CANCELLED, reason="cancelled")
    assert sheet(summarize([record("a", note="spot", log=parsed(42.5)), lost])).rows[0][-1] == "spot"


def test_a_reason_that_begins_with_the_outcome_stands_alone() -> None:
    lost = record("a", outcome=Outcome.CANCELLED, reason="cancelled")
    assert sheet(summarize([lost])).rows[0][-1] == "cancelled"


def test_warnings_mark_the_label_and_are_told_below() -> None:
    text = sheet(summary(log=parsed(1.0, warnings=("ranks ended with different weights",))))
    assert text.rows[0][0] == "a *"
    assert text.remarks == ("* a: ranks ended with different weights",)


def test_rows_of_the_same_label_are_told_apart_by_their_runs() -> None:
    runs = [record("local 2x1", group=run, run=run, log=parsed(1.0, warnings=("w",))) for run in ("x-1", "x-2")]
    text = sheet(summarize(runs))
    assert [row[0] for row in text.rows] == ["x-1 *", "x-2 *"]
    assert text.remarks == ("* x-1: w", "* x-2: w")


def test_where_units_differ_each_figure_has_its_own() -> None:
    tokens = msgspec.structs.replace(parsed(5000.0), unit="tokens/sec")
    text = sheet(summarize([record("a", log=parsed(1.0)), record("b", log=tokens), record("c")]))
    assert text.header[3:5] == ("throughput", "throughput/gpu")
    assert [row[3] for row in text.rows] == ["1.00 images/sec", "5000.00 tokens/sec", "-"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("two\nlines\tand  spaces ", "two lines and spaces"),
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("right\u202eleft", "rightleft"),
        ("\udcff", ""),
    ],
)
def test_text_is_one_line_that_no_terminal_obeys(text: str, line: str) -> None:
    assert one_line(text) == line
