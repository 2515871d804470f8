"""The jobs of AWS Batch: submitted, placed in the order they came, listed, ended.

moto alone runs a job whatever it asks for, lists jobs of every state where none is named, knows no child jobs, and
describes more jobs at a time than the service.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cloudbench.rehearsal.aws.definitions import (
    check_retries,
    check_timeout,
    node_containers,
    overridden,
    with_parameters,
)
from cloudbench.rehearsal.aws.job import Job, Order
from cloudbench.rehearsal.aws.placement import Blocked, find_place
from cloudbench.rehearsal.aws.wire import AwsError, Body, Extension, json_response
from cloudbench.rehearsal.server import Response

if TYPE_CHECKING:
    from cloudbench.rehearsal.aws.environments import Environments
    from cloudbench.rehearsal.aws.hosts import Hosts
    from cloudbench.rehearsal.aws.placement import Place
    from cloudbench.rehearsal.aws.world import AwsWorld

MOST_DESCRIBED = 100
_MOST_LISTED = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


class Jobs:
    """All jobs of the account."""

    def __init__(self, world: AwsWorld, hosts: Hosts) -> None:
        self._world = world
        self._hosts = hosts
        self._jobs: dict[str, Job] = {}
        self.environments: Environments

    def extensions(self) -> dict[str, Extension]:
        """What is answered here; moto is not asked."""
        return {
            "batch:SubmitJob": lambda call, ask: self._submit(call.parameters),
            "batch:DescribeJobs": lambda call, ask: self._describe(call.parameters),
            "batch:ListJobs": lambda call, ask: self._list(call.parameters),
            "batch:CancelJob": lambda call, ask: self._end(call.parameters, Job.cancel),
            "batch:TerminateJob": lambda call, ask: self._end(call.parameters, Job.terminate),
        }

    def abandon(self, queue_arn: str) -> None:
        """End all jobs of a queue that is deleted."""
        for job in self._jobs.values():
            if job.order.queue.arn == queue_arn:
                job.terminate("Job queue was deleted")

    def look(self) -> None:
        """Give instances to the jobs that can have them now."""
        for job in list(self._jobs.values()):
            if job.status == "PENDING":
                self._release(job)
            if job.status == "RUNNABLE" and not job.placed:
                self._try(job)

    def _submit(self, parameters: Body) -> Response:
        batch = self._world.cloud.backend("batch")
        name = str(parameters.get("jobName"))
        if not _NAME.fullmatch(name):
            raise AwsError("ClientException", f"jobName {name!r} is not valid")
        if parameters.get("arrayProperties"):
            raise AwsError("ClientException", "the stand-in has no array jobs")
        queue = batch.get_job_queue(str(parameters.get("jobQueue")))
        if queue is None or not self.environments.usable(queue):
            raise AwsError("ClientException", f"Job queue {parameters.get('jobQueue')} is not valid and enabled")
        definition = batch.get_job_definition(str(parameters.get("jobDefinition")))
        if definition is None or definition.status != "ACTIVE":
            raise AwsError("ClientException", f"Job definition {parameters.get('jobDefinition')} is not active")
        job = Job(self._world, _order(name, queue, definition, parameters), self.look)
        self._jobs[job.id] = job
        self._world.timers.after(self._world.scenario.schedule_s, lambda: self._release(job))
        return json_response({"jobArn": job.arn, "jobId": job.id, "jobName": name})

    def _release(self, job: Job) -> None:
        """Let it be placed once the jobs that it depends on have ended."""
        if job.status not in ("SUBMITTED", "PENDING"):
            return
        before = [self._jobs[item["jobId"]] for item in job.order.depends_on if item.get("jobId") in self._jobs]
        if any(other.status == "FAILED" for other in before):
            job.cancel("Dependent Job failed")
        elif all(other.ended for other in before):
            job.become_runnable()
        else:
            job.status = "PENDING"

    def _try(self, job: Job) -> None:
        try:
            place = self._find(job)
        except Blocked as blocked:
            wait = (job.runnable_since or 0) + self._world.scenario.explain_s - self._world.now
            if wait <= 0:
                self._explain(job, blocked.reason)
            elif not job.explained:
                job.explained = True
                self._world.timers.after(wait, self.look)
            return
        self._launch(job, place)

    def _explain(self, job: Job, reason: str | None) -> None:
        """Let the job tell why it waits; the queue may say how long it does so."""
        if reason == job.reason:
            return
        job.reason = reason
        for limit in self.environments.limits(job.order.queue.arn):
            if (reason or "").startswith(limit["reason"]) and limit["state"] == "RUNNABLE":
                give_up = functools.partial(_give_up, job, job.runnable_since, limit["reason"])
                self._world.timers.after(limit["maxTimeSeconds"], give_up)

    def _find(self, job: Job) -> Place:
        order = job.order
        return find_place(
            order.queue,
            order.containers,
            multinode=order.multinode,
            environments=self.environments,
            hosts=self._hosts,
        )

    def _launch(self, job: Job, place: Place) -> None:
        environment = place.environment
        hosts = self._hosts.launch(place.types, environment.compute_resources, environment.name)
        for host in hosts:
            environment.add_instance(host.instance)
        job.place(environment.name, hosts)

    def _describe(self, parameters: Body) -> Response:
        ids = parameters.get("jobs") or []
        if len(ids) > MOST_DESCRIBED:
            raise AwsError("ClientException", f"jobs has {len(ids)} items, more than {MOST_DESCRIBED}")
        found = []
        for given in ids:
            job_id, mark, index = str(given).rpartition("/")[2].partition("#")
            job = self._jobs.get(job_id)
            if job is None or job.seen_from > self._world.now:
                continue
            if not mark:
                found.append(job.describe())
            elif job.order.multinode and int(index) < len(job.order.containers):
                found.append(job.child(int(index)))
        return json_response({"jobs": found})

    def _list(self, parameters: Body) -> Response:
        if parent := parameters.get("multiNodeJobId"):
            job = self._jobs.get(parent)
            nodes = range(len(job.order.containers)) if job and job.order.multinode else range(0)
            listed = [job.child_summary(index) for index in nodes] if job else []
        else:
            listed = [job.summary() for job in self._of_queue(str(parameters.get("jobQueue")))]
        filters = parameters.get("filters") or []
        if filters:
            listed = [item for item in listed if all(_matches(item, condition) for condition in filters)]
        else:
            listed = [item for item in listed if item["status"] == (parameters.get("jobStatus") or "RUNNING")]
        begin = int(base64.b64decode(parameters["nextToken"])) if parameters.get("nextToken") else 0
        end = begin + min(int(parameters.get("maxResults") or _MOST_LISTED), _MOST_LISTED)
        more = {"nextToken": base64.b64encode(str(end).encode()).decode()} if end < len(listed) else {}
        return json_response({"jobSummaryList": listed[begin:end], **more})

    def _of_queue(self, named: str) -> list[Job]:
        queue = self._world.cloud.backend("batch").get_job_queue(named)
        if queue is None:
            raise AwsError("ClientException", f"Job queue {named} does not exist")
        jobs = [job for job in self._jobs.values() if job.order.queue.arn == queue.arn]
        return [job for job in jobs if job.seen_from <= self._world.now]

    def _end(self, parameters: Body, how: Callable[[Job, str], None]) -> Response:
        job = self._jobs.get(str(parameters.get("jobId")).partition("#")[0])
        if job is not None:
            how(job, str(parameters.get("reason")))
        return json_response({})


def _give_up(job: Job, since: float | None, reason: str) -> None:
    """Cancel a job that has waited since then for one and the same reason."""
    if job.runnable_since == since and (job.reason or "").startswith(reason):
        job.cancel(f"Canceled by JobStateTimeLimit action due to reason: {reason}")


def _order(name: str, queue: Any, definition: Any, parameters: Body) -> Order:
    """What the submission and its definition say together."""
    timeout = parameters.get("timeout") or definition.timeout or {}
    retry = parameters.get("retryStrategy") or definition.retry_strategy or {}
    check_timeout(timeout)
    check_retries(retry)
    multinode = definition.type == "multinode"
    if multinode:
        containers = node_containers(definition.node_properties, parameters.get("nodeOverrides"))
    else:
        changes = parameters.get("containerOverrides") or {}
        containers = [overridden(definition.container_properties, changes)]
    values = {**(definition.parameters or {}), **(parameters.get("parameters") or {})}
    return Order(
        name=name,
        queue=queue,
        definition=definition,
        containers=tuple(with_parameters(container, values) for container in containers),
        multinode=multinode,
        main=int((definition.node_properties or {}).get("mainNode") or 0),
        retry=retry,
        timeout_s=timeout.get("attemptDurationSeconds"),
        tags=parameters.get("tags") or {},
        parameters=values,
        depends_on=tuple(parameters.get("dependsOn") or ()),
    )


def _matches(item: Body, condition: Body) -> bool:
    name, values = condition["name"], condition["values"]
    if name in ("BEFORE_CREATED_AT", "AFTER_CREATED_AT"):
        at = int(values[0])
        return bool(item["createdAt"] < at if name.startswith("BEFORE") else item["createdAt"] > at)
    text = item["jobName"] if name == "JOB_NAME" else item["jobDefinition"].rpartition("/")[2]
    patterns = [re.escape(value.rstrip("*")) + (".*" if value.endswith("*") else "") for value in values]
    return any(re.fullmatch(pattern, text, re.IGNORECASE) for pattern in patterns)
