"""What one task's end means for others and for the job: dependencies, exit conditions and job actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudbench.rehearsal.azure_batch.wire import Body

if TYPE_CHECKING:
    from cloudbench.rehearsal.azure_batch.jobs import Job
    from cloudbench.rehearsal.azure_batch.tasks import Task


def are_met(task: Task) -> bool:
    """Whether all tasks that this one waits for have ended well, or as badly as they may."""
    depends = task.body.get("dependsOn") or {}
    wanted = [str(task_id) for task_id in depends.get("taskIds") or []]
    for each in depends.get("taskIdRanges") or []:
        wanted += [str(number) for number in range(each["start"], each["end"] + 1)]
    tasks = [task.job.tasks.get(task_id.lower()) for task_id in wanted]
    return all(other is not None and _satisfies(other) for other in tasks)


def act_on_end(job: Job, task: Task) -> None:
    """Do to the job what the task's exit conditions say, where the job lets them."""
    mode = (job.body.get("onTaskFailure") or "noaction").lower()
    if mode != "performexitoptionsjobaction" or job.state != "active":
        return
    default = "none" if task.succeeded else "terminate"
    action = (exit_options(task).get("jobAction") or default).lower()
    if action == "terminate":
        job.terminate("TaskFailed")
    elif action == "disable":
        job.disable("requeue")


def exit_options(task: Task) -> Body:
    """What the task's exit conditions say of the way in which it ended."""
    conditions: Body = task.body.get("exitConditions") or {}
    code = task.exit_code
    found: Body | None = None
    if code is None and task.failure:
        found = conditions.get("preProcessingError")
    elif code == 0 and task.failure:
        found = conditions.get("fileUploadError")
    for each in conditions.get("exitCodes") or []:
        if each["code"] == code:
            found = each["exitOptions"]
    for each in conditions.get("exitCodeRanges") or []:
        if code is not None and each["start"] <= code <= each["end"]:
            found = each["exitOptions"]
    if found is None and not task.succeeded:
        found = conditions.get("default")
    return found or {}


def _satisfies(task: Task) -> bool:
    if task.state != "completed":
        return False
    action = exit_options(task).get("dependencyAction")
    return task.succeeded if action is None else str(action).lower() == "satisfy"
