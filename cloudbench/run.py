"""The state of a run: what can happen to it (events), where it stands (phase) and how it ended (outcome). Pure.

A run whose machines were taken back begins anew as another attempt, which makes things of its own; the earlier ones
are kept.
"""

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
    """A person wants the run to end; with `release_anyway` even where that loses its files."""

    reason: str
    release_anyway: bool = False


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """The job ended, or never began; the first such event decides."""

    status: Status


class FilesLost(msgspec.Struct, frozen=True, kw_only=True, tag="files-lost"):
    """Files of the attempt could not be brought home, and what held them is released all the same."""

    reason: str


class AttemptBegan(msgspec.Struct, frozen=True, kw_only=True, tag="attempt"):
    """The last attempt was collected and released; the run is planned once more."""

    number: int


Event = PhaseEntered | HandleIntended | HandleReleased | CancelRequested | Ended | FilesLost | AttemptBegan


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that came to nothing, and what it cost.

    `duration_s` is from provisioning to its end; `None` where the journal does not tell. `lost_usd` is `None` where no
    price is known, and `lost_usd_reason` says so. `files_lost` is why not all of its files came home.
    """

    number: int
    status: Status
    duration_s: float | None
    lost_usd: float | None
    lost_usd_reason: str | None = None
    files_lost: str | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its journal tells it. `handles` are those that may still exist, the oldest first.

    `attempts` are the earlier ones; all but `plan`, `handles` and what a person asked for is of the present attempt.
    """

    plan: RunPlan
    phase: Phase = Phase.PLANNED
    attempt: int = 1
    attempts: tuple[Attempt, ...] = ()
    handles: tuple[Handle, ...] = ()
    cancel_reason: str | None = None
    release_anyway: bool = False
    status: Status | None = None
    files_lost: str | None = None
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

    @property
    def begins_anew(self) -> bool:
        """Another attempt follows once this one is released."""
        return self.outcome is Outcome.PREEMPTED and not self.cancel_reason and self.attempt <= self.plan.retries

    @property
    def lost(self) -> tuple[Attempt, ...]:
        """The attempts whose machines were taken back, the present one among them once it has ended like that."""
        return (*self.attempts, _attempt(self)) if self.outcome is Outcome.PREEMPTED else self.attempts

    @property
    def lost_files(self) -> tuple[int, ...]:
        """Numbers of the attempts whose files did not all come home."""
        earlier = tuple(attempt.number for attempt in self.attempts if attempt.files_lost)
        return (*earlier, self.attempt) if self.files_lost else earlier


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
        anyway = run.release_anyway or event.release_anyway
        return replace(run, cancel_reason=run.cancel_reason or event.reason, release_anyway=anyway)
    if isinstance(event, FilesLost):
        return replace(run, files_lost=run.files_lost or event.reason)
    if isinstance(event, AttemptBegan):
        return Run(
            plan=run.plan,
            attempt=event.number,
            attempts=(*run.attempts, _attempt(run)),
            handles=run.handles,
            cancel_reason=run.cancel_reason,
            release_anyway=run.release_anyway,
        )
    return replace(run, status=run.status or event.status)


def _attempt(run: Run) -> Attempt:
    """The present attempt as one that came to nothing."""
    duration_s, usd_per_hour = _duration_s(run), run.plan.usd_per_hour
    lost_usd, reason = None, None
    if duration_s is None:
        reason = "how long it ran is not known"
    elif usd_per_hour is None:
        reason = "no hourly price is known for this setup"
    else:
        lost_usd = duration_s / 3600 * usd_per_hour
    return Attempt(
        number=run.attempt,
        status=run.status or Status(),
        duration_s=duration_s,
        lost_usd=lost_usd,
        lost_usd_reason=reason,
        files_lost=run.files_lost,
    )


def _duration_s(run: Run) -> float | None:
    began, ended = (run.entered_at.get(phase) for phase in (Phase.PROVISIONING, Phase.COLLECTING))
    if began is None or ended is None:
        return None
    if (running := run.entered_at.get(Phase.RUNNING)) is not None:
        # A client that was away saw the end late, and the job's own time limit held meanwhile.
        ended = min(ended, running + run.plan.timeout_s)
    return max(ended - began, 0.0)


def replay(plan: RunPlan, events: Iterable[tuple[float, Event]]) -> Run:
    """The run that a journal describes."""
    run = Run(plan=plan)
    for at, event in events:
        run = apply(run, event, at)
    return run
