from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudbench.parsers import ParsedRun, parse
from cloudbench.parsers.advance import Advance, StepLine, advance
from tests.parsers.logs import HEADER, step, total

PREFIXES: dict[str, Callable[[int], str]] = {
    "nothing": lambda rank: "",
    "a tag": lambda rank: f"Mon Oct 15 23:15:16 2018[1,{rank}]<stdout>:",
    "a time": lambda rank: "2019-03-02T10:25:35.038567112Z ",
}
prefixes = pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES.keys())


def printed(steps: list[int], ranks: int, prefix: Callable[[int], str] = PREFIXES["nothing"]) -> str:
    return "".join(prefix(rank) + step(number, 50 + rank + number / 10) for number in steps for rank in range(ranks))


def advance_of(text: str) -> Advance | None:
    block = b"\n" + text.encode()
    return advance(block, 0, len(block))


def runs(text: str, *, line_by_line: bool) -> list[ParsedRun]:
    """With observations every line is read by itself."""
    found = parse([text.encode()], "tf_cnn_benchmarks", observations=line_by_line).runs
    return [msgspec.structs.replace(run, observations=msgspec.UNSET) for run in found]


def test_ranks_that_advance_together_are_known_by_their_first_and_last_lines():
    found = advance_of(printed([1, 10, 20, 30], ranks=2))
    assert found == Advance(first=1, before=20, last=(StepLine(None, 30, b"53.0"), StepLine(None, 30, b"54.0")))


def test_noise_between_the_lines_does_not_matter():
    lines = printed([1, 10, 20, 30], ranks=2).splitlines(keepends=True)
    assert advance_of("W some warning\n".join(lines)) == advance_of("".join(lines))


@prefixes
def test_a_rank_may_be_a_line_behind_at_the_end(prefix):
    found = advance_of(printed([1, 10, 20], 3, prefix) + prefix(0) + step(30, 77))
    assert found
    assert sorted((line.step, line.figure) for line in found.last)[-1] == (30, b"77.0")
    assert sorted(line.step for line in found.last) == [20, 20, 30]


@pytest.mark.parametrize(
    "text",
    [
        printed([1, 10, 20, 40], ranks=2),
        printed([1, 10, 20, 30], ranks=2) + step(30, 50),
        printed([1, 10, 20, 30], ranks=1) * 2,
        printed([1, 10, 20, 30], ranks=2)[:-30],
        printed([10], ranks=3),
        "",
    ],
    ids=["a step is missing", "a line too many", "one after the other", "cut", "one step", "nothing"],
)
def test_anything_else_is_left_to_who_reads_each_line(text):
    assert advance_of(text) is None


@prefixes
@given(
    parts=st.lists(
        st.tuples(
            st.sampled_from([1, 10]),
            st.sampled_from([0, 1, 2, 3, 5, 100]),
            st.one_of(st.none(), st.integers(min_value=0, max_value=300)),
            st.sampled_from(["", HEADER, total(50.0), "W noise\n"]),
        ),
        max_size=4,
    ),
    ranks=st.integers(min_value=1, max_value=3),
)
def test_lines_read_together_give_what_lines_read_one_by_one_give(prefix, parts, ranks):
    text = ""
    for distance, count, lost, end in parts:
        steps = [1 + distance * number for number in range(count)]
        lines = printed(steps, ranks, prefix).splitlines(keepends=True)
        text += "".join(line for number, line in enumerate(lines) if number != lost) + end
    assert runs(text, line_by_line=False) == runs(text, line_by_line=True)
