"""Machines that are kept for several runs, under a name that a person gives: `--pool NAME`.

A job without tasks, `pool-NAME`, owns them. Its wall clock is the lease: every run that uses the machines pushes it
out, and when nobody does any more, Azure itself ends the job and deletes the machines, with no client alive. Who uses
them stands in the job's metadata, as a name for each attempt.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloudbench.errors import CapacityError, UsageError
from cloudbench.plan import POOL_IDLE_S, RunPlan
from cloudbench.providers.azure.batch_requests import POOL, attempt_name
from cloudbench.providers.azure.batch_status import metadata_of
from cloudbench.providers.azure.share import OWNER

if TYPE_CHECKING:
    from azure.batch import BatchClient

_TRIES = 5


def take(client: BatchClient, body: Mapping[str, Any], plan: RunPlan, attempt: int) -> None:
    """Make the job that keeps the machines, or use the one that is there.

    Args:
        body: the job as it would be made, with every placeholder filled.

    Raises:
        UsageError: the pool is another owner's, or its machines are others than this run needs.
        CapacityError: the pool is being deleted, or has too few machines.
    """
    from azure.batch.models import BatchJobCreateOptions
    from azure.core.exceptions import ResourceExistsError

    try:
        client.create_job(BatchJobCreateOptions(body))
    except ResourceExistsError:
        name = str(body["id"])
        found = client.get_job(name).as_dict()
        if metadata_of(found).get(OWNER) != plan.owner:
            raise UsageError(
                f"the pool {plan.setup.pool} is not ours",
                why=f"it belongs to {metadata_of(found).get(OWNER, 'somebody else')}",
                todo="--pool with another name",
            ) from None
        if found.get("state") != "active":
            raise CapacityError(
                f"the pool {plan.setup.pool} is just being deleted", todo="submit it again in some minutes"
            ) from None
        _refuse_others(_pool_of(found), _pool_of(body), plan)
        _use(client, name, attempt_name(plan.id, attempt), plan.machines_limit_s)


def pool_id(client: BatchClient, name: str) -> str:
    """The pool that the job keeps.

    Raises:
        CapacityError: it has none.
    """
    info = client.get_job(name).as_dict().get("executionInfo") or {}
    if error := info.get("schedulingError"):
        raise CapacityError(f"{name}: Azure makes no pool", why=f"{error.get('code')}: {error.get('message')}")
    return str(info.get("poolId"))


def give_back(client: BatchClient, name: str, user: str) -> bool:
    """Take the attempt off the list of users; the last one leaves the machines `POOL_IDLE_S` for the next run."""
    from azure.core.exceptions import ResourceNotFoundError

    try:
        _use(client, name, user, None)
        return user not in metadata_of(client.get_job(name).as_dict())
    except ResourceNotFoundError:
        return True


def users(job: Mapping[str, Any]) -> list[str]:
    """The names of the attempts that use the machines of a job; none where it keeps no machines."""
    marks = metadata_of(job)
    return [name for name, value in marks.items() if value == POOL] if POOL in marks else []


def _use(client: BatchClient, name: str, user: str, lasting_s: float | None) -> None:
    """Add the attempt to the users for so long, or with None take it away; another client may do the same meanwhile."""
    from azure.batch.models import BatchJobUpdateOptions
    from azure.core import MatchConditions
    from azure.core.exceptions import HttpResponseError

    for left in reversed(range(_TRIES)):
        job = client.get_job(name)
        found = job.as_dict()
        if found.get("state") != "active" or (lasting_s is None and user not in users(found)):
            return
        marks = [item for item in found["metadata"] if item["name"] != user]
        others = len(users(found)) - (user in users(found))
        ends_s = _seconds(job.constraints.max_wall_clock_time) if job.constraints else 0.0
        age_s = (datetime.datetime.now(datetime.timezone.utc) - job.creation_time).total_seconds()
        if lasting_s is not None:
            marks.append({"name": user, "value": POOL})
            ends_s = max(ends_s, age_s + lasting_s + POOL_IDLE_S)
        elif not others:
            ends_s = age_s + POOL_IDLE_S
        update = {"metadata": marks, "constraints": {"maxWallClockTime": f"PT{ends_s:.0f}S", "maxTaskRetryCount": 0}}
        try:
            client.update_job(
                name, BatchJobUpdateOptions(update), etag=job.etag, match_condition=MatchConditions.IfNotModified
            )
        except HttpResponseError as error:
            if error.status_code != 412 or not left:  # changed by another client since it was read
                raise
        else:
            return


def _refuse_others(found: Mapping[str, Any], wanted: Mapping[str, Any], plan: RunPlan) -> None:
    for key in ("vmSize", "enableInterNodeCommunication"):
        if str(found.get(key)).lower() != str(wanted.get(key)).lower():
            raise UsageError(
                f"the pool {plan.setup.pool} has other machines than this run needs",
                why=f"its {key} is {found.get(key)}, not {wanted.get(key)}",
                todo="--pool with another name",
            )
    for key in ("targetDedicatedNodes", "targetLowPriorityNodes"):
        if (found.get(key) or 0) < (wanted.get(key) or 0):
            raise CapacityError(
                f"the pool {plan.setup.pool} has too few machines",
                why=f"its {key} is {found.get(key)}, and this run needs {wanted.get(key)}",
                todo="--pool with another name",
            )


def _pool_of(job: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = job["poolInfo"]["autoPoolSpecification"]["pool"]
    return found


def _seconds(duration: datetime.timedelta | None) -> float:
    return duration.total_seconds() if duration else 0.0
