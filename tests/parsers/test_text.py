from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudbench.parsers.text import BLOCK_BYTES, Lines, blocks, rank_of, tag_of


def test_every_line_stands_behind_a_line_end():
    assert list(blocks([b"one\ntwo"])) == [b"\none\ntwo"]


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        (b"a\r\nb\r\n", b"\na\nb\n"),
        (b"10%\r20%\rdone\n", b"\n10%\n20%\ndone\n"),
        (b"\x1b[1;34mtotal\x1b[m 5\n", b"\ntotal 5\n"),
        (b"\x1b(B\x1b[mtotal\x1b]0;title\x07 5\x1bM\n", b"\ntotal 5\n"),
        (b"\x00\x00to\x00tal 5\n", b"\ntotal 5\n"),
    ],
    ids=["CR LF", "bare CR", "colours", "other escapes", "NUL"],
)
def test_what_is_cleaned_away(raw, clean):
    assert list(blocks([raw])) == [clean]


@given(st.integers(min_value=1000, max_value=3 * BLOCK_BYTES), st.integers(min_value=1, max_value=200))
def test_blocks_do_not_depend_on_chunks(size, width):
    data = (b"x" * width + b"\n") * (2 * BLOCK_BYTES // (width + 1))
    assert list(blocks(data[start : start + size] for start in range(0, len(data), size))) == list(blocks([data]))


def test_a_block_ends_at_a_line_end():
    parts = list(blocks([b"a line\n" * (BLOCK_BYTES // 2)]))
    assert len(parts) == 4
    assert all(part.endswith(b"a line\n") and len(part) <= BLOCK_BYTES + 1 for part in parts)


def test_a_line_longer_than_a_block_is_read_in_pieces_of_whole_words():
    parts = list(blocks([b"total 12345 " * (BLOCK_BYTES // 4)]))
    assert len(parts) > 1
    assert {word for part in parts for word in part.split()} == {b"total", b"12345"}


def test_a_line_without_white_space_is_read_in_pieces_of_a_block():
    assert [len(part) for part in blocks([b"x" * (2 * BLOCK_BYTES + 1)])] == [BLOCK_BYTES + 1, BLOCK_BYTES + 1, 2]


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        (b"[1,0]<stdout>:", 0),
        (b"Mon Oct 15 23:15:16 2018[1,12]<stderr>:", 12),
        (b"  # [3]<stdout>:", 3),
        (b"[127.0.0.1/02/02-of-04::stdout] ", 2),
        (b"[127.0.0.1.10003::stdout] ", None),
        (b"2019-03-02T10:25:35.03856711Z ", None),
        (b"INFO|2024-12-07T13:54:54|/opt/launcher.py|27| ", None),
        (b"", None),
    ],
)
def test_the_rank_that_a_prefix_names(prefix, rank):
    assert rank_of(tag_of(prefix)) == rank


def test_a_tag_may_name_a_process_that_is_no_rank():
    assert tag_of(b"[127.0.0.1.10003::stdout] ") == b"127.0.0.1.10003"


def test_lines_are_counted_through_blocks():
    lines = Lines()
    assert lines.at(b"\none\ntwo\n", 5) == 2
    lines.end(b"\none\ntwo\n")
    assert lines.at(b"\nthree\n", 1) == 3
