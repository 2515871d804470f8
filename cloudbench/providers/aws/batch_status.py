"""From what AWS Batch tells of a job to how it stands, with the service's own words in every reason. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cloudbench.providers.verdict import Ending, Node, NodeStatus, judge
from cloudbench.run import Outcome, Status

STOPPED = "cloudbench: stopped on request"
"""The reason that our own `stop` leaves at a job."""
RELEASED = "cloudbench: released"
"""The reason that `release` leaves at a job that had not ended."""

RUNNABLE_S = 1800.0
"""How long a job may wait for machines when the service does not say why it waits."""
EXPLAINED_S = 900.0
"""How long it may wait when the service says that there is no capacity, which can change."""

_RECLAIMED = "Host EC2"
_TIME_LIMIT = "attempt duration exceeded timeout"
_CANCELED = "JobStateTimeLimit"
_GIVE_UP = ("MISCONFIGURATION", "ACTION_REQUIRED")
_QUOTA = ("vcpulimitexceeded", "maxspotinstancecount", "quota", "limit exceeded", "instancelimitexceeded")

Wire = Mapping[str, Any]


class Waited(msgspec.Struct, frozen=True, kw_only=True):
    """How long a job may be RUNNABLE: with an explanation that may pass, and without any."""

    explained_s: float = EXPLAINED_S
    unexplained_s: float = RUNNABLE_S


def glance(job: Wire, now: float, waited: Waited) -> Status | None:
    """How a job stands by what `describe_jobs` tells of it; None where it has ended, and `conclude` must tell how.

    A job that waits for machines too long has ended as well, for the reason that the service gives: it would wait for
    ever.

    Args:
        now: seconds since the epoch.
    """
    if job["status"] in ("SUCCEEDED", "FAILED"):
        return None
    words = str(job.get("statusReason") or "")
    state = ": ".join(filter(None, [job["status"], words]))
    if job["status"] != "RUNNABLE":
        return Status(vendor_state=state)
    waits_s = now - job["createdAt"] / 1000
    if words.startswith(_GIVE_UP) or (words and waits_s > waited.explained_s):
        return _unplaced(words, state)
    if waits_s > waited.unexplained_s:
        return Status(
            outcome=Outcome.NO_CAPACITY,
            reason=f"no machine for {waits_s / 60:.0f} minutes, and AWS Batch does not say why: it has none to give, "
            "or the account's quota for this family is too small",
            vendor_state=state,
        )
    return Status(vendor_state=state)


def unplaceable(status: Status, problem: str | None) -> Status:
    """The status of a job that waits for machines; it has ended where there is a problem with its environment."""
    if problem is None:
        return status
    outcome = Outcome.QUOTA if _is_quota(problem) else Outcome.INFRASTRUCTURE
    reason = f"the job cannot be placed: its environment or queue is invalid — AWS says: {problem}"
    return msgspec.structs.replace(status, outcome=outcome, reason=reason)


def conclude(job: Wire, said: Sequence[NodeStatus | None], *, low_priority: bool) -> Status:
    """How a job ended that the service calls succeeded or failed.

    Args:
        said: what each node said last.
    """
    words, state = _words(job), f"job {job['status']}"
    reason = str(job.get("statusReason") or "")
    if reason:
        state += f": {reason}"
    if reason.startswith(_RECLAIMED):
        told = "AWS took a machine back" if low_priority else "a machine of AWS failed or was terminated"
        outcome = Outcome.PREEMPTED if low_priority else Outcome.INFRASTRUCTURE
        return Status(outcome=outcome, reason=f"{told} — AWS says: {reason}", vendor_state=state)
    succeeded = job["status"] == "SUCCEEDED"
    ending = _ending(reason)
    if not any(said) and not succeeded:
        return _unheard(job, ending, words, state)
    nodes = [_node(index, status, succeeded) for index, status in enumerate(said)]
    verdict = judge(nodes, ending)
    if verdict.outcome is Outcome.INFRASTRUCTURE and any(node.died for node in nodes) and words and not ending:
        verdict = msgspec.structs.replace(verdict, reason=f"{verdict.reason} — AWS says: {words}")
    return msgspec.structs.replace(verdict, vendor_state=state)


def _unplaced(words: str, state: str) -> Status:
    outcome = Outcome.INFRASTRUCTURE
    if _is_quota(words):
        outcome = Outcome.QUOTA
    elif words.startswith(("CAPACITY", "UNDETERMINED")):
        outcome = Outcome.NO_CAPACITY
    what = {
        "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT": "the job asks for more than the machine size has",
        "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE": "the job asks for more than its environment may have",
        "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY": "there are no such machines at the moment",
        "ACTION_REQUIRED": "the environment or its queue cannot be used",
        "UNDETERMINED": "no machine was found for the job: no capacity, or a quota that is too small",
    }
    told = next((text for begin, text in what.items() if words.startswith(begin)), "the job cannot be placed")
    return Status(outcome=outcome, reason=f"{told} — AWS says: {words}", vendor_state=state)


def _unheard(job: Wire, ending: Ending | None, words: str, state: str) -> Status:
    """How a job ended whose nodes never said a word."""
    if ending:
        return Status(outcome=ending.outcome, reason=ending.reason, vendor_state=state)
    reason = str(job.get("statusReason") or "")
    if _CANCELED in reason:
        return _unplaced(reason.rpartition("reason: ")[2] or reason, state)
    told = "the container ended before a node said a word"
    if "CannotPullContainer" in words:
        told = "the image could not be pulled"
    exit_code = (job.get("container") or {}).get("exitCode")
    return Status(
        outcome=Outcome.INFRASTRUCTURE,
        reason=" — AWS says: ".join(filter(None, [told, words])),
        exit_code=exit_code,
        vendor_state=state,
    )


def _ending(reason: str) -> Ending | None:
    """What ended the job from outside its containers; None where they did."""
    if _TIME_LIMIT in reason:
        told = f"the job reached its time limit on AWS Batch ({reason})"
        return Ending(at=0.0, outcome=Outcome.TIMED_OUT, reason=told)
    if reason == STOPPED:
        return Ending(at=0.0, outcome=Outcome.CANCELLED, reason="stopped on request")
    if reason == RELEASED:
        return Ending(at=0.0, outcome=Outcome.INFRASTRUCTURE, reason="the job was released before it had ended")
    return None


def _node(index: int, status: NodeStatus | None, succeeded: bool) -> Node:
    """A node of a job that has ended. The main node succeeds only where all did, said or not."""
    if succeeded and (status is None or status.outcome is None):
        status = NodeStatus(state="ended", outcome=Outcome.SUCCEEDED, exit_code=0)
    return Node(index=index, alive=False, status=status)


def _words(job: Wire) -> str:
    """What the service says of a job that failed, of its container first."""
    container = job.get("container") or {}
    attempts = [attempt.get("container") or {} for attempt in job.get("attempts") or ()]
    reasons = [job.get("statusReason"), container.get("reason") or (attempts[-1].get("reason") if attempts else None)]
    return "; ".join(dict.fromkeys(str(reason) for reason in reasons if reason))


def _is_quota(words: str) -> bool:
    return any(word in words.lower() for word in _QUOTA)
