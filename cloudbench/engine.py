"""One loop for every run: read its state, take one step, journal it.

A step is journalled before its effect, so a run that lost its client at any moment can be driven on by another: what
may have been done is done again, and every provider finds instead of making twice. A run whose machines were taken
back is collected and released like any other, and then begins anew, as often as its plan allows.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from cloudbench.errors import (
    CapacityError,
    CloudbenchError,
    JobFailedError,
    LimitError,
    PreemptedError,
    QuotaError,
    UsageError,
)
from cloudbench.plan import RunPlan
from cloudbench.providers.base import Provider, Request
from cloudbench.run import (
    AttemptBegan,
    CancelRequested,
    Ended,
    Event,
    FilesLost,
    HandleIntended,
    HandleReleased,
    Outcome,
    Phase,
    PhaseEntered,
    Run,
    Status,
)
from cloudbench.store import Store

PATIENCE_S = 120.0
"""How long a poll or a release that does not succeed is tried again before the run is left for `resume`."""

RELEASE_PATIENCE_S = 1800.0
"""The same for a release that goes on without an error: clouds take their time to delete machines."""


class Clock(Protocol):
    """Time as the engine knows it, so that a test can turn it."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The time of this machine."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class Engine:
    """Drives runs through their phases.

    Args:
        store: the journal and the artifacts.
        provider_for: the provider that takes a plan; the same object for plans that can share a poll.
        notice: told of every event after it was journalled, with the run as it is then.
    """

    def __init__(
        self,
        store: Store,
        provider_for: Callable[[RunPlan], Provider],
        *,
        clock: Clock | None = None,
        notice: Callable[[Run, Event], None] | None = None,
    ) -> None:
        self._store = store
        self._provider_for = provider_for
        self._clock = clock or SystemClock()
        self._notice = notice
        self._failing_since: dict[str, float] = {}
        self._stuck: dict[str, tuple[str, str]] = {}
        self._polled_at: dict[int, float] = {}

    def drive(self, run_ids: Sequence[str], *, detach: bool = False) -> list[Run]:
        """Take the runs to their ends, or with `detach` until each is running, and give them as they are then.

        Runs wait their turn where the provider's capacity is smaller than their number; with `detach` those before
        the last ones are then taken to their ends. An interrupt cancels them: they are stopped, collected and released
        like any other; a second interrupt leaves them for `resume`.

        Raises:
            UsageError: another process drives one of the runs.
            CloudbenchError: a run could not be watched, collected or released; the others went on to their ends.
            KeyboardInterrupt: after an interrupt, once everything is released.
        """
        return self._drive_alone(run_ids, until=Phase.RUNNING if detach else None)

    def _drive_alone(self, run_ids: Sequence[str], *, until: Phase | None) -> list[Run]:
        with contextlib.ExitStack() as locks:
            for run_id in run_ids:
                if not locks.enter_context(self._store.driving(run_id)):
                    raise UsageError(
                        f"another process drives run {run_id}",
                        todo=f"cloudbench logs {run_id} --follow, or cloudbench cancel {run_id}",
                    )
            try:
                return self._drive(run_ids, until=until)
            except KeyboardInterrupt as interrupt:
                for run_id in run_ids:
                    if not self._store.load(run_id).finished:
                        self._journal(run_id, CancelRequested(reason=str(interrupt) or "interrupted from the keyboard"))
                self._drive(run_ids)
                raise

    def cancel(self, run_id: str, *, reason: str, release_anyway: bool = False) -> Run:
        """Ask for the run's end, and take it there unless another process is driving it already.

        With `release_anyway` it is released even where its files cannot be brought home, and are lost.
        """
        run = self._store.load(run_id)
        if run.finished:
            return run
        self._journal(run_id, CancelRequested(reason=reason, release_anyway=release_anyway))
        while True:
            with self._store.driving(run_id) as ours:
                if ours:
                    return self._drive([run_id])[0]
            # The driver may die before it has seen the request: then it is our turn.
            if (run := self._store.load(run_id)).finished:
                return run
            self._clock.sleep(0.2)

    def poll(self, runs: Iterable[Run]) -> dict[str, Status]:
        """How the jobs of running runs stand, from one listing a provider. Journals nothing."""
        statuses: dict[str, Status] = {}
        for provider, group in self._by_provider(run for run in runs if run.phase is Phase.RUNNING):
            jobs = {self._request(run).job: run for run in group}
            for job, status in provider.poll(list(jobs)).items():
                statuses[jobs[job].id] = status
        return statuses

    def collect(self, run_id: str) -> Run:
        """Bring home what there is; a run whose job has ended is released too. No attempt is begun.

        Raises:
            UsageError: another process drives the run, or its job was never started.
        """
        run = self._store.load(run_id)
        if run.finished:
            return run
        if run.phase in _BEFORE_JOB and not run.status:
            attempt = f"attempt {run.attempt} of " if run.attempt > 1 else ""
            raise UsageError(f"{attempt}run {run_id} has not started yet", todo=f"cloudbench resume {run_id}")
        if run.phase is Phase.RUNNING and not run.status and not self.poll([run])[run_id].ended:
            self._bring_home(run)
            return run
        return self._drive_alone([run_id], until=Phase.PLANNED)[0]

    def _drive(self, run_ids: Sequence[str], *, until: Phase | None = None) -> list[Run]:
        """Take the runs to their ends, or until each of the unfinished has come to that phase."""
        self._stuck.clear()
        self._failing_since.clear()
        self._polled_at.clear()
        while True:
            runs = [self._store.load(run_id) for run_id in run_ids]
            unfinished = [run for run in runs if not run.finished and run.id not in self._stuck]
            if all(run.phase is until and not run.status for run in unfinished):
                self._raise_stuck()
                return runs
            for provider, group in self._by_provider(_in_turn(unfinished)):
                self._turn(provider, group)
            if all(self._store.load(run.id) == run for run in unfinished):
                providers = [self._provider_for(run.plan) for run in unfinished]
                self._clock.sleep(min(self._poll_due_in_s(found) or found.poll_interval_s for found in providers))

    def _poll_due_in_s(self, provider: Provider) -> float:
        """Seconds that are left until the provider may be polled again; 0 where it may be now."""
        since_s = self._clock.now() - self._polled_at.get(id(provider), -math.inf)
        return provider.poll_interval_s - since_s if 0 <= since_s < provider.poll_interval_s else 0.0

    def _turn(self, provider: Provider, runs: Sequence[Run]) -> None:
        """One step for each run that has its turn, and one poll for all that are running when it is time for it."""
        begun = [run for run in runs if run.phase is not Phase.PLANNED or run.cancel_reason]
        room = len(runs) if provider.capacity is None else max(provider.capacity - len(begun), 0)
        waiting = [run for run in runs if run not in begun]
        running = [run for run in begun if run.phase is Phase.RUNNING and not run.status]
        for run in [*begun, *waiting[:room]]:
            if run not in running:
                self._step(provider, run)
        # Turns come quickly while some runs take steps; the others must not be asked for more often because of that.
        if running and not self._poll_due_in_s(provider):
            self._polled_at[id(provider)] = self._clock.now()
            self._poll_all(provider, running)

    def _poll_all(self, provider: Provider, running: Sequence[Run]) -> None:
        runs = {self._request(run).job: run for run in running}
        try:
            statuses = provider.poll(list(runs))
            for job, status in statuses.items():
                if runs[job].cancel_reason and not status.ended:
                    provider.stop(job)
        except CloudbenchError as error:
            for run in running:
                self._failed_again(run, "it cannot be watched, and may still be running", str(error))
            return
        for job, status in statuses.items():
            self._failing_since.pop(runs[job].id, None)
            if status.ended:
                self._end_as_asked(runs[job], status)

    def _step(self, provider: Provider, run: Run) -> None:
        request = self._request(run)
        if run.status and run.phase in (*_BEFORE_JOB, Phase.RUNNING):
            self._enter(run, Phase.COLLECTING)  # a client died between the two events of `_end`
        elif run.cancel_reason and run.phase in _BEFORE_JOB and request.job not in run.handles:
            self._end(run, Status(outcome=Outcome.CANCELLED, reason=run.cancel_reason))
        elif run.phase is Phase.PLANNED:
            self._enter(run, Phase.PROVISIONING)
        elif run.phase is Phase.PROVISIONING:
            self._guarded(run, lambda: self._provision(provider, run, request))
        elif run.phase is Phase.READY:
            self._guarded(run, lambda: self._submit(provider, run, request))
        elif run.phase is Phase.COLLECTING:
            self._collect(run)
        elif run.phase is Phase.RELEASING:
            self._release(provider, run)

    def _provision(self, provider: Provider, run: Run, request: Request) -> None:
        for handle in provider.provision(request):
            self._journal(run.id, HandleIntended(handle=handle))
        self._enter(run, Phase.READY)

    def _submit(self, provider: Provider, run: Run, request: Request) -> None:
        self._journal(run.id, HandleIntended(handle=request.job))
        provider.submit(request)
        self._enter(run, Phase.RUNNING)

    def _end_as_asked(self, run: Run, status: Status) -> None:
        """End the run; what ended because of us is cancelled, whatever the job makes of it."""
        if run.cancel_reason and status.outcome is not Outcome.SUCCEEDED:
            status = msgspec.structs.replace(status, outcome=Outcome.CANCELLED, reason=run.cancel_reason)
        self._end(run, status)

    def _collect(self, run: Run) -> None:
        """Bring the files home; while that fails nothing is released, for a release would lose them.

        But machines that were taken back may have taken the files along, and the next attempt must not wait for ever.
        """
        try:
            if not run.files_lost:
                self._bring_home(run)
        except (CloudbenchError, OSError) as error:
            if run.begins_anew and not self._out_of_patience(run):
                return
            if not run.begins_anew and not run.release_anyway:
                self._stuck[run.id] = ("its files could not be brought home; nothing was released", str(error))
                return
            self._journal(run.id, FilesLost(reason=_told(error)))
        self._enter(run, Phase.RELEASING)

    def _bring_home(self, run: Run) -> None:
        job = self._request(run).job
        if job in run.handles:
            self._provider_for(run.plan).collect(job, self._store.folder(run.id) / f"attempt-{run.attempt}")

    def _release(self, provider: Provider, run: Run) -> None:
        """Release what is left, the last thing made first; go on once nothing is."""
        left: list[str] = []
        patience_s = RELEASE_PATIENCE_S
        for handle in reversed(run.handles):
            try:
                gone, why = provider.release(handle), ""
            except CloudbenchError as error:
                gone, why = False, f": {error.what}"
                patience_s = PATIENCE_S
            if gone:
                self._journal(run.id, HandleReleased(handle=handle))
            else:
                left.append(f"{handle.kind} {handle.id}{why}")
        if left:
            self._failed_again(run, f"{len(left)} of its things are not gone", ", ".join(left), patience_s)
        elif run.begins_anew:
            self._journal(run.id, AttemptBegan(number=run.attempt + 1))
        else:
            self._enter(run, Phase.RELEASED)

    def _failed_again(self, run: Run, what: str, why: str, patience_s: float = PATIENCE_S) -> None:
        """Note a failure that may pass, and leave the run for `resume` where it does not."""
        if self._out_of_patience(run, patience_s):
            self._stuck[run.id] = (f"{what} (tried for {patience_s:.0f} s)", why)

    def _out_of_patience(self, run: Run, patience_s: float = PATIENCE_S) -> bool:
        """Whether the run has been failing for so long that it will not pass."""
        now = self._clock.now()
        return now - self._failing_since.setdefault(run.id, now) > patience_s

    def _raise_stuck(self) -> None:
        if self._stuck:
            uncollected = [run_id for run_id in self._stuck if self._store.load(run_id).phase is Phase.COLLECTING]
            anyway = f", or to lose its files: cloudbench cancel {' '.join(uncollected)} --release-anyway"
            raise CloudbenchError(
                "; ".join(f"run {run_id}: {what}" for run_id, (what, _) in self._stuck.items()),
                why="; ".join(why for _, why in self._stuck.values()),
                todo=f"cloudbench resume {' '.join(self._stuck)}" + (anyway if uncollected else ""),
            )

    def _guarded(self, run: Run, action: Callable[[], None]) -> None:
        """Take the action; an error of the provider ends the run with its outcome instead of the client."""
        try:
            action()
        except CloudbenchError as error:
            outcome = _OUTCOMES.get(type(error), Outcome.INFRASTRUCTURE)
            self._end(run, Status(outcome=outcome, reason=_told(error)))

    def _end(self, run: Run, status: Status) -> None:
        self._journal(run.id, Ended(status=status))
        self._enter(run, Phase.COLLECTING)

    def _enter(self, run: Run, phase: Phase) -> None:
        self._failing_since.pop(run.id, None)
        self._journal(run.id, PhaseEntered(phase=phase))

    def _journal(self, run_id: str, event: Event) -> None:
        self._store.append(run_id, event, at=self._clock.now())
        if self._notice:
            self._notice(self._store.load(run_id), event)

    def _request(self, run: Run) -> Request:
        return self._provider_for(run.plan).render(run.plan, run.attempt)

    def _by_provider(self, runs: Iterable[Run]) -> list[tuple[Provider, list[Run]]]:
        groups: dict[int, tuple[Provider, list[Run]]] = {}
        for run in runs:
            provider = self._provider_for(run.plan)
            groups.setdefault(id(provider), (provider, []))[1].append(run)
        return list(groups.values())


def _told(error: CloudbenchError | OSError) -> str:
    """What happened and why, in one line."""
    words = [error.what, error.why] if isinstance(error, CloudbenchError) else [str(error)]
    return " ".join(" — ".join(filter(None, words)).split())


def _in_turn(runs: Sequence[Run]) -> list[Run]:
    """The runs without the rehearsals that must wait: those of all clouds share this machine, one at a time."""
    first = next((run for run in runs if run.plan.rehearsal), None)
    return [
        run
        for run in runs
        if run is first or not run.plan.rehearsal or run.phase is not Phase.PLANNED or run.cancel_reason
    ]


_BEFORE_JOB = (Phase.PLANNED, Phase.PROVISIONING, Phase.READY)

_OUTCOMES: Mapping[type[CloudbenchError], Outcome] = {
    CapacityError: Outcome.NO_CAPACITY,
    JobFailedError: Outcome.FAILED,
    LimitError: Outcome.TIMED_OUT,
    PreemptedError: Outcome.PREEMPTED,
    QuotaError: Outcome.QUOTA,
}
