"""What a program prints is shown without what it would do to a terminal."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cloudbench.cli.session import plain_line


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("10\timages/sec: 57.0", "10      images/sec: 57.0"),
        ("\x1b[1;31mError\x1b[0m: no", "Error: no"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(Bplain\x1b7", "plain"),
        ("\x1b[", ""),
        ("größer 数", "größer 数"),
    ],
)
def test_control_sequences_are_left_out(printed: str, shown: str) -> None:
    assert plain_line(printed) == shown


@given(st.text() | st.text(alphabet="\x1b[]0m;\\\x07a\t"))
@example("\x1b\x1b[31m")
def test_no_line_controls_the_terminal(printed: str) -> None:
    assert not any(unicodedata.category(character) == "Cc" for character in plain_line(printed))


@given(st.integers(0, 1000))
def test_a_long_line_is_cut_and_says_so(length: int) -> None:
    shown = plain_line("x" * length)
    assert len(shown) == min(length, 200)
    assert shown.endswith("…") is (length > 200)
