"""From what Azure Batch lists to how a job stands, with the service's own words in every reason. Pure.

`glance` decides from the listings that serve all runs at once; where it cannot, the job has ended and `conclude` needs
what is asked for that one job: its task and what its nodes wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cloudbench.providers.verdict import Ending, Node, NodeStatus, judge
from cloudbench.run import Outcome, Status

STOPPED = "cloudbench: stopped on request"
"""The termination reason that our own `stop` leaves at a job."""

_TIME_LIMIT = "maxwallclocktimeexpiry"
_NO_CAPACITY = (
    "allocationfailed",
    "allocationtimedout",
    "overconstrainedallocationrequesterror",
    "skunotavailable",
    "unsupportedvmsize",
    "vmsizenotsupported",
)

Wire = Mapping[str, Any]
"""An object as the service sends it."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What the listings show of one job: the job, its pool and how many of the pool's nodes are in which state."""

    job: dict[str, Any] | None = None
    pool: dict[str, Any] | None = None
    counts: dict[str, int] = {}

    @property
    def nodes(self) -> int:
        """Machines that the job asked for."""
        return _target(self.pool) or _target(_pool_specification(self.job))

    @property
    def low_priority(self) -> bool:
        """Whether Azure may take the machines back."""
        return bool((self.pool or _pool_specification(self.job)).get("targetLowPriorityNodes"))


def glance(seen: Seen) -> Status | None:
    """How the job stands; None where it has ended by itself, and `conclude` must tell how."""
    job, pool, counts = seen.job, seen.pool or {}, seen.counts
    if job is None or job.get("state") == "deleting":
        return Status(outcome=Outcome.INFRASTRUCTURE, reason="Azure Batch does not know the job, or deletes it")
    if job.get("state") == "completed":
        return None
    if error := (job.get("executionInfo") or {}).get("schedulingError"):
        return _refused(error, "the machines could not be asked for")
    there = pool.get("currentDedicatedNodes", 0) + pool.get("currentLowPriorityNodes", 0)
    # Errors of an earlier resize linger on a pool that has all its nodes: they mean nothing then.
    if pool.get("allocationState") == "steady" and there < _target(pool) and pool.get("resizeErrors"):
        errors = pool["resizeErrors"]
        return _refused(errors[0], f"{there} of {_target(pool)} nodes could be had", errors[1:])
    state = _describe(job, pool, counts)
    if counts.get("preempted"):
        reason = f"Azure took {counts['preempted']} of {seen.nodes} low-priority nodes back (node state preempted)"
        return Status(outcome=Outcome.PREEMPTED, reason=reason, vendor_state=state)
    for name, told in (("startTaskFailed", "start task failed on"), ("unusable", "unusable:")):
        if counts.get(name):
            reason = f"{told} {counts[name]} of {seen.nodes} nodes"
            return Status(outcome=Outcome.INFRASTRUCTURE, reason=reason, vendor_state=state)
    return Status(vendor_state=state)


def conclude(seen: Seen, task: Wire | None, said: Sequence[NodeStatus | None]) -> Status:
    """How a job ended that the service calls completed.

    Args:
        task: its one task; None where it has none.
        said: what each node said last.
    """
    execution = (seen.job or {}).get("executionInfo") or {}
    if error := execution.get("schedulingError"):
        return _refused(error, "the machines could not be asked for")
    info = (task or {}).get("executionInfo") or {}
    succeeded = info.get("result") == "success"
    nodes = [_node(index, status, succeeded) for index, status in enumerate(said)]
    ending = _ending(execution.get("terminateReason"))
    words = _words(info.get("failureInfo"))
    state = ", ".join(filter(None, [f"job completed ({execution.get('terminateReason')})", words and f"task: {words}"]))
    if not any(status for status in said) and not succeeded:
        return _unheard(ending, info, words, state)
    verdict = judge(nodes, ending)
    lost = [node.index for node in nodes if node.died]
    if verdict.outcome is Outcome.INFRASTRUCTURE and lost and seen.low_priority:
        reason = f"node {lost[0]} is gone without a word, as low-priority nodes are that Azure takes back"
        return msgspec.structs.replace(verdict, outcome=Outcome.PREEMPTED, reason=reason, vendor_state=state)
    if lost and not ending and words:
        verdict = msgspec.structs.replace(verdict, reason=f"{verdict.reason} — Azure says: {words}")
    return msgspec.structs.replace(verdict, vendor_state=state)


def with_words_of_nodes(status: Status, nodes: Sequence[Wire]) -> Status:
    """The status with what the service says of the nodes that are not well; an image that cannot be pulled is named."""
    told = []
    for node in nodes:
        errors = [_words(error) for error in node.get("errors") or ()]
        start = node.get("startTaskInfo") or {}
        if start.get("failureInfo"):
            errors.append(f"{_words(start['failureInfo'])} (exit code {start.get('exitCode')})")
        if errors:
            told.append(f"{node.get('id')} {node.get('state')}: {', '.join(errors)}")
    if not told:
        return status
    what = "an image could not be pulled" if any(_is_image_error(words) for words in told) else status.reason
    return msgspec.structs.replace(status, reason=f"{what} — Azure says: {'; '.join(told)}")


def metadata_of(thing: Wire | None) -> dict[str, str]:
    """The names and values of a job's or a pool's metadata."""
    return {item["name"]: item["value"] for item in (thing or {}).get("metadata") or ()}


def _unheard(ending: Ending | None, info: Wire, words: str, state: str) -> Status:
    """How a job ended whose nodes never said a word."""
    if ending:
        return Status(outcome=ending.outcome, reason=ending.reason, vendor_state=state)
    exit_code = info.get("exitCode")
    outcome = "the task ended before a node said a word" if info else "the job ended before its task began"
    if _is_image_error(words):
        outcome = "an image could not be pulled"
    reason = " — Azure says: ".join(filter(None, [outcome, words]))
    return Status(outcome=Outcome.INFRASTRUCTURE, reason=reason, exit_code=exit_code, vendor_state=state)


def _node(index: int, status: NodeStatus | None, succeeded: bool) -> Node:
    """A node of a job that has ended. The task succeeds only where all of them did, said or not."""
    if succeeded and (status is None or status.outcome is None):
        status = NodeStatus(state="ended", outcome=Outcome.SUCCEEDED, exit_code=0)
    return Node(index=index, alive=False, status=status)


def _ending(reason: str | None) -> Ending | None:
    """What ended the job from outside its task; None where its task did."""
    if not reason or reason.lower() == "alltaskscompleted":
        return None
    if reason.lower() == _TIME_LIMIT:
        told = f"the job reached its wall clock limit on Azure ({reason})"
        return Ending(at=0.0, outcome=Outcome.TIMED_OUT, reason=told)
    told = "stopped on request" if reason == STOPPED else f"somebody ended the job ({reason})"
    return Ending(at=0.0, outcome=Outcome.CANCELLED, reason=told)


def _refused(error: Wire, what: str, more: Sequence[Wire] = ()) -> Status:
    """How a job stands for which there are no machines."""
    code = str(error.get("code") or "")
    outcome = Outcome.INFRASTRUCTURE
    if "quota" in code.lower():
        outcome = Outcome.QUOTA
    elif code.lower() in _NO_CAPACITY:
        outcome = Outcome.NO_CAPACITY
    words = "; ".join(filter(None, map(_words, [error, *more])))
    return Status(outcome=outcome, reason=f"{what} — Azure says: {words}", vendor_state=code)


def _words(error: Wire | None) -> str:
    """An error as the service tells it: its code, its message, and details such as how much was asked and allowed."""
    if not error:
        return ""
    details = error.get("values") or error.get("details") or error.get("errorDetails") or ()
    listed = [f"{item.get('name')}: {item.get('value')}" for item in details if item.get("value")]
    told = ": ".join(filter(None, [error.get("code"), (error.get("message") or "").strip().partition("\n")[0]]))
    return told + (f" ({', '.join(listed)})" if listed else "")


def _is_image_error(words: str) -> bool:
    lowered = words.lower()
    return "image" in lowered and any(word in lowered for word in ("pull", "container", "manifest", "registry"))


def _describe(job: Wire, pool: Wire, counts: Mapping[str, int]) -> str:
    """The service's words for a job that goes on."""
    states = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if count and name != "total")
    allocation = f"pool {pool.get('allocationState', pool.get('state'))}" if pool else ""
    return "; ".join(filter(None, [f"job {job.get('state')}", allocation, states]))


def _pool_specification(job: Wire | None) -> Wire:
    """What the job asked Azure to make."""
    found: Wire = ((job or {}).get("poolInfo") or {}).get("autoPoolSpecification") or {}
    return found.get("pool") or {}


def _target(pool: Wire | None) -> int:
    return int((pool or {}).get("targetDedicatedNodes") or 0) + int((pool or {}).get("targetLowPriorityNodes") or 0)
