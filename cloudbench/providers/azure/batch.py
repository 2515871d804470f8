"""Azure Batch as a provider: one job with machines of its own for each attempt, seen through three listings.

The machines belong to the job: Azure makes them for it, and deletes them when it ends or reaches its wall clock, also
when no client ever comes back.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cloudbench.errors import InfrastructureError, UsageError
from cloudbench.plan import RunPlan
from cloudbench.providers.azure import batch_diagnostics, batch_leases, batch_requests
from cloudbench.providers.azure.account import API_VERSION, AzureAccount, batch_client, translated
from cloudbench.providers.azure.batch_images import MachineImage, choose_image
from cloudbench.providers.azure.batch_requests import TASK, attempt_handle, pool_prefix
from cloudbench.providers.azure.batch_status import (
    STOPPED,
    Seen,
    conclude,
    glance,
    metadata_of,
    with_words_of_nodes,
)
from cloudbench.providers.azure.checks import check_needs, check_size, errors_as_problems, refuse_missing_share
from cloudbench.providers.azure.share import ATTEMPT, GIVEN, OWNER, RUN, Share
from cloudbench.providers.base import LogChunk, LogFile, Problem, Request
from cloudbench.run import Handle, Outcome, Status

if TYPE_CHECKING:
    from azure.batch import BatchClient

_JOB_FIELDS = ["id", "state", "executionInfo", "poolInfo", "metadata"]
_POOL_FIELDS = [
    "id",
    "state",
    "allocationState",
    "resizeErrors",
    "currentDedicatedNodes",
    "currentLowPriorityNodes",
    "targetDedicatedNodes",
    "targetLowPriorityNodes",
]


class AzureBatchProvider:
    """Runs each attempt as one Batch job. Stateless: every answer comes from the account.

    Args:
        account: whose Batch account and share.
        one_by_one: runs take turns, because they use the same machines.
    """

    def __init__(self, account: AzureAccount, *, one_by_one: bool = False) -> None:
        self._account = account
        self._share = Share(account)
        # Stand-in nodes share this machine: two runs at once would disturb each other's figures.
        self.capacity: int | None = 1 if one_by_one or account.is_stand_in else None
        self.poll_interval_s = 0.5 if account.is_stand_in else 10.0

    @functools.cached_property
    def _client(self) -> BatchClient:
        return batch_client(self._account)

    def close(self) -> None:
        """Close the connections."""
        if "_client" in self.__dict__:
            self._client.close()
        self._share.close()

    def render(self, plan: RunPlan, attempt: int) -> Request:
        """The folder on the share, then the job with its pool and its task."""
        return batch_requests.render(plan, attempt, self._account)

    def check(self, request: Request) -> Sequence[Problem]:
        """What stands against the request: the size, the image, the account and its share."""
        (storage, _), image = batch_requests.storage_of(request.plan), batch_requests.image_of(request.plan)
        mounted = storage if storage != "local" else None
        problems = [
            *check_size(request.plan),
            *check_needs(request.plan, self._account, mounted=mounted, image=image),
        ]
        if any(problem.severity == "error" for problem in problems):
            return problems
        if self._account.missing:
            return [*problems, self._account.missing]
        with errors_as_problems(problems):
            refuse_missing_share(self._share, self._account)
            self.machine_image()
        return problems

    def provision(self, request: Request) -> Iterator[Handle]:
        """Make the folder on the share, and use the named pool where there is one.

        Raises:
            CloudbenchError: one of them belongs to another owner, or cannot be had.
        """
        for step in request.steps[:-1]:
            yield step.handle
            if step.handle.kind == "lease":
                body = batch_requests.fill(step.body["POST /jobs"], self._values(request))
                with translated(f"using the pool {request.plan.setup.pool}"):
                    batch_leases.take(self._client, body, request.plan, request.attempt)
            else:
                lifetime_s = request.plan.machines_limit_s
                self._share.make(step.handle.id, request.plan, request.attempt, lifetime_s=lifetime_s)

    def submit(self, request: Request) -> Handle:
        """Make the job and its task, and tell the job to end with it; each of them once.

        Raises:
            CloudbenchError: Azure refuses it, or a job of that name belongs to another owner.
        """
        from azure.batch.models import BatchJobCreateOptions, BatchJobUpdateOptions, BatchTaskCreateOptions
        from azure.core.exceptions import HttpResponseError, ResourceExistsError

        name = request.job.id
        job, task, update = request.steps[-1].body.values()
        values = self._values(request)
        with translated(f"making the job {name}"):
            if request.plan.setup.pool:
                lease = request.steps[-2].handle.id
                values[batch_requests.POOL_ID] = batch_leases.pool_id(self._client, lease)
            try:
                self._client.create_job(BatchJobCreateOptions(batch_requests.fill(job, values)))
            except ResourceExistsError:  # ours: from before, or of the request whose answer was lost
                self._refuse_others(request)
            with contextlib.suppress(ResourceExistsError):
                self._client.create_task(name, BatchTaskCreateOptions(batch_requests.fill(task, values)))
            try:
                self._client.update_job(name, BatchJobUpdateOptions(update))
            except HttpResponseError as error:
                if error.status_code != 409:  # the job has ended already
                    raise
        return request.job

    def poll(self, jobs: Collection[Handle]) -> Mapping[Handle, Status]:
        """How the jobs stand: three listings for all of them, and one question more for each that has ended."""
        seen = self._see(jobs)
        return {job: self._status(job, seen[job]) for job in jobs}

    def stop(self, job: Handle) -> None:
        """End the job; its machines go with it."""
        self._request("POST", f"/jobs/{job.id}/terminate", {"terminateReason": STOPPED})

    def logs(self, job: Handle) -> Sequence[LogFile]:
        """The log files that the nodes have pushed."""
        return self._share.logs(job.id)

    def read_log(self, job: Handle, node: int, name: str, offset: int) -> LogChunk:
        """At most 1 MiB of a log file, from the share."""
        return self._share.read_log(job.id, node, name, offset)

    def collect(self, job: Handle, into: Path) -> None:
        """Bring home what the nodes pushed; where the job failed, also what only the service has, as `service/…`."""
        self._share.collect(job.id, into)
        with translated(f"asking for the job {job.id}"):
            found = self._job(job.id)
        seen = Seen(job=found) if found and found.get("state") == "completed" else self._see([job])[job]
        if seen.job is not None:
            batch_diagnostics.collect(self._client, job.id, seen, into / "service")

    def release(self, handle: Handle) -> bool:
        """Delete the job with its machines, or the folder, or leave the named pool; both only when the job is gone."""
        if handle.kind == "files":
            return self._gone(handle.id) and self._share.remove(handle.id)
        if handle.kind == "lease":
            with translated(f"leaving {handle.id}"):
                user = batch_requests.attempt_name(handle.run, handle.attempt)
                return self._job(user) is None and batch_leases.give_back(self._client, handle.id, user)
        with translated(f"deleting the job {handle.id}"):
            job = self._job(handle.id)
        if job is not None and metadata_of(job).get(RUN) != handle.run:
            raise InfrastructureError(f"the job {handle.id} is not the one that this run made", why="its marks differ")
        if job is not None and job.get("state") != "deleting":
            self._request("DELETE", f"/jobs/{handle.id}")
        return self._gone(handle.id)

    def find(self, owner: str) -> Iterable[Handle]:
        """The folders, jobs and pools with the owner's mark, as what they belong to."""
        folders = self._share.find(owner, batch_requests.SERVICE)
        found = [attempt_handle("files", marks[RUN], int(marks[ATTEMPT])) for marks in folders]
        with translated("listing what is there"):
            things = [
                *self._client.list_jobs(select=["id", "metadata"]),
                *self._client.list_pools(select=["id", "metadata"]),
            ]
        for thing in things:
            marks = metadata_of(thing.as_dict())
            if marks.get(OWNER) == owner and RUN in marks:
                found.append(attempt_handle("job", marks[RUN], int(marks[ATTEMPT])))
            elif marks.get(OWNER) == owner:
                for run, _, attempt in (user.rpartition("-a") for user in batch_leases.users(thing.as_dict())):
                    found.append(batch_requests.lease_handle(marks[batch_requests.POOL], run, int(attempt)))
        return list(dict.fromkeys(found))

    def machine_image(self) -> MachineImage:
        """The machine image, from what the service lists; it is asked once."""
        return choose_image(self._images, today=datetime.datetime.now(datetime.timezone.utc).isoformat())

    @functools.cached_property
    def _images(self) -> list[dict[str, Any]]:
        with translated("asking which images the service supports"):
            return _listed(self._client.list_supported_images())

    def _see(self, jobs: Collection[Handle]) -> dict[Handle, Seen]:
        """What the listings show of the jobs; pools are listed only while a job may have one that says something."""
        with translated("listing jobs and their machines"):
            listed = {job["id"].lower(): job for job in _listed(self._client.list_jobs(select=_JOB_FIELDS))}
            found = {handle: listed.get(handle.id.lower()) for handle in jobs}
            pools: dict[str, dict[str, Any]] = {}
            counts: dict[str, dict[str, int]] = {}
            if any(_pool_id(job) for job in found.values()):
                pools = {pool["id"].lower(): pool for pool in _listed(self._client.list_pools(select=_POOL_FIELDS))}
                counts = {item["poolId"].lower(): _sum(item) for item in _listed(self._client.list_pool_node_counts())}
        return {
            handle: Seen(job=job, pool=pools.get(_pool_id(job)), counts=counts.get(_pool_id(job), {}))
            for handle, job in found.items()
        }

    def _status(self, job: Handle, seen: Seen) -> Status:
        status = glance(seen)
        if status is not None and status.outcome and seen.pool:
            # The pool was listed after the job, and goes away with a job that ended in between.
            with translated(f"asking whether the job {job.id} has ended"):
                seen = msgspec.structs.replace(seen, job=self._job(job.id))
            status = glance(seen)
        if status is None:
            nodes = int(metadata_of(seen.job).get(batch_requests.NODES) or seen.nodes or 1)
            with translated(f"asking how the job {job.id} ended"):
                task = self._task(job.id)
            return conclude(seen, task, [self._share.status(job.id, node) for node in range(nodes)])
        if status.outcome is Outcome.INFRASTRUCTURE and seen.pool:
            with translated(f"asking for the nodes of the job {job.id}"):
                return with_words_of_nodes(status, _listed(self._client.list_nodes(seen.pool["id"])))
        return status

    def _task(self, name: str) -> dict[str, Any] | None:
        from azure.core.exceptions import ResourceNotFoundError

        try:
            return dict(self._client.get_task(name, TASK, select=["id", "state", "executionInfo"]).as_dict())
        except ResourceNotFoundError:
            return None

    def _job(self, name: str) -> dict[str, Any] | None:
        from azure.core.exceptions import ResourceNotFoundError

        try:
            return dict(self._client.get_job(name, select=_JOB_FIELDS).as_dict())
        except ResourceNotFoundError:
            return None

    def _gone(self, name: str) -> bool:
        """Whether the job and every machine that was made for it are gone."""
        with translated(f"looking whether the job {name} is gone"):
            if self._job(name) is not None:
                return False
            pools = self._client.list_pools(filter=f"startswith(id, '{pool_prefix(name)}')", select=["id"])
            return not list(pools)

    def _refuse_others(self, request: Request) -> None:
        """Refuse a job of our name that is not ours.

        Raises:
            UsageError: it belongs to another owner.
        """
        marks = metadata_of(self._job(request.job.id))
        if (marks.get(OWNER), marks.get(RUN)) != (request.plan.owner, request.plan.id):
            raise UsageError(
                f"the job {request.job.id} belongs to another run",
                why=f"it was made for {marks.get(OWNER, 'nobody')}, not {request.plan.owner}",
            )

    def _values(self, request: Request) -> dict[str, Any]:
        """What the placeholders of the bodies stand for; secrets leave their wrapping here and nowhere else."""
        name, lifetime_s = request.job.id, request.plan.machines_limit_s
        image = self.machine_image()
        values: dict[str, Any] = {
            batch_requests.IMAGE: image.reference,
            batch_requests.NODE_AGENT: image.node_agent,
        }
        for file in GIVEN:
            address = self._share.address(name, file, lifetime_s=lifetime_s)
            values[batch_requests.address_of(file)] = address.reveal()
        if self._account.storage_key:
            values[batch_requests.STORAGE_KEY] = self._account.storage_key.reveal()
        if self._account.registry and self._account.registry.password:
            values[batch_requests.REGISTRY_PASSWORD] = self._account.registry.password.reveal()
        return values

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        """A request that is answered before it is done; what is gone or has ended already is no error.

        The SDK's own methods for these start a thread that asks again and again.
        """
        from azure.core.exceptions import HttpResponseError
        from azure.core.rest import HttpRequest

        headers = {"Content-Type": "application/json; odata=minimalmetadata"} if body is not None else {}
        request = HttpRequest(
            method, path, params={"api-version": API_VERSION}, headers=headers, json=dict(body) if body else None
        )
        with translated(f"{method} {path}"):
            try:
                self._client.send_request(request).raise_for_status()
            except HttpResponseError as error:
                if error.status_code not in (404, 409):
                    raise


def _listed(items: Iterable[Any]) -> list[dict[str, Any]]:
    return [item.as_dict() for item in items]


def _pool_id(job: Mapping[str, Any] | None) -> str:
    """The pool of a job that has not ended, in lower case; empty where it has none, or none that matters."""
    if job is None or job.get("state") in ("completed", "deleting"):
        return ""
    info = job.get("executionInfo") or {}
    return str(info.get("poolId") or (job.get("poolInfo") or {}).get("poolId") or "").lower()


def _sum(item: Mapping[str, Any]) -> dict[str, int]:
    """Nodes in each state, dedicated and low-priority ones together."""
    kinds = [item.get("dedicated") or {}, item.get("lowPriority") or {}]
    return {state: sum(kind.get(state, 0) for kind in kinds) for state in {*kinds[0], *kinds[1]}}
