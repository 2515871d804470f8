"""From what EC2 lists to how a job stands, with the service's own words in every reason. Pure.

An instance ends itself when its node program has ended, so a job has ended when all its instances have, or when AWS has
taken one of them back.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cloudbench.providers.verdict import Ending, Node, NodeStatus, judge
from cloudbench.run import Outcome, Status

ENDED_BY = "cloudbench-ended-by"
"""The tag that our own `stop` and `release` leave at an instance: one of the two words below."""
STOPPED, RELEASED = "stop", "release"

_ALIVE = ("pending", "running", "shutting-down", "stopping")
_TAKEN_BACK = ("server.spotinstancetermination", "server.spotinstanceshutdown", "spot-instance-terminated-by-service")
_NO_CAPACITY = ("server.insufficientinstancecapacity", "server.insufficientcapacity")
_BY_SOMEBODY = "client.userinitiatedshutdown"


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance as EC2 lists it; `reason` is the code and `words` the text of why it is in its state."""

    id: str
    index: int
    state: str
    reason: str = ""
    words: str = ""
    tags: dict[str, str] = {}

    @property
    def alive(self) -> bool:
        """Whether something may run on it; one that shuts down still sends its last bytes."""
        return self.state in _ALIVE

    @property
    def taken_back(self) -> bool:
        """Whether AWS took it for others."""
        return self.reason.lower() in _TAKEN_BACK


def read_instance(listed: Mapping[str, Any]) -> Instance:
    """An instance from its listing."""
    reason = listed.get("StateReason") or {}
    return Instance(
        id=listed["InstanceId"],
        index=int(listed.get("AmiLaunchIndex") or 0),
        state=listed["State"]["Name"],
        reason=reason.get("Code") or "",
        words=reason.get("Message") or "",
        tags={tag["Key"]: tag["Value"] for tag in listed.get("Tags", ())},
    )


def glance(instances: Sequence[Instance]) -> Status | None:
    """How a job stands by its instances; None where they have ended, and `conclude` must tell how."""
    lost = [instance for instance in instances if instance.taken_back]
    if lost and not _ending(instances):
        what = f"AWS took {len(lost)} of {len(instances)} spot instances back"
        reason = f"{what} — AWS says: {lost[0].words or lost[0].reason}"
        return Status(outcome=Outcome.PREEMPTED, reason=reason, vendor_state=describe(instances))
    if any(instance.alive for instance in instances):
        return Status(vendor_state=describe(instances))
    return None


def conclude(instances: Sequence[Instance], said: Sequence[NodeStatus | None]) -> Status:
    """How a job ended whose instances are gone, or not known any more.

    Args:
        said: what each node said last.
    """
    state = describe(instances) if instances else "no instances"
    ending = _ending(instances)
    words = "; ".join(dict.fromkeys(filter(None, (instance.words or instance.reason for instance in instances))))
    if not any(said):
        if ending:
            return Status(outcome=ending.outcome, reason=ending.reason, vendor_state=state)
        lacking = any(instance.reason.lower() in _NO_CAPACITY for instance in instances)
        told = "the instances ended before a node said a word"
        return Status(
            outcome=Outcome.NO_CAPACITY if lacking else Outcome.INFRASTRUCTURE,
            reason=" — AWS says: ".join(filter(None, [told, words])),
            vendor_state=state,
        )
    nodes = [Node(index=index, alive=False, status=status) for index, status in enumerate(said)]
    verdict = judge(nodes, ending)
    if any(node.died for node in nodes) and not ending and words:
        verdict = msgspec.structs.replace(verdict, reason=f"{verdict.reason} — AWS says: {words}")
    return msgspec.structs.replace(verdict, vendor_state=state)


def describe(instances: Sequence[Instance]) -> str:
    """The states of the instances in EC2's words."""
    counts = collections.Counter(instance.state for instance in instances)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def _ending(instances: Sequence[Instance]) -> Ending | None:
    """What ended the job from outside of its instances; None where they ended themselves."""
    marks = {instance.tags.get(ENDED_BY) for instance in instances}
    if STOPPED in marks:
        return Ending(at=0.0, outcome=Outcome.CANCELLED, reason="stopped on request")
    if RELEASED in marks:
        return Ending(at=0.0, outcome=Outcome.INFRASTRUCTURE, reason="the job was released before it had ended")
    if any(instance.reason.lower() == _BY_SOMEBODY for instance in instances):
        words = next(instance.words for instance in instances if instance.reason.lower() == _BY_SOMEBODY)
        reason = f"somebody terminated an instance — AWS says: {words}"
        return Ending(at=0.0, outcome=Outcome.INFRASTRUCTURE, reason=reason)
    return None
