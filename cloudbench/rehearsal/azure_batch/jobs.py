"""Jobs: their tasks, the order in which those get nodes, the auto-pool, and the ways in which a job ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cloudbench.rehearsal.azure_batch import dependencies
from cloudbench.rehearsal.azure_batch.models import without_secrets
from cloudbench.rehearsal.azure_batch.tasks import Task
from cloudbench.rehearsal.azure_batch.wire import FOREVER, Body, ServiceError, duration_s, stamp

if TYPE_CHECKING:
    from cloudbench.rehearsal.azure_batch.nodes import Node
    from cloudbench.rehearsal.azure_batch.pools import Pool
    from cloudbench.rehearsal.azure_batch.world import BatchWorld


class Job:
    """A job from its creation until it is gone.

    Args:
        body: what the request asked for, checked already.
        changed: called when its tasks may be given nodes.
        completed: called when it has ended, with all its processes.
    """

    def __init__(
        self, world: BatchWorld, body: Body, *, changed: Callable[[], None], completed: Callable[[Job], None]
    ) -> None:
        self.world = world
        self.id: str = body["id"]
        self.body = {name: value for name, value in body.items() if value is not None}
        self.tasks: dict[str, Task] = {}
        self.pool_id: str | None = self.body["poolInfo"].get("poolId")
        self.auto_pool: Pool | None = None
        self.scheduling_error: Body | None = None
        self.created_at = self.state_at = world.now
        self.state = "active"
        self._before: tuple[str, float] | None = None
        self._changed = changed
        self._completed = completed
        self._execution: Body = {"startTime": world.stamp()}
        self._gone: Callable[[Job], None] | None = None
        self._delay_is_over = False
        self.touch()
        self._limit_wall_clock()

    def touch(self) -> None:
        """Be a new version, for those who compare ETags."""
        self.etag = self.world.etag()
        self.modified_at = self.world.now

    @property
    def url(self) -> str:
        """Its address at the service."""
        return f"{self.world.url}/jobs/{self.id}"

    @property
    def is_ending(self) -> bool:
        """Whether nothing of it will run again."""
        return self.state in ("terminating", "completed", "deleting")

    def update(self, changes: Body) -> None:
        """Take other values for what may change.

        Raises:
            ServiceError: 409, where it ends or has ended.
        """
        self.must_take_changes()
        self.body |= {name: value for name, value in changes.items() if value is not None}
        self.touch()
        if "constraints" in changes:
            self._limit_wall_clock()
        self.check_completion()

    def must_take_changes(self) -> None:
        """Refuse what cannot be asked of a job that ends or has ended."""
        if self.state == "deleting":
            raise ServiceError(409, "JobBeingDeleted", "The specified job is being deleted.")
        if self.state == "terminating":
            raise ServiceError(409, "JobBeingTerminated", "The specified job is being terminated.")
        if self.state == "completed":
            raise ServiceError(409, "JobCompleted", "The specified job is already in a completed state.")

    def add(self, body: Body) -> Task:
        """Take a task in.

        Raises:
            ServiceError: 409 where there is one of that id, or the job ends; 400 for dependencies without leave.
        """
        self.must_take_changes()
        if body["id"].lower() in self.tasks:
            raise ServiceError(409, "TaskExists", "The specified task already exists.")
        if body.get("dependsOn") and not self.body.get("usesTaskDependencies"):
            raise ServiceError(400, "TaskDependenciesNotSpecifiedOnJob", "The job does not use task dependencies.")
        task = self.tasks[body["id"].lower()] = Task(self, body)
        self._changed()
        return task

    def task(self, task_id: str) -> Task:
        """The task of that id.

        Raises:
            ServiceError: 404.
        """
        if task_id.lower() not in self.tasks:
            raise ServiceError(404, "TaskNotFound", "The specified task does not exist.")
        return self.tasks[task_id.lower()]

    def terminate(self, reason: str) -> None:
        """End all its tasks, and complete when they have ended.

        Raises:
            ServiceError: 409, where it ends or has ended.
        """
        self.must_take_changes()
        self._execution["terminateReason"] = reason
        self._enter("terminating")
        for task in list(self.tasks.values()):
            task.end()
        self._complete()

    def disable(self, how: str) -> None:
        """Begin no task any more; those that run are requeued, ended or waited for."""
        self.must_take_changes()
        self._enter("disabling")
        for task in list(self.tasks.values()):
            if how == "requeue":
                task.requeue()
            elif how == "terminate" and task.state != "active":
                task.end()
        self._settle_disabling()

    def enable(self) -> None:
        """Begin tasks again."""
        self.must_take_changes()
        self._enter("active")
        self._changed()

    def delete(self, gone: Callable[[Job], None]) -> None:
        """Go away with all its tasks, later; `gone` is called then."""
        if self.state == "deleting":
            raise ServiceError(409, "JobBeingDeleted", "The specified job is being deleted.")
        was_completed = self.state == "completed"
        self._enter("deleting")
        self._gone = gone
        for task in list(self.tasks.values()):
            task.end()
        if not was_completed:
            self._completed(self)
        self.world.timers.after(self.world.scenario.delete_s, self._may_vanish)

    def task_changed(self, task: Task) -> None:
        """One of its tasks has ended, or will run again."""
        if task.state == "completed" and task.id.lower() in self.tasks:
            dependencies.act_on_end(self, task)
        self._settle_disabling()
        self._complete()
        self._vanish()
        self.check_completion()
        self._changed()

    def check_completion(self) -> None:
        """Complete where all tasks are done and that is meant to end the job; a job without tasks has none to do."""
        mode = (self.body.get("onAllTasksComplete") or "noaction").lower()
        done = all(task.state == "completed" for task in self.tasks.values())
        if self.state == "active" and mode == "terminatejob" and done:
            self.terminate("AllTasksCompleted")

    def counts(self) -> Body:
        """How many tasks, and task slots, are in which state."""
        body: Body = {}
        for name, weighed in (("taskCounts", False), ("taskSlotCounts", True)):
            weights = [(task, task.slots if weighed else 1) for task in self.tasks.values()]
            states = {
                state: sum(weight for task, weight in weights if task.state == state)
                for state in ("active", "running", "completed")
            }
            succeeded = sum(weight for task, weight in weights if task.state == "completed" and task.succeeded)
            body[name] = {**states, "succeeded": succeeded, "failed": states["completed"] - succeeded}
        return body

    def described(self) -> Body:
        """The job as the service describes it."""
        execution = dict(self._execution)
        if self.pool_id:
            execution["poolId"] = self.pool_id
        if self.scheduling_error:
            execution["schedulingError"] = self.scheduling_error
        body: Body = {
            "priority": 0,
            "maxParallelTasks": -1,
            "allowTaskPreemption": False,
            "usesTaskDependencies": False,
            "onAllTasksComplete": "noaction",
            "onTaskFailure": "noaction",
            **without_secrets(self.body),
            "constraints": {
                "maxWallClockTime": FOREVER,
                "maxTaskRetryCount": 0,
                **(self.body.get("constraints") or {}),
            },
            "url": self.url,
            "eTag": self.etag,
            "lastModified": stamp(self.modified_at),
            "creationTime": stamp(self.created_at),
            "state": self.state,
            "stateTransitionTime": stamp(self.state_at),
            "executionInfo": execution,
        }
        if self._before:
            body |= {"previousState": self._before[0], "previousStateTransitionTime": stamp(self._before[1])}
        return body

    def schedule(self, pool: Pool) -> None:
        """Give nodes of its pool to its tasks, in the order in which they came."""
        if self.state != "active":
            return
        limit = self.body.get("maxParallelTasks", -1)
        for task in self.tasks.values():
            running = sum(each.state == "running" for each in self.tasks.values())
            if task.state != "active" or (0 < limit <= running) or not dependencies.are_met(task):
                continue
            nodes = _nodes_for(task, pool)
            if nodes:
                task.begin(nodes)

    def _enter(self, state: str) -> None:
        self._before = (self.state, self.state_at)
        self.state, self.state_at = state, self.world.now
        self.touch()

    def _limit_wall_clock(self) -> None:
        """The limit counts from the job's creation: the time in which its nodes are found is part of it."""
        limit = (self.body.get("constraints") or {}).get("maxWallClockTime")
        if not limit:
            return
        passed_s = self.world.now - self.created_at

        def expire() -> None:
            current = (self.body.get("constraints") or {}).get("maxWallClockTime")
            if current == limit and not self.is_ending:
                self.terminate("MaxWallClockTimeExpiry")

        self.world.timers.after(max(0.0, duration_s(limit) - passed_s), expire)

    def _settle_disabling(self) -> None:
        if self.state == "disabling" and not any(task.run for task in self.tasks.values()):
            self._enter("disabled")

    def _complete(self) -> None:
        if self.state == "terminating" and all(task.state == "completed" for task in self.tasks.values()):
            self._execution["endTime"] = self.world.stamp()
            self._enter("completed")
            self._completed(self)

    def _may_vanish(self) -> None:
        self._delay_is_over = True
        self._vanish()

    def _vanish(self) -> None:
        if self._gone is not None and self._delay_is_over and not any(task.run for task in self.tasks.values()):
            self._gone(self)


def _nodes_for(task: Task, pool: Pool) -> list[Node]:
    """Nodes on which the task can begin now; none where it must wait, be it for ever."""
    wanted = (task.body.get("affinityInfo") or {}).get("affinityId")
    free = [node for node in pool.nodes if node.slots_free >= task.slots]
    if task.instances is None:
        # Spread: the emptiest first; a node that the task asks for is a wish.
        free.sort(key=lambda node: (f"TVM:{node.id}" != wanted, -node.slots_free))
        return free[:1]
    # The service says nothing of a task that these pools can never run: it waits.
    if not pool.runs_several_nodes:
        return []
    idle = [node for node in free if not node.runs]
    return idle[: task.instances] if len(idle) >= task.instances else []
