"""From what the nodes say to how the job stands. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from cloudbench.run import Outcome, Status

_ITS_OWN_DOING = (Outcome.FAILED, Outcome.TIMED_OUT)


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a node's `status.json` that decides how the job stands."""

    state: str
    outcome: Outcome | None = None
    exit_code: int | None = None
    reason: str | None = None
    last_lines: tuple[str, ...] = ()
    stamps: dict[str, float | None] = {}

    @property
    def failed(self) -> bool:
        """Ended, and not by success."""
        return self.outcome not in (None, Outcome.SUCCEEDED)


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One node as it was seen: what it wrote last, then whether its program lives.

    `last_lines` end its newest log, for the case that it has nothing to say itself.
    """

    index: int
    alive: bool
    status: NodeStatus | None = None
    last_lines: tuple[str, ...] = ()

    @property
    def died(self) -> bool:
        """Its program is gone and never said how it ended."""
        return not self.alive and (self.status is None or self.status.outcome is None)


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """From this side the job was told to end: when (seconds since the epoch), and what that makes of it."""

    at: float
    outcome: Outcome
    reason: str


def judge(nodes: Sequence[Node], ending: Ending | None) -> Status:
    """How the job stands. It has ended when no node's program lives any more.

    A node's own failure or time limit is the cause even where the job was told to end meanwhile: the nodes agree on
    the first cause among themselves. Otherwise the cause is what told them to end.
    """
    if any(node.alive for node in nodes):
        return Status(vendor_state=_describe(nodes))
    failures = sorted(
        (_named(node.index, node.status) for node in nodes if node.status and node.status.failed),
        key=lambda status: (status.outcome not in _ITS_OWN_DOING, status.stamps.get("end") or 0.0),
    )
    died = [node for node in nodes if node.died]
    if not failures and not died:
        return Status(outcome=Outcome.SUCCEEDED, exit_code=0, vendor_state=_describe(nodes))
    cause = failures[0] if failures else NodeStatus(state="ended")
    if ending and cause.outcome not in _ITS_OWN_DOING:
        cause = msgspec.structs.replace(cause, outcome=ending.outcome, reason=ending.reason)
    return Status(
        outcome=cause.outcome or Outcome.INFRASTRUCTURE,
        reason=cause.reason or (describe_death(died) if died else None),
        exit_code=cause.exit_code,
        vendor_state=_describe(nodes),
        last_lines=cause.last_lines or next((node.last_lines for node in died if node.last_lines), ()),
    )


def describe_death(nodes: Sequence[Node]) -> str:
    """The reason that nodes which died without a word give to a job."""
    names = ", ".join(f"node {node.index}'s program" for node in nodes)
    return f"{names} died without a word: something outside the job killed it, or it never started"


def _named(index: int, status: NodeStatus) -> NodeStatus:
    """What the node said, with its number where a machine's own failure names no node."""
    if status.outcome is not Outcome.INFRASTRUCTURE or re.search(r"\bnode \d", status.reason or ""):
        return status
    return msgspec.structs.replace(status, reason=f"node {index}: {status.reason}")


def _describe(nodes: Sequence[Node]) -> str:
    states = [_state(node) for node in nodes]
    if len(set(states)) == 1:
        return states[0]
    return ", ".join(f"node {node.index} {state}" for node, state in zip(nodes, states, strict=True))


def _state(node: Node) -> str:
    if node.died:
        return "died"
    return node.status.state if node.status else "starting"
