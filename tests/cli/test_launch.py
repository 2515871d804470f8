"""Money is spent only where somebody has said yes."""

from __future__ import annotations

import io
import sys

import click
import pytest

from cloudbench.cli.launch import ask_before_spending
from cloudbench.errors import UsageError


@pytest.mark.parametrize("given", [io.StringIO(""), None], ids=["empty", "closed"])
def test_where_nobody_can_be_asked_the_option_is_named_that_says_yes(
    monkeypatch: pytest.MonkeyPatch, given: io.StringIO | None
) -> None:
    monkeypatch.setattr(sys, "stdin", given)
    with pytest.raises(UsageError, match="nobody is there") as told:
        ask_before_spending("This can cost up to 1.00 USD. Go on?")
    assert told.value.todo == "add --yes"


def test_a_no_is_no_and_a_yes_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\ny\n"))
    with pytest.raises(click.Abort):
        ask_before_spending("Go on?")
    ask_before_spending("Go on?")
