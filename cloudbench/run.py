"""The state of a run: what can happen to it (events), where it stands (phase) and how it ended (outcome). Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from cloudbench.plan import RunPlan


class Phase(str, enum.Enum):
    """How far a run has come. How it ended is its outcome: a failed run is collected and released like any other."""

    PLANNED = "planned"
    PROVISIONING = "provisioning"
    READY = "ready"
    RUNNING = "running"
    COLLECTING = "collecting"
    RELEASING = "releasing"
    RELEASED = "released"


class Outcome(str, enum.Enum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PREEMPTED = "preempted"
    NO_CAPACITY = "no-capacity"
    QUOTA = "quota"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"
    INFRASTRUCTURE = "infrastructure"


EXIT_CODES = {
    Outcome.SUCCEEDED: 0,
    Outcome.NO_CAPACITY: 4,
    Outcome.QUOTA: 4,
    Outcome.FAILED: 5,
    Outcome.INFRASTRUCTURE: 5,
    Outcome.TIMED_OUT: 6,
    Outcome.PREEMPTED: 7,
    Outcome.CANCELLED: 130,
}
"""What the command line returns for each way to end."""


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """Anything that exists somewhere because of us; `kind` is the provider's word for it, `id` its name there."""

    provider: str
    service: str
    kind: str
    id: str
    run: str
    attempt: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider says of a job. `vendor_state` is its own word, kept beside ours.

    `outcome` is there when, and only when, the job has ended.
    """

    outcome: Outcome | None = None
    reason: str | None = None
    exit_code: int | None = None
    vendor_state: str | None = None
    last_lines: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Nothing of the job is running any more."""
        return self.outcome is not None


class PhaseEntered(msgspec.Struct, frozen=True, kw_only=True, tag="phase"):
    """The run goes on to this phase; written before anything is done in it."""

    phase: Phase


class HandleIntended(msgspec.Struct, frozen=True, kw_only=True, tag="handle"):
    """The thing is about to be made: from now on it may exist."""

    handle: Handle


class HandleReleased(msgspec.Struct, frozen=True, kw_only=True, tag="released"):
    """The thing was seen to be gone."""

    handle: Handle


class CancelRequested(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """A person wants the run to end."""

    reason: str


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """The job ended, or never began; the first such event decides."""

    status: Status


Event = PhaseEntered | HandleIntended | HandleReleased | CancelRequested | Ended


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its journal tells it. `handles` are those that may still exist, the oldest first."""

    plan: RunPlan
    phase: Phase = Phase.PLANNED
    attempt: int = 1
    handles: tuple[Handle, ...] = ()
    cancel_reason: str | None = None
    status: Status | None = None
    entered_at: dict[Phase, float] = {}

    @property
    def id(self) -> str:
        """The run's id, as in its plan."""
        return self.plan.id

    @property
    def outcome(self) -> Outcome | None:
        """How the job ended, once it has."""
        return self.status.outcome if self.status else None

    @property
    def finished(self) -> bool:
        """Collected, released, and nothing left to do."""
        return self.phase is Phase.RELEASED


def apply(run: Run, event: Event, at: float) -> Run:
    """The run after the event, which was written at that time (seconds since the epoch)."""
    replace = msgspec.structs.replace
    if isinstance(event, PhaseEntered):
        return replace(run, phase=event.phase, entered_at={**run.entered_at, event.phase: at})
    if isinstance(event, HandleIntended):
        return run if event.handle in run.handles else replace(run, handles=(*run.handles, event.handle))
    if isinstance(event, HandleReleased):
        return replace(run, handles=tuple(handle for handle in run.handles if handle != event.handle))
    if isinstance(event, CancelRequested):
        return replace(run, cancel_reason=run.cancel_reason or event.reason)
    return replace(run, status=run.status or event.status)


def replay(plan: RunPlan, events: Iterable[tuple[float, Event]]) -> Run:
    """The run that a journal describes."""
    run = Run(plan=plan)
    for at, event in events:
        run = apply(run, event, at)
    return run
