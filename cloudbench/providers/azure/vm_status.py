"""From what Azure lists of virtual machines to how a job stands, with the service's own words in every reason. Pure.

`glance` decides from the listings that serve all runs at once; where it cannot, every node has ended and `conclude`
needs what they said last.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cloudbench.providers.azure.vm_template import NODES, PRIORITY, UNTIL
from cloudbench.providers.verdict import Ending, Node, NodeStatus, judge
from cloudbench.run import Outcome, Status

Wire = Mapping[str, Any]
"""An object as the service sends it."""

_GOING = ("deallocating", "deallocated")
_NO_CAPACITY = (
    "allocationfailed",
    "overconstrainedallocationrequest",
    "overconstrainedzonalallocationrequest",
    "skunotavailable",
    "zonalallocationfailed",
)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One virtual machine as the listing shows it; `error` is the service's own, `changed_at` an ISO time."""

    state: str = ""
    power: str = ""
    error: dict[str, Any] | None = None
    changed_at: str = ""

    @property
    def is_gone(self) -> bool:
        """Whether Azure has taken it away, or does so."""
        return self.power in _GOING


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What the listings show of one attempt.

    Args:
        tags: of its group; None where there is no group.
        deleting: Azure deletes the group.
        machines: by their names.
        ended: the nodes that have said that they ended.
        error: why the deployment failed, where it was asked for and did.
    """

    tags: dict[str, str] | None = None
    deleting: bool = False
    machines: dict[str, Machine] = {}
    ended: frozenset[int] = frozenset()
    error: dict[str, Any] | None = None

    @property
    def nodes(self) -> int:
        """Machines that were asked for."""
        return int((self.tags or {}).get(NODES, 0))

    @property
    def is_spot(self) -> bool:
        """Whether Azure may take the machines back."""
        return (self.tags or {}).get(PRIORITY) == "low-priority"

    @property
    def is_incomplete(self) -> bool:
        """Some machine is not there: only the deployment tells why."""
        return self.tags is not None and not self.deleting and len(self.machines) < self.nodes


def read_machine(listed: Wire) -> Machine:
    """A virtual machine from a listing with its status."""
    properties = listed.get("properties") or {}
    found: dict[str, Any] = {"state": str(properties.get("provisioningState", "")).lower()}
    for status in (properties.get("instanceView") or {}).get("statuses") or ():
        kind, _, rest = str(status.get("code")).partition("/")
        if kind == "PowerState":
            found["power"] = rest.lower()
        elif kind == "ProvisioningState":
            found["changed_at"] = status.get("time") or ""
            if code := rest.partition("/")[2]:
                found["error"] = {"code": code, "message": status.get("message")}
    return Machine(**found)


def glance(seen: Seen, *, now: str) -> Status | None:
    """How the job stands; None where all nodes have ended, and `conclude` must tell how.

    Args:
        now: an ISO time, in UTC.
    """
    if seen.tags is None:
        return Status(outcome=Outcome.INFRASTRUCTURE, reason="Azure has no resource group for the job")
    state = _describe(seen)
    if seen.deleting:
        return Status(vendor_state=state)
    failed = [machine.error for machine in seen.machines.values() if machine.state == "failed" and machine.error]
    if seen.error or failed:
        there = sum(machine.state != "failed" for machine in seen.machines.values())
        error = seen.error or {"code": "", "details": failed}
        return _refused(error, f"{there} of {seen.nodes} machines could be had", state)
    if seen.nodes and len(seen.ended) == seen.nodes:
        return None  # whatever becomes of the machines afterwards
    if taken := _taken_back(seen, now):
        return Status(outcome=Outcome.PREEMPTED, reason=taken, vendor_state=state)
    if seen.nodes and all(_has_ended(seen, node, now) for node in range(seen.nodes)):
        return None
    return Status(vendor_state=state)


def conclude(
    seen: Seen, said: Sequence[NodeStatus | None], lines: Sequence[tuple[str, ...]], *, stopped: bool, now: str
) -> Status:
    """How a job ended whose nodes have all ended, or whose group is gone.

    Args:
        said: what each node said last.
        lines: the last lines that each machine's script printed.
        stopped: it was stopped from this side.
        now: an ISO time, in UTC.
    """
    nodes = [
        Node(index=index, alive=False, status=status, last_lines=printed)
        for index, (status, printed) in enumerate(zip(said, lines, strict=True))
    ]
    ending = None
    if stopped:
        ending = Ending(at=0.0, outcome=Outcome.CANCELLED, reason="stopped on request")
    elif _is_over(seen, now):
        told = f"Azure took the machines away at the time that was set ({(seen.tags or {}).get(UNTIL)})"
        ending = Ending(at=0.0, outcome=Outcome.TIMED_OUT, reason=told)
    state = _describe(seen) if seen.tags else "resource group deleted"
    verdict = judge(nodes, ending)
    # A machine that is taken back is told to end, and its node program may still have said so.
    if (
        verdict.outcome in (Outcome.CANCELLED, Outcome.INFRASTRUCTURE)
        and not ending
        and (taken := _taken_back(seen, now))
    ):
        return Status(outcome=Outcome.PREEMPTED, reason=taken, vendor_state=state)
    return msgspec.structs.replace(verdict, vendor_state=state)


def outcome_of(error: Wire) -> Outcome:
    """What an error of a deployment or a machine makes of a run."""
    codes = [str(part.get("code")).lower() for part in _parts(error)]
    if any("quota" in code for code in codes):
        return Outcome.QUOTA
    return Outcome.NO_CAPACITY if any(code in _NO_CAPACITY for code in codes) else Outcome.INFRASTRUCTURE


def words_of(error: Wire) -> str:
    """An error in the service's words: those of its causes, where it names them."""
    parts = list(_parts(error))
    causes = [part for part in parts if not part.get("details")] or parts
    told = (": ".join(filter(None, [part.get("code"), _first_line(part.get("message"))])) for part in causes)
    return "; ".join(dict.fromkeys(filter(None, told)))


def _parts(error: Wire) -> Iterator[Wire]:
    """The error and all that it names as its causes; those can be JSON inside of a message."""
    yield error
    for detail in error.get("details") or ():
        try:
            inner = msgspec.json.decode(str(detail.get("message")))
        except msgspec.DecodeError:
            inner = None
        inner = inner.get("error") if isinstance(inner, dict) else None
        yield from _parts(inner if isinstance(inner, dict) else detail)


def _taken_back(seen: Seen, now: str) -> str:
    """Which machines Azure took back before their time; nothing where it took none."""
    gone = [name for name, machine in sorted(seen.machines.items()) if machine.is_gone]
    if not gone or not seen.is_spot or _is_over(seen, now):
        return ""
    return f"Azure took {', '.join(gone)} back, of {seen.nodes} spot machines"


def _has_ended(seen: Seen, node: int, now: str) -> bool:
    machine = seen.machines.get(f"node-{node}")
    if node in seen.ended or (machine and machine.power in ("deallocated", "stopped")):
        return True
    until, moment = _moment((seen.tags or {}).get(UNTIL, "")), _moment(now)
    return machine is None and until is not None and moment is not None and moment >= until  # somebody deleted it


def _is_over(seen: Seen, now: str) -> bool:
    """Whether machines were taken away because their time was over, and not before it."""
    until = _moment((seen.tags or {}).get(UNTIL, ""))
    gone = [_moment(machine.changed_at or now) for machine in seen.machines.values() if machine.is_gone]
    # Azure keeps to the minute.
    return until is not None and any(at is not None and at >= until - datetime.timedelta(minutes=1) for at in gone)


def _moment(text: str) -> datetime.datetime | None:
    """An ISO time of the service, which can have more decimals than Python reads; None where it is none."""
    try:
        moment = datetime.datetime.fromisoformat(text[:19])
    except ValueError:
        return None
    return moment.replace(tzinfo=datetime.timezone.utc)


def _refused(error: Wire, what: str, state: str) -> Status:
    words = words_of(error)
    return Status(outcome=outcome_of(error), reason=f"{what} — Azure says: {words}", vendor_state=state)


def _first_line(text: object) -> str:
    return str(text or "").strip().partition("\n")[0]


def _describe(seen: Seen) -> str:
    """The service's words for a job that goes on."""
    if seen.deleting:
        return "resource group Deleting"
    states = [f"{name} {machine.power or machine.state}" for name, machine in sorted(seen.machines.items())]
    return ", ".join(states) or "deploying"
