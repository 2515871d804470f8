"""The Batch account: its pools and jobs by id, which of them get nodes, and what a request about them must satisfy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import uuid4

from cloudbench.rehearsal.azure_batch.jobs import Job
from cloudbench.rehearsal.azure_batch.pools import Pool, check_resize_timeout
from cloudbench.rehearsal.azure_batch.wire import Body, ServiceError

if TYPE_CHECKING:
    from cloudbench.rehearsal.azure_batch.world import BatchWorld

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_PREFIX = 20
_NOT_SERVED = {
    "pool": ("autoScaleFormula", "autoScaleEvaluationInterval"),
    "job": ("jobManagerTask", "jobPreparationTask", "jobReleaseTask"),
}


class Service:
    """Pools and jobs of one account; ids are compared without regard to case."""

    def __init__(self, world: BatchWorld) -> None:
        self.world = world
        self.pools: dict[str, Pool] = {}
        self.jobs: dict[str, Job] = {}
        self._is_scheduling = False

    def create_pool(self, body: Body) -> Pool:
        """A new pool, from a checked body.

        Raises:
            ServiceError: 400 or 409.
        """
        check_id(body["id"])
        known = self.pools.get(body["id"].lower())
        if known:
            known.must_be_active()
            raise ServiceError(409, "PoolExists", "The specified pool already exists.")
        if self.world.scenario.pool_quota_reached:
            raise ServiceError(409, "PoolQuotaReached", "Pool quota for the account has been reached.")
        _check_pool(body)
        pool = self.pools[body["id"].lower()] = Pool(self.world, body, self.schedule)
        self.schedule()
        return pool

    def pool(self, pool_id: str) -> Pool:
        """The pool of that id.

        Raises:
            ServiceError: 404.
        """
        if pool_id.lower() not in self.pools:
            raise ServiceError(404, "PoolNotFound", "The specified pool does not exist.")
        return self.pools[pool_id.lower()]

    def delete_pool(self, pool: Pool) -> None:
        """Begin to delete it."""
        pool.delete(lambda gone: self._drop(self.pools, gone.id))

    def create_job(self, body: Body) -> Job:
        """A new job, from a checked body, with its auto-pool where it asks for one.

        Raises:
            ServiceError: 400 or 409.
        """
        check_id(body["id"])
        known = self.jobs.get(body["id"].lower())
        if known and known.state == "deleting":
            raise ServiceError(409, "JobBeingDeleted", "The specified job is being deleted.")
        if known:
            raise ServiceError(409, "JobExists", "The specified job already exists.")
        _check_job(body)
        job = Job(self.world, body, changed=self.schedule, completed=self._release_auto_pool)
        self.jobs[job.id.lower()] = job
        if auto := body["poolInfo"].get("autoPoolSpecification"):
            self._make_auto_pool(job, auto)
        job.check_completion()
        return job

    def job(self, job_id: str) -> Job:
        """The job of that id.

        Raises:
            ServiceError: 404.
        """
        if job_id.lower() not in self.jobs:
            raise ServiceError(404, "JobNotFound", "The specified job does not exist.")
        return self.jobs[job_id.lower()]

    def delete_job(self, job: Job) -> None:
        """Begin to delete it, and its auto-pool with it."""
        job.delete(lambda gone: self._drop(self.jobs, gone.id))

    def schedule(self) -> None:
        """See soon which tasks can begin."""
        if not self._is_scheduling:
            self._is_scheduling = True
            self.world.timers.after(0.0, self._schedule)

    def _schedule(self) -> None:
        self._is_scheduling = False
        by_priority = sorted(self.jobs.values(), key=lambda job: -int(job.body.get("priority") or 0))
        for job in by_priority:
            pool = self.pools.get((job.pool_id or "").lower())
            if pool and pool.state == "active":
                job.schedule(pool)

    def _drop(self, things: dict[str, Pool] | dict[str, Job], key: str) -> None:
        things.pop(key.lower(), None)
        self.world.timers.clock.wake()

    def _make_auto_pool(self, job: Job, auto: Body) -> None:
        prefix = auto.get("autoPoolIdPrefix")
        pool_id = "_".join(filter(None, [prefix, str(uuid4()).upper()]))
        try:
            job.auto_pool = self.create_pool({**auto["pool"], "id": pool_id})
        except ServiceError as error:
            if error.code != "PoolQuotaReached":
                self._drop(self.jobs, job.id)
                raise
            job.scheduling_error = {
                "category": "usererror",
                "code": "AutoPoolCreationFailedWithQuotaReached",
                "message": "The pool quota for the account is reached.",
            }
        else:
            job.pool_id = pool_id

    def _release_auto_pool(self, job: Job) -> None:
        """The service itself deletes the machines that it made for a job."""
        auto = job.body["poolInfo"].get("autoPoolSpecification") or {}
        if job.auto_pool and job.auto_pool.state == "active" and not auto.get("keepAlive"):
            self.delete_pool(job.auto_pool)


def check_id(text: str) -> None:
    """Refuse what is no id: letters, digits, hyphens and underscores, 64 at most."""
    if not _ID.fullmatch(text):
        raise _mistake("id", "an id has 1 to 64 letters, digits, hyphens and underscores")


def _check_pool(body: Body) -> None:
    if body.get("enableAutoScale") or any(body.get(name) for name in _NOT_SERVED["pool"]):
        raise not_served("automatic scaling of pools")
    if body.get("applicationPackageReferences"):
        raise ServiceError(409, "InvalidApplicationPackageReferences", "The account has no application packages.")
    if not body.get("virtualMachineConfiguration"):
        raise ServiceError(
            400,
            "MissingRequiredProperty",
            "A required property was not specified in the request body.",
            values={"PropertyName": "virtualMachineConfiguration"},
        )
    if body.get("resizeTimeout"):
        check_resize_timeout(body["resizeTimeout"])
    if len(body.get("mountConfiguration") or []) > 10:
        raise _mistake("mountConfiguration", "a pool mounts ten file systems at most")
    for mount in body.get("mountConfiguration") or []:
        if len(mount) != 1:
            raise _mistake("mountConfiguration", "each entry has exactly one of the file systems")


def _check_job(body: Body) -> None:
    for name in _NOT_SERVED["job"]:
        if body.get(name):
            raise not_served(name)
    info = body["poolInfo"]
    auto = info.get("autoPoolSpecification")
    if bool(auto) == bool(info.get("poolId")):
        raise _mistake("poolInfo", "exactly one of poolId and autoPoolSpecification is given")
    if not auto:
        return
    if auto["poolLifetimeOption"].lower() != "job":
        raise _mistake(
            "poolInfo.autoPoolSpecification.poolLifetimeOption", "only a job schedule's pool outlives its job"
        )
    if not auto.get("pool"):
        raise _mistake("poolInfo.autoPoolSpecification.pool", "the pool is not described")
    if len(auto.get("autoPoolIdPrefix") or "") > _LONGEST_PREFIX:
        raise _mistake("poolInfo.autoPoolSpecification.autoPoolIdPrefix", "the prefix has 20 characters at most")


def not_served(what: str) -> ServiceError:
    """The answer to what the service can do and its stand-in cannot."""
    return ServiceError(501, "NotImplemented", f"This stand-in does not serve {what}.")


def _mistake(name: str, reason: str) -> ServiceError:
    message = "The value provided for one of the properties in the request body is invalid."
    return ServiceError(400, "InvalidPropertyValue", message, values={"PropertyName": name, "Reason": reason})
