"""The operations on jobs and their tasks."""

from __future__ import annotations

from cloudbench.rehearsal.azure_batch import files, folders
from cloudbench.rehearsal.azure_batch.calls import Call
from cloudbench.rehearsal.azure_batch.jobs import Job
from cloudbench.rehearsal.azure_batch.query import listing, select
from cloudbench.rehearsal.azure_batch.service import check_id
from cloudbench.rehearsal.azure_batch.tasks import Task
from cloudbench.rehearsal.azure_batch.wire import Body, ServiceError, stamp
from cloudbench.rehearsal.server import Response

_JOB_FIELDS = {"id", "state", "stateTransitionTime", "creationTime", "lastModified", "executionInfo/poolId"}
_TASK_FIELDS = {"id", "state", "stateTransitionTime", "creationTime", "lastModified", "executionInfo/exitCode"}
_CHANGEABLE = {
    *("priority", "allowTaskPreemption", "maxParallelTasks", "constraints", "poolInfo", "onAllTasksComplete"),
    *("metadata", "networkConfiguration"),
}
_MOST_TASKS = 100


def create(call: Call) -> Response:
    """POST /jobs."""
    job = call.service.create_job(call.body("BatchJobCreateOptions"))
    return call.answer(201, thing=job, location=job.url)


def list_all(call: Call) -> Response:
    """GET /jobs."""
    items = [job.described() for job in call.service.jobs.values()]
    body = listing(items, call.request.query, url=call.url, model="BatchJob", key="id", fields=_JOB_FIELDS)
    return call.answer(200, body, metadata="jobs")


def get(call: Call) -> Response:
    """GET /jobs/ID."""
    job = call.service.job(call.ids["job"])
    call.check_conditions(job.etag, job.modified_at)
    return call.answer(
        200, select(job.described(), call.request.query, "BatchJob"), metadata="jobs/@Element", thing=job
    )


def patch(call: Call) -> Response:
    """PATCH /jobs/ID: what is named takes its new value."""
    job = _job_to_change(call)
    changes = call.body("BatchJobUpdateOptions")
    _check_changes(job, changes)
    job.update(changes)
    return call.answer(200, thing=job, location=job.url)


def put(call: Call) -> Response:
    """PUT /jobs/ID: all that may change takes its new value, or its default."""
    job = _job_to_change(call)
    changes = call.body("BatchJob")
    _check_changes(job, changes)
    for name in _CHANGEABLE - changes.keys() - {"onAllTasksComplete"}:
        job.body.pop(name, None)
    job.update(changes)
    return call.answer(200, thing=job, location=job.url)


def delete(call: Call) -> Response:
    """DELETE /jobs/ID: answered at once, done later."""
    job = call.service.job(call.ids["job"])
    call.check_conditions(job.etag, job.modified_at)
    call.service.delete_job(job)
    return call.answer(202)


def terminate(call: Call) -> Response:
    """POST /jobs/ID/terminate."""
    job = _job_to_change(call)
    job.terminate(call.optional_body("BatchJobTerminateOptions").get("terminateReason") or "UserTerminate")
    return call.answer(202, thing=job, location=job.url)


def disable(call: Call) -> Response:
    """POST /jobs/ID/disable."""
    job = _job_to_change(call)
    job.disable(call.body("BatchJobDisableOptions")["disableTasks"].lower())
    return call.answer(202, thing=job, location=job.url)


def enable(call: Call) -> Response:
    """POST /jobs/ID/enable."""
    job = _job_to_change(call)
    job.enable()
    return call.answer(202, thing=job, location=job.url)


def task_counts(call: Call) -> Response:
    """GET /jobs/ID/taskcounts."""
    return call.answer(200, call.service.job(call.ids["job"]).counts(), metadata="taskcounts/@Element")


def create_task(call: Call) -> Response:
    """POST /jobs/ID/tasks."""
    job = call.service.job(call.ids["job"])
    task = _add(job, call.body("BatchTaskCreateOptions"))
    return call.answer(201, thing=task, location=f"{job.url}/tasks/{task.id}")


def create_tasks(call: Call) -> Response:
    """POST /jobs/ID/addtaskcollection: each task is taken or refused by itself."""
    job = call.service.job(call.ids["job"])
    bodies = call.body("BatchTaskGroup")["value"]
    if len(bodies) > _MOST_TASKS:
        raise ServiceError(413, "RequestBodyTooLarge", "A request adds a hundred tasks at most.")
    return call.answer(200, {"value": [_added(job, body) for body in bodies]}, metadata="taskaddresult")


def list_tasks(call: Call) -> Response:
    """GET /jobs/ID/tasks."""
    items = [task.described() for task in call.service.job(call.ids["job"]).tasks.values()]
    body = listing(items, call.request.query, url=call.url, model="BatchTask", key="id", fields=_TASK_FIELDS)
    return call.answer(200, body, metadata="tasks")


def get_task(call: Call) -> Response:
    """GET /jobs/ID/tasks/ID."""
    task = _task(call)
    call.check_conditions(task.etag, task.modified_at)
    body = select(task.described(), call.request.query, "BatchTask")
    return call.answer(200, body, metadata="tasks/@Element", thing=task)


def put_task(call: Call) -> Response:
    """PUT /jobs/ID/tasks/ID: new constraints."""
    task = _task(call)
    call.check_conditions(task.etag, task.modified_at)
    if task.state == "completed":
        raise ServiceError(409, "TaskCompleted", "The specified task is already in a completed state.")
    task.body["constraints"] = call.body("BatchTask").get("constraints") or {}
    task.touch()
    return call.answer(200, thing=task, location=call.url)


def delete_task(call: Call) -> Response:
    """DELETE /jobs/ID/tasks/ID."""
    task = _task(call)
    call.check_conditions(task.etag, task.modified_at)
    task.end()
    task.job.tasks.pop(task.id.lower(), None)
    return call.answer(200)


def terminate_task(call: Call) -> Response:
    """POST /jobs/ID/tasks/ID/terminate."""
    task = _task(call)
    call.check_conditions(task.etag, task.modified_at)
    task.terminate()
    return call.answer(204, thing=task, location=call.url)


def reactivate_task(call: Call) -> Response:
    """POST /jobs/ID/tasks/ID/reactivate."""
    task = _task(call)
    call.check_conditions(task.etag, task.modified_at)
    task.job.must_take_changes()
    task.reactivate()
    return call.answer(204, thing=task, location=call.url)


def subtasks(call: Call) -> Response:
    """GET /jobs/ID/tasks/ID/subtasksinfo."""
    return call.answer(200, select({"value": _task(call).subtasks()}, {}, "BatchSubtask"), metadata="subtasks")


def list_task_files(call: Call) -> Response:
    """GET /jobs/ID/tasks/ID/files: those of a multi-instance task's primary."""
    return files.list_below(call, _root(call), lambda name: f"{call.url}/{name}")


def task_file(call: Call) -> Response:
    """GET and HEAD of one file of a task."""
    return files.read(call, _root(call))


def delete_task_file(call: Call) -> Response:
    """DELETE of one file of a task."""
    return files.delete(call, _root(call))


def _job_to_change(call: Call) -> Job:
    job = call.service.job(call.ids["job"])
    job.must_take_changes()
    call.check_conditions(job.etag, job.modified_at)
    return job


def _task(call: Call) -> Task:
    return call.service.job(call.ids["job"]).task(call.ids["task"])


def _root(call: Call) -> files.Root:
    """The task's folder on its node, as long as it has one."""
    task = _task(call)
    if task.last_node is None:
        raise ServiceError(409, "TaskFilesUnavailable", "The task has not run on a node.")
    node = task.last_node
    if node.machine is None or node not in node.pool.nodes:
        raise ServiceError(404, "NodeNotFound", "The specified node does not exist.")
    folder = node.root / folders.WORK_ITEMS / task.job.id / "job-1" / task.id
    if not folder.exists():
        raise ServiceError(409, "TaskFilesUnavailable", "The files of the specified task are unavailable.")
    return files.Root(folder)


def _check_changes(job: Job, changes: Body) -> None:
    modes = [(body.get("onAllTasksComplete") or "noaction").lower() for body in (job.body, {**job.body, **changes})]
    if modes == ["terminatejob", "noaction"]:
        raise ServiceError(400, "InvalidPropertyValue", "The automatic end of a job cannot be turned off again.")
    if changes.get("poolInfo") not in (None, job.body["poolInfo"]) and job.state != "disabled":
        raise ServiceError(409, "JobNotDisabled", "A job's pool can only be changed while the job is disabled.")


def _add(job: Job, body: Body) -> Task:
    check_id(body["id"])
    if body.get("applicationPackageReferences"):
        raise ServiceError(409, "InvalidApplicationPackageReferences", "The account has no application packages.")
    return job.add(body)


def _added(job: Job, body: Body) -> Body:
    try:
        task = _add(job, body)
    except ServiceError as error:
        return {"status": "clienterror", "taskId": body["id"], "error": error.body()}
    return {
        "status": "success",
        "taskId": task.id,
        "eTag": task.etag,
        "lastModified": stamp(task.modified_at),
        "location": f"{job.url}/tasks/{task.id}",
    }
