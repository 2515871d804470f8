"""One loop for every run: read its state, take one step, journal it.

A step is journalled before its effect, so a run that lost its client at any moment can be driven on by another: what
may have been done is done again, and every provider finds instead of making twice.
"""

from __future__ import annotations

import contextlib
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
    CancelRequested,
    Ended,
    Event,
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
        with contextlib.ExitStack() as locks:
            for run_id in run_ids:
                if not locks.enter_context(self._store.driving(run_id)):
                    raise UsageError(
                        f"another process drives run {run_id}",
                        todo=f"cloudbench logs {run_id} --follow, or cloudbench cancel {run_id}",
                    )
            try:
                return self._drive(run_ids, detach=detach)
            except KeyboardInterrupt as interrupt:
                for run_id in run_ids:
                    if not self._store.load(run_id).finished:
                        self._journal(run_id, CancelRequested(reason=str(interrupt) or "interrupted from the keyboard"))
                self._drive(run_ids, detach=False)
                raise

    def cancel(self, run_id: str, *, reason: str) -> Run:
        """Ask for the run's end, and take it there unless another process is driving it already."""
        run = self._store.load(run_id)
        if run.finished:
            return run
        self._journal(run_id, CancelRequested(reason=reason))
        while True:
            with self._store.driving(run_id) as ours:
                if ours:
                    return self._drive([run_id], detach=False)[0]
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
        """Bring home what there is; a run whose job has ended is released too.

        Raises:
            UsageError: another process drives the run, or its job was never started.
        """
        run = self._store.load(run_id)
        if run.finished:
            return run
        if run.phase in _BEFORE_JOB and not run.status:
            raise UsageError(f"run {run_id} has not started yet", todo=f"cloudbench resume {run_id}")
        if run.phase is Phase.RUNNING and not run.status and not self.poll([run])[run_id].ended:
            self._bring_home(run)
            return run
        return self.drive([run_id])[0]

    def _drive(self, run_ids: Sequence[str], *, detach: bool) -> list[Run]:
        self._stuck.clear()
        self._failing_since.clear()
        while True:
            runs = [self._store.load(run_id) for run_id in run_ids]
            unfinished = [run for run in runs if not run.finished and run.id not in self._stuck]
            if all(detach and run.phase is Phase.RUNNING for run in unfinished):
                self._raise_stuck()
                return runs
            for provider, group in self._by_provider(unfinished):
                self._turn(provider, group)
            if all(self._store.load(run.id) == run for run in unfinished):
                self._clock.sleep(min(self._provider_for(run.plan).poll_interval_s for run in unfinished))

    def _turn(self, provider: Provider, runs: Sequence[Run]) -> None:
        """One step for each run that has its turn, and one poll for all that are running."""
        begun = [run for run in runs if run.phase is not Phase.PLANNED or run.cancel_reason]
        room = len(runs) if provider.capacity is None else max(provider.capacity - len(begun), 0)
        waiting = [run for run in runs if run not in begun]
        running = [run for run in begun if run.phase is Phase.RUNNING and not run.status]
        for run in [*begun, *waiting[:room]]:
            if run not in running:
                self._step(provider, run)
        if running:
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
        """Bring the files home; while that fails nothing is released, for a release would lose them."""
        try:
            self._bring_home(run)
        except (CloudbenchError, OSError) as error:
            self._stuck[run.id] = ("its files could not be brought home; nothing was released", str(error))
            return
        self._enter(run, Phase.RELEASING)

    def _bring_home(self, run: Run) -> None:
        job = self._request(run).job
        if job in run.handles:
            self._provider_for(run.plan).collect(job, self._store.folder(run.id) / f"attempt-{run.attempt}")

    def _release(self, provider: Provider, run: Run) -> None:
        """Release what is left, the last thing made first; go on once nothing is."""
        left: list[str] = []
        for handle in reversed(run.handles):
            try:
                gone, why = provider.release(handle), ""
            except CloudbenchError as error:
                gone, why = False, f": {error.what}"
            if gone:
                self._journal(run.id, HandleReleased(handle=handle))
            else:
                left.append(f"{handle.kind} {handle.id}{why}")
        if left:
            self._failed_again(run, f"{len(left)} of its things are not gone", ", ".join(left))
        else:
            self._enter(run, Phase.RELEASED)

    def _failed_again(self, run: Run, what: str, why: str) -> None:
        """Note a failure that may pass, and leave the run for `resume` where it does not."""
        since = self._failing_since.setdefault(run.id, self._clock.now())
        if self._clock.now() - since > PATIENCE_S:
            self._stuck[run.id] = (f"{what} (tried for {PATIENCE_S:.0f} s)", why)

    def _raise_stuck(self) -> None:
        if self._stuck:
            raise CloudbenchError(
                "; ".join(f"run {run_id}: {what}" for run_id, (what, _) in self._stuck.items()),
                why="; ".join(why for _, why in self._stuck.values()),
                todo=f"cloudbench resume {' '.join(self._stuck)}",
            )

    def _guarded(self, run: Run, action: Callable[[], None]) -> None:
        """Take the action; an error of the provider ends the run with its outcome instead of the client."""
        try:
            action()
        except CloudbenchError as error:
            outcome = _OUTCOMES.get(type(error), Outcome.INFRASTRUCTURE)
            self._end(run, Status(outcome=outcome, reason=" — ".join(filter(None, [error.what, error.why]))))

    def _end(self, run: Run, status: Status) -> None:
        self._journal(run.id, Ended(status=status))
        self._enter(run, Phase.COLLECTING)

    def _enter(self, run: Run, phase: Phase) -> None:
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


_BEFORE_JOB = (Phase.PLANNED, Phase.PROVISIONING, Phase.READY)

_OUTCOMES: Mapping[type[CloudbenchError], Outcome] = {
    CapacityError: Outcome.NO_CAPACITY,
    JobFailedError: Outcome.FAILED,
    LimitError: Outcome.TIMED_OUT,
    PreemptedError: Outcome.PREEMPTED,
    QuotaError: Outcome.QUOTA,
}
