"""Every error a person can meet: what happened, why, and what to do next.

An error is translated once, where the outside world is met, into one of these classes. The command line
prints it and ends with its exit code; nothing else catches it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CloudbenchError(Exception):
    """What happened, why, and the next thing to do.

    Args:
        what: one sentence without a full stop, naming the thing (a file and its key, a run, a setting).
        why: the reason, where `what` does not say it already.
        todo: what the person can do next; a command where there is one.
    """

    exit_code = 1

    def __init__(self, what: str, *, why: str | None = None, todo: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.todo = todo

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.todo:
            lines.append(f"  try: {self.todo}")
        return "\n".join(lines)


class UsageError(CloudbenchError):
    """The arguments do not make sense together, or name something that does not exist."""

    exit_code = 2


class SpecError(CloudbenchError):
    """A template, setup or experiment is wrong; `what` names the file and the key."""

    exit_code = 2


class CredentialsError(CloudbenchError):
    """No credentials, expired ones, or those of another account than the recorded one."""

    exit_code = 3


class CapacityError(CloudbenchError):
    """The setup cannot be had: no capacity, a retired size, or too few GPUs on this machine."""

    exit_code = 4


class QuotaError(CapacityError):
    """The account's quota does not cover the setup, however much capacity there is."""


class JobFailedError(CloudbenchError):
    """The job ran and failed, or what it needs is not installed."""

    exit_code = 5


class LimitError(CloudbenchError):
    """The time limit or the cost limit was reached, or would be."""

    exit_code = 6


class PreemptedError(CloudbenchError):
    """The provider took the machines back."""

    exit_code = 7


class InfrastructureError(CloudbenchError):
    """The provider, its service or its engine failed; the job itself did not."""

    exit_code = 5


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'nodes'?` where a known word is near, else nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
