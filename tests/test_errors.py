"""What a person reads when something is wrong, and what a program gets as its exit code."""

from __future__ import annotations

import inspect

import pytest

from cloudbench import errors
from cloudbench.errors import CloudbenchError, did_you_mean

CLASSES = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, CloudbenchError)]


def test_an_error_says_what_why_and_what_to_do() -> None:
    error = CloudbenchError("run x failed", why="rank 3 died", todo="cloudbench logs x")
    assert str(error) == "run x failed\n  why: rank 3 died\n  try: cloudbench logs x"


@pytest.mark.parametrize(("why", "todo"), [(None, None), ("", "")])
def test_what_is_not_known_leaves_no_line(why: str | None, todo: str | None) -> None:
    assert str(CloudbenchError("run x failed", why=why, todo=todo)) == "run x failed"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("CloudbenchError", 1),
        ("UsageError", 2),
        ("SpecError", 2),
        ("CredentialsError", 3),
        ("CapacityError", 4),
        ("QuotaError", 4),
        ("JobFailedError", 5),
        ("InfrastructureError", 5),
        ("LimitError", 6),
        ("PreemptedError", 7),
    ],
)
def test_the_exit_codes_are_those_of_the_manual(name: str, code: int) -> None:
    assert getattr(errors, name).exit_code == code


def test_the_catalogue_is_whole() -> None:
    assert len(CLASSES) == 10
    for found in CLASSES:
        assert found.__doc__
        assert isinstance(found("x"), Exception)


def test_an_error_can_be_caught_as_any_other() -> None:
    assert CloudbenchError("run x failed", why="y").args == ("run x failed",)


@pytest.mark.parametrize(
    ("word", "said"),
    [("nods", "; did you mean 'nodes'?"), ("node", "; did you mean 'nodes'?"), ("zebra", ""), ("", "")],
)
def test_a_near_word_is_offered_and_a_far_one_is_not(word: str, said: str) -> None:
    assert did_you_mean(word, ["nodes", "provider"]) == said
