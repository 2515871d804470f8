"""A small but whole provider for tests: its things are files in a folder, and its time passes with each poll.

What a run does there is written in its plan's parameters:
  lasts: polls until its job ends;  ends: the outcome;  slow_release: calls until a thing is gone;
  preempts: so many attempts, the first ones, end as preempted instead;
  refuses: the call that fails for this run (provision, submit, poll, stop, collect or release), with the number of an
    attempt behind it where it fails in that attempt only;  raises: the error that it fails with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cloudbench import errors
from cloudbench.errors import CloudbenchError
from cloudbench.plan import RunPlan, plan_experiment
from cloudbench.providers.base import LogChunk, LogFile, Problem, Request, Step
from cloudbench.run import Handle, Outcome, Status
from cloudbench.spec import Experiment, JobTemplate, Parameter, Setup

TEMPLATE = JobTemplate(
    name="small",
    command="true",
    launcher="per-node",
    format="f",
    parameters={
        "lasts": Parameter(default=2),
        "ends": Parameter(default="succeeded"),
        "slow_release": Parameter(default=0),
        "preempts": Parameter(default=0),
        "refuses": Parameter(default=""),
        "raises": Parameter(default="InfrastructureError"),
        "number": Parameter(default=0),
    },
)


def small_plans(
    count: int = 1, *, owner: str = "me", submission: int = 1, retries: int = 1, **parameters: Any
) -> tuple[RunPlan, ...]:
    """Plans of runs on two nodes that differ in `number`."""
    asked = Experiment(
        name="e",
        templates=("small",),
        parameters=parameters,
        sweep={"number": tuple(range(count))},
        setups=(Setup(name="s", nodes=2),),
    )
    plans = plan_experiment(asked, {"small": TEMPLATE}, owner=owner, submission=submission)
    return tuple(msgspec.structs.replace(plan, retries=retries) for plan in plans)


class SmallProvider:
    """Things below one folder, and a ledger of what was done to them.

    Args:
        folder: the things are files in it; a second provider on the same folder sees the same things.
        observe: told of every call and every change as `before …` and `after …`, in the moment it is made.
    """

    poll_interval_s = 5.0

    def __init__(
        self,
        folder: Path,
        *,
        capacity: int | None = None,
        observe: Callable[[str, Handle | None], None] = lambda moment, handle: None,
    ) -> None:
        self.capacity = capacity
        self._things = folder / "things"
        self._things.mkdir(parents=True, exist_ok=True)
        self._ledger = folder / "ledger"
        self._observe = observe

    @property
    def ledger(self) -> list[str]:
        """Every call and change, the oldest first."""
        return self._ledger.read_text().splitlines() if self._ledger.exists() else []

    @property
    def things(self) -> list[str]:
        """Names of all that exists."""
        return sorted(path.name for path in self._things.iterdir())

    def render(self, plan: RunPlan, attempt: int) -> Request:
        names = [("network", "net"), *(("machine", f"node-{node}") for node in range(plan.nodes)), ("job", "job")]
        steps = (
            Step(
                action=f"make {kind}",
                handle=Handle(
                    provider="small",
                    service="folder",
                    kind=kind,
                    id=f"{plan.id}.{attempt}.{name}",
                    run=plan.id,
                    attempt=attempt,
                ),
                body={"owner": plan.owner, "plan": dict(plan.parameters)},
            )
            for kind, name in names
        )
        return Request(plan=plan, attempt=attempt, steps=tuple(steps))

    def check(self, request: Request) -> Sequence[Problem]:
        return ()

    def provision(self, request: Request) -> Iterator[Handle]:
        for step in request.steps[:-1]:
            yield step.handle
            self._make(step, "provision")

    def submit(self, request: Request) -> Handle:
        self._make(request.steps[-1], "submit")
        return request.job

    def poll(self, jobs: Collection[Handle]) -> Mapping[Handle, Status]:
        self._done(f"poll {len(jobs)}", None)
        return {job: self._status(job) for job in jobs}

    def stop(self, job: Handle) -> None:
        thing = self._read(job)
        self._refuse(thing, "stop")
        self._change(job, "stop", {**thing, "stopped": True} if thing else None)

    def logs(self, job: Handle) -> Sequence[LogFile]:
        return [LogFile(node=0, name="rank-0.log", size_bytes=len(self._log(job)))] if self._read(job) else []

    def read_log(self, job: Handle, node: int, name: str, offset: int) -> LogChunk:
        data = self._log(job)[offset:]
        return LogChunk(data=data, next_offset=offset + len(data))

    def collect(self, job: Handle, into: Path) -> None:
        self._refuse(self._read(job), "collect")
        self._observe("before collect", job)
        if self._read(job):
            (into / "node-0").mkdir(parents=True, exist_ok=True)
            (into / "node-0" / "rank-0.log").write_bytes(self._log(job))
        self._done(f"collect {job.id}", job)
        self._observe("after collect", job)

    def release(self, handle: Handle) -> bool:
        thing = self._read(handle)
        self._refuse(thing, "release")
        if thing and thing["release_calls"] < thing["plan"]["slow_release"]:
            self._change(handle, "begin to release", {**thing, "release_calls": thing["release_calls"] + 1})
            return False
        self._change(handle, "release", None)
        return True

    def find(self, owner: str) -> Iterable[Handle]:
        for path in self._things.iterdir():
            thing = json.loads(path.read_text())
            if thing["owner"] == owner:
                yield Handle(**thing["handle"])

    def _make(self, step: Step, call: str) -> None:
        thing = {**step.body, "polls": 0, "stopped": False, "release_calls": 0}
        thing["handle"] = {name: getattr(step.handle, name) for name in step.handle.__struct_fields__}
        self._refuse(thing, call)
        if self._read(step.handle) is None:
            self._change(step.handle, "make", thing)

    def _status(self, job: Handle) -> Status:
        thing = self._read(job)
        if thing is None:
            return Status(outcome=Outcome.INFRASTRUCTURE, reason="the job is not there any more")
        self._refuse(thing, "poll")
        thing["polls"] += 1
        self._change(job, "let time pass for", thing)
        if thing["stopped"]:
            return Status(outcome=Outcome.CANCELLED, vendor_state="Stopped")
        if thing["polls"] < thing["plan"]["lasts"]:
            return Status(vendor_state="Running")
        if job.attempt <= thing["plan"]["preempts"]:
            return Status(outcome=Outcome.PREEMPTED, reason="the machines were taken back", vendor_state="Preempted")
        return Status(outcome=Outcome(thing["plan"]["ends"]), vendor_state="Done")

    def _refuse(self, thing: dict[str, Any] | None, call: str) -> None:
        if thing and thing["plan"]["refuses"] in (call, f"{call} {thing['handle']['attempt']}"):
            error: type[CloudbenchError] = getattr(errors, thing["plan"]["raises"])
            raise error(f"{call} was refused", why="the plan says so")

    def _change(self, handle: Handle, change: str, thing: dict[str, Any] | None) -> None:
        self._observe(f"before {change}", handle)
        path = self._things / handle.id
        if thing is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(json.dumps(thing))
        self._done(f"{change} {handle.id}", handle)
        self._observe(f"after {change}", handle)

    def _done(self, entry: str, handle: Handle | None) -> None:
        with self._ledger.open("a") as ledger:
            ledger.write(entry + "\n")

    def _read(self, handle: Handle) -> dict[str, Any] | None:
        path = self._things / handle.id
        return dict(json.loads(path.read_text())) if path.exists() else None

    def _log(self, job: Handle) -> bytes:
        thing = self._read(job)
        return b"".join(b"step %d\n" % step for step in range(thing["polls"] if thing else 0))
