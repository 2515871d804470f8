"""AWS Batch as a provider: a container job for each attempt, or a multi-node parallel job, seen by one request for all.

The machines belong to an environment that has none while no job runs. A job ends by its own time limit, also when no
client ever comes back, and AWS takes its machines away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cloudbench.errors import InfrastructureError, UsageError
from cloudbench.plan import RunPlan
from cloudbench.providers.aws import batch_requests, batch_streams
from cloudbench.providers.aws.account import AwsAccount, Clients, code_of, translated
from cloudbench.providers.aws.batch_requests import BATCH, DEFINITION, ENVIRONMENT, PRIORITY, handle_of
from cloudbench.providers.aws.batch_status import (
    RELEASED,
    STOPPED,
    Waited,
    conclude,
    glance,
    unplaceable,
)
from cloudbench.providers.aws.batch_things import WAITING, Things
from cloudbench.providers.aws.checks import check_bucket, check_credentials, check_size, errors_as_problems
from cloudbench.providers.aws.files import ADDRESSES, ATTEMPT, NODES, OWNER, RUN, Bucket
from cloudbench.providers.aws.requests import FILES_ADDRESS, attempt_name, fill, lifetime_s
from cloudbench.providers.base import LogChunk, LogFile, Problem, Request
from cloudbench.run import Handle, Outcome, Status

_SHARED = ("placement-group", "launch-template", "compute-environment", "job-queue")
_MOST_IDS = 100  # that one request may name
_YOUNG_S = 60.0
"""For so long after a job was submitted, that nobody lists it does not say that it is not there."""
_TRIES = 3
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)  # while AWS Batch says that it is asked too often


class AwsBatchProvider:
    """Runs each attempt as one job. Keeps nothing but the ids that AWS gave to jobs.

    Args:
        account: whose queues and whose bucket.
        clock: seconds since the epoch.
        waited: how long a job may wait for machines.
    """

    def __init__(
        self, account: AwsAccount, *, clock: Callable[[], float] = time.time, waited: Waited | None = None
    ) -> None:
        self._account = account
        self.clients = Clients(account)
        self._bucket = Bucket(account, self.clients)
        self._things = Things(account, self.clients)
        self._clock = clock
        # In a rehearsal nobody waits as long as for real machines.
        rehearsed = Waited(explained_s=5.0, unexplained_s=120.0)
        self._waited = waited or (rehearsed if account.is_stand_in else Waited())
        self._ids: dict[str, str] = {}
        self._marks: dict[str, dict[str, str]] = {}
        self._submitted_at: dict[str, float] = {}
        # Stand-in nodes share this machine: two runs at once would disturb each other's figures.
        self.capacity: int | None = 1 if account.is_stand_in else None
        self.poll_interval_s = 0.5 if account.is_stand_in else 10.0

    @property
    def _batch(self) -> Any:
        return self.clients.get("batch")

    def close(self) -> None:
        """Close the connections."""
        self.clients.close()

    def render(self, plan: RunPlan, attempt: int) -> Request:
        """The files, where the machines come from, what a job is, and the job itself."""
        return batch_requests.render(plan, attempt, self._account)

    def check(self, request: Request) -> Sequence[Problem]:
        """What stands against the request: the size, the account and its bucket."""
        problems = check_size(request.plan)
        if any(problem.severity == "error" for problem in problems):
            return problems
        if batch_requests.image_of(request.plan) is None:
            problem = Problem(
                severity="error",
                what=f"{request.plan.label}: AWS Batch runs containers, and no image is named",
                todo="--image NAME (containers/README.md builds one); or --service ec2, which needs none",
                exit_code=2,
            )
            return [*problems, problem]
        if self._account.missing:
            return [*problems, self._account.missing]
        with errors_as_problems(problems):
            problems += check_credentials(self._account, self.clients)
            check_bucket(self._account, self._bucket)
        return problems

    def provision(self, request: Request) -> Iterator[Handle]:
        """Put the files, then make what is not there yet of what the job needs.

        Raises:
            CloudbenchError: AWS refuses it, or a name belongs to another owner.
        """
        files, *things = request.steps[:-1]
        yield files.handle
        self._bucket.make(
            files.handle.id,
            request.plan,
            request.attempt,
            lifetime_s=lifetime_s(request.plan),
            marks=files.body["metadata"],
        )
        for step in things:
            yield step.handle
            self._things.ensure(step)

    def submit(self, request: Request) -> Handle:
        """Submit the job, once: AWS Batch itself would take it twice.

        Raises:
            CloudbenchError: AWS refuses it, or a job of that name belongs to another owner.
        """
        name, queue = request.job.id, request.steps[-1].body["submit_job"]["jobQueue"]
        body = self._filled(request)
        for left in reversed(range(_TRIES)):
            found = self._things.jobs_named(queue, name)
            if not found and name in self._ids:
                return request.job
            if found:
                self._adopt(request, found)
                return request.job
            try:
                with translated(f"submitting the job {name}"):
                    self._ids[name] = self._submit_once(body)
                self._submitted_at[name] = time.monotonic()
                return request.job
            except InfrastructureError:
                # Its answer may be lost; or another run has just taken away what both need.
                if not left:
                    raise
                time.sleep(self.poll_interval_s)
                for step in request.steps[1:-1]:
                    self._things.ensure(step)
        raise AssertionError("unreachable")

    def poll(self, jobs: Collection[Handle]) -> Mapping[Handle, Status]:
        """How the jobs stand: one request for a hundred of them, and what nodes said of each that has ended."""
        found = self._see(jobs)
        statuses = {job: self._status(job, found.get(job.id)) for job in jobs}
        waiting = {
            job: _queue_of(found[job.id]) for job, status in statuses.items() if _waits(status, found.get(job.id))
        }
        problems = self._things.problems_of(set(waiting.values())) if waiting else {}
        explained = {job: unplaceable(statuses[job], problems.get(queue)) for job, queue in waiting.items()}
        return {**statuses, **explained}

    def stop(self, job: Handle) -> None:
        """Tell AWS Batch to end the job; its containers are given 30 s."""
        self._end(job.id, STOPPED)

    def logs(self, job: Handle) -> Sequence[LogFile]:
        """The log files that the nodes have pushed."""
        return self._bucket.logs(job.id)

    def read_log(self, job: Handle, node: int, name: str, offset: int) -> LogChunk:
        """At most 1 MiB of a log file, from the bucket."""
        return self._bucket.read_log(job.id, node, name, offset)

    def collect(self, job: Handle, into: Path) -> None:
        """Bring home what the nodes pushed; where the job failed, also what its containers printed, as `service/…`."""
        self._bucket.collect(job.id, into)
        found = self._see([job]).get(job.id)
        if found is not None and found["status"] == "FAILED":
            nodes = int((self._marks_of(job.id) or {}).get(NODES, 1))
            batch_streams.collect(self.clients, found, nodes, into / "service")

    def release(self, handle: Handle) -> bool:
        """End the job, or take away what it needed; what another run needs is left to the last one that does."""
        if handle.kind == "job":
            return self._end(handle.id, RELEASED)
        name = attempt_name(handle.run, handle.attempt)
        if handle.kind == "files":
            marks = self._bucket.marks(name)
            if marks is not None and marks.get(RUN) != handle.run:
                raise InfrastructureError(f"the files runs/{name} are not those of this run", why="their marks differ")
            return not self._waiting(name) and self._bucket.remove(name)
        if handle.kind == "job-definition":
            return not self._waiting(name) and self._things.remove(handle.kind, handle.id)
        users = {job["jobName"] for job in self._things.waiting_jobs(handle.id)}
        if name in users:
            return False
        if users:
            return True  # the last of them takes it away
        if handle.kind != "job-queue" and self._things.exists("job-queue", handle.id):
            return False
        if handle.kind in ("launch-template", "placement-group") and self._things.exists(
            "compute-environment", handle.id
        ):
            return False
        return self._things.remove(handle.kind, handle.id)

    def find(self, owner: str) -> Iterable[Handle]:
        """The files, jobs and all that they need with the owner's mark; what runs share as what each of them has."""
        files = list(self._bucket.find(owner, BATCH))
        things = self._things.of_owner(owner)
        queues = [name for kind, name in things if kind == "job-queue"]
        runs = {(marks[RUN], int(marks[ATTEMPT])): marks for marks in files}
        found = [handle_of("files", attempt_name(*run), *run) for run in runs]
        used: set[tuple[str, str]] = set()
        for run, marks in runs.items():
            needed = [*((kind, marks[ENVIRONMENT]) for kind in _SHARED), ("job-definition", marks[DEFINITION])]
            used.update(needed)
            found += [handle_of(kind, name, *run) for kind, name in needed if (kind, name) in things]
        for thing, tags in things.items():
            if thing not in used and RUN in tags:
                found.append(handle_of(*thing, tags[RUN], int(tags[ATTEMPT])))
        ids = [job["jobId"] for queue in queues for job in self._things.waiting_jobs(queue)]
        for job in self._describe(ids):
            tags = job.get("tags") or {}
            if tags.get(OWNER) == owner:
                found.append(handle_of("job", job["jobName"], tags[RUN], int(tags[ATTEMPT])))
        return list(dict.fromkeys(found))

    def _status(self, job: Handle, seen: Mapping[str, Any] | None) -> Status:
        if seen is None:
            return self._unseen(job)
        status = glance(seen, self._clock(), self._waited)
        if status is not None:
            return status
        tags = seen.get("tags") or {}
        said = [self._bucket.status(job.id, node) for node in range(int(tags.get(NODES, 1)))]
        return conclude(seen, said, low_priority=tags.get(PRIORITY) == "low-priority")

    def _unseen(self, job: Handle) -> Status:
        """The status of a job that AWS Batch does not list."""
        age_s = self._bucket.age_s(job.id)
        if age_s is not None and (age_s < _YOUNG_S or self._is_young(job.id)):
            return Status(vendor_state="not listed yet")
        return Status(outcome=Outcome.INFRASTRUCTURE, reason="AWS Batch does not know the job")

    def _is_young(self, name: str) -> bool:
        return time.monotonic() - self._submitted_at.get(name, -_YOUNG_S) < _YOUNG_S

    def _end(self, name: str, reason: str) -> bool:
        """Have no job of that name running; True when that was seen."""
        waiting = self._waiting(name)
        for job in waiting:
            with translated(f"ending the job {name}"):
                self._batch.terminate_job(jobId=job["jobId"], reason=reason)
        if not waiting and name in self._ids and self._is_young(name):
            seen = self._describe([self._ids[name]])
            return bool(seen) and seen[0]["status"] not in WAITING
        return not waiting

    def _waiting(self, name: str) -> list[dict[str, Any]]:
        """The jobs of that name that have not ended; there is one at the most, unless an answer was lost."""
        marks = self._marks_of(name)
        if marks is None:
            return []
        return [job for job in self._things.jobs_named(marks[ENVIRONMENT], name) if job["status"] in WAITING]

    def _see(self, jobs: Collection[Handle]) -> dict[str, dict[str, Any]]:
        """What AWS Batch tells of the jobs, by their names; those that it does not know are left out."""
        ids = {self._id(job.id): job.id for job in jobs}
        return {ids[job["jobId"]]: job for job in self._describe([found for found in ids if found])}

    def _id(self, name: str) -> str | None:
        """The id that AWS gave to the job of that name; looked up once."""
        if name not in self._ids:
            marks = self._marks_of(name)
            found = self._things.jobs_named(marks[ENVIRONMENT], name) if marks else []
            if not found:
                return None
            self._ids[name] = found[0]["jobId"]
        return self._ids[name]

    def _submit_once(self, body: Mapping[str, Any]) -> str:
        """The id of the job. Only a refused request is sent again: one without an answer may have been carried out."""
        from botocore.exceptions import ClientError

        for pause_s in (*_PAUSES_S, None):
            try:
                return str(self.clients.get("batch", retries=False).submit_job(**body)["jobId"])
            except ClientError as error:
                if code_of(error) != "TooManyRequestsException" or pause_s is None:
                    raise
                time.sleep(pause_s)
        raise AssertionError("unreachable")

    def _adopt(self, request: Request, found: Sequence[Mapping[str, Any]]) -> None:
        """Take the oldest job of our name for ours; where an answer was lost there may be a second one, which ends.

        Raises:
            UsageError: it belongs to another owner.
        """
        name, plan = request.job.id, request.plan
        tags = next((job.get("tags") or {} for job in self._describe([found[0]["jobId"]])), {})
        if (tags.get(OWNER), tags.get(RUN)) != (plan.owner, plan.id):
            raise UsageError(
                f"the job {name} belongs to another run",
                why=f"it was made for {tags.get(OWNER, 'nobody')}, not {plan.owner}",
            )
        self._ids[name] = found[0]["jobId"]
        for job in found[1:]:
            if job["status"] in WAITING:
                with translated(f"ending a second job {name}"):
                    self._batch.terminate_job(jobId=job["jobId"], reason=RELEASED)

    def _filled(self, request: Request) -> dict[str, Any]:
        """The body of the job; the address leaves its wrapping here and nowhere else."""
        address = self._bucket.address(request.job.id, ADDRESSES, lifetime_s=lifetime_s(request.plan))
        body = request.steps[-1].body["submit_job"]
        return dict(fill(body, {FILES_ADDRESS: address.reveal()}))

    def _marks_of(self, name: str) -> dict[str, str] | None:
        """What the files of an attempt say of it, which does not change while they are there."""
        if name not in self._marks and (found := self._bucket.marks(name)) is not None:
            self._marks[name] = found
        return self._marks.get(name)

    def _describe(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        with translated("asking how jobs stand"):
            return [
                job
                for first in range(0, len(ids), _MOST_IDS)
                for job in self._batch.describe_jobs(jobs=list(ids[first : first + _MOST_IDS]))["jobs"]
            ]


def _queue_of(job: Mapping[str, Any]) -> str:
    return str(job["jobQueue"]).rpartition("/")[2]


def _waits(status: Status, seen: Mapping[str, Any] | None) -> bool:
    return seen is not None and status.outcome is None and seen["status"] == "RUNNABLE"
