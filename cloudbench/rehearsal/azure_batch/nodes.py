"""One compute node: its states, its start task, what it is asked to mount, and what runs on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from cloudbench.rehearsal.azure_batch import folders
from cloudbench.rehearsal.azure_batch.models import without_secrets
from cloudbench.rehearsal.azure_batch.task_run import TASK_ENDED
from cloudbench.rehearsal.azure_batch.wire import Body, name_values, stamp

if TYPE_CHECKING:
    from cloudbench.rehearsal.azure_batch.pools import Pool
    from cloudbench.rehearsal.azure_batch.task_run import TaskRun
    from cloudbench.rehearsal.machines import Machine

WORKS = ("idle", "running")


class Node:
    """A node of a pool, from its allocation on; its machine is there from `starting` to the end."""

    def __init__(self, pool: Pool, *, dedicated: bool, unusable: bool) -> None:
        self.pool = pool
        self.world = pool.world
        self.id = f"tvmps_{uuid4().hex}_{'d' if dedicated else 'p'}"
        self.dedicated = dedicated
        self.scheduling = "enabled"
        self.machine: Machine | None = None
        self.runs: list[TaskRun] = []
        self.tasks_run = 0
        self.tasks_succeeded = 0
        self.recent: list[Body] = []
        self.errors: list[Body] = []
        self.start_task_info: Body | None = None
        self._unusable = unusable
        self.leaves = False  # it is gone, or will be when nothing runs here any more
        self._left = False
        self._allocated_at = self._booted_at = self.world.now
        self.enter("creating")
        self.world.timers.after(self.world.scenario.boot_s, self._boot)

    def enter(self, state: str) -> None:
        """Be in that state from this moment on."""
        self.state = state
        self.state_at = self.world.now

    @property
    def root(self) -> Path:
        """Its disk, as far as Batch uses it.

        Raises:
            LookupError: the node has no machine yet, or no more.
        """
        if self.machine is None:
            raise LookupError(f"node {self.id} has no machine")
        return self.machine.folder / folders.ROOT

    @property
    def slots_free(self) -> int:
        """How many task slots nothing runs in; 0 where nothing may begin here."""
        if self.state not in WORKS or self.scheduling != "enabled":
            return 0
        return self.pool.slots - sum(run.slots for run in self.runs)

    def begin(self, run: TaskRun) -> None:
        """Take a task's run in."""
        self.runs.append(run)
        self.enter("running")

    def finish(self, run: TaskRun, *, succeeded: bool) -> None:
        """A task's run has ended here, with all its processes."""
        self.runs.remove(run)
        self.tasks_run += 1
        self.tasks_succeeded += succeeded
        if self.state == "running" and not self.runs:
            self.enter("idle")
        if self.leaves and not self.runs:
            self.leave()
        self._forget()

    def fail(self, code: str, message: str, **details: str) -> None:
        """Become unusable, for ever."""
        self.errors.append({"code": code, "message": message, "errorDetails": name_values(details)})
        self.enter("unusable")

    def clear(self, how: str) -> None:
        """End what runs here, for good where `how` is `terminate`, to run it again where it is `requeue`."""
        for run in self.runs:
            if how == "terminate":
                run.stop(*TASK_ENDED)
            elif how == "requeue":
                run.cut_off()

    def leave(self, how: str = "requeue") -> None:
        """Give the machine back, once what runs here has ended: by itself where `how` is `taskcompletion`."""
        if self.state == "leavingpool":
            return
        self.leaves = True
        self.clear(how)
        if self.runs and how not in ("terminate", "requeue"):
            self.scheduling = "disabled"
            return
        self.enter("leavingpool")
        self._let_go()
        self.world.timers.after(self.world.scenario.leave_s, self._has_left)

    def preempt(self) -> None:
        """Lose the machine to the cloud's other customers; a new one comes where the scenario says so."""
        if self.state in ("preempted", "leavingpool"):
            return
        self.enter("preempted")
        self._let_go()
        if self.world.scenario.capacity_returns_s is not None:
            self.world.timers.after(self.world.scenario.capacity_returns_s, self._come_back)

    def reboot(self, how: str) -> None:
        """Start anew; what runs here is ended for good where `how` is `terminate`, else it runs again."""
        self.clear(how)
        self.enter("rebooting")
        self._let_go()
        self.world.timers.after(self.world.scenario.boot_s, self._boot)

    def body(self) -> Body:
        """The node as the service describes it."""
        body: Body = {
            "id": self.id,
            "url": f"{self.world.url}/pools/{self.pool.id}/nodes/{self.id}",
            "state": self.state,
            "schedulingState": self.scheduling,
            "stateTransitionTime": stamp(self.state_at),
            "lastBootTime": stamp(self._booted_at),
            "allocationTime": stamp(self._allocated_at),
            "ipAddress": self.machine.address if self.machine else "0.0.0.0",  # noqa: S104 - none yet
            "ipv6Address": "",
            "affinityId": f"TVM:{self.id}",
            "vmSize": self.pool.body["vmSize"],
            "totalTasksRun": self.tasks_run,
            "totalTasksSucceeded": self.tasks_succeeded,
            "runningTasksCount": len(self.runs),
            "runningTaskSlotsCount": sum(run.slots for run in self.runs),
            "recentTasks": self.recent[-10:],
            "isDedicated": self.dedicated,
            "endpointConfiguration": {"inboundEndpoints": []},
            "nodeAgentInfo": {"version": "1.11.11", "lastUpdateTime": stamp(self._allocated_at)},
            "virtualMachineInfo": {"imageReference": self.pool.image},
        }
        if self.pool.start_task:
            body["startTask"] = without_secrets(self.pool.start_task)
        if self.start_task_info:
            body["startTaskInfo"] = self.start_task_info
        if self.errors:
            body["errors"] = self.errors
        return body

    def _has_left(self) -> None:
        self._left = True
        self._forget()

    def _forget(self) -> None:
        if self._left and not self.runs:
            self.pool.forget(self)

    def _let_go(self) -> None:
        for run in self.runs:
            run.cut_off()
        if self.machine is not None:
            self.world.end(self.machine)
            self.machine = None

    def _come_back(self) -> None:
        if self.state == "preempted":
            self._allocated_at = self.world.now
            self.enter("creating")
            self.world.timers.after(self.world.scenario.boot_s, self._boot)

    def _boot(self) -> None:
        if self.state not in ("creating", "rebooting"):
            return
        self._booted_at = self.world.now
        self.enter("starting")
        self.world.timers.after(self.world.scenario.start_s, self._start)

    def _start(self) -> None:
        if self.state != "starting":
            return
        if self._unusable:
            self.fail(self.world.scenario.unusable_code, self.world.scenario.unusable_message)
            return
        # A machine's name is not used again: a reboot ends the one before in its own time.
        self.machine = machine = self.world.machines.start(f"{self.id[:20]}-{uuid4().hex[:6]}")
        folders.make(self.root)
        self.world.prefetched += [(self.id, image) for image in self.pool.images_to_prefetch]
        if self._mount(machine) and self.pool.start_task:
            self._run_start_task(machine, self.pool.start_task)
        elif self.state == "starting":
            self.enter("idle")
            self.pool.node_is_ready()

    def _mount(self, machine: Machine) -> bool:
        """Whether all that the pool mounts is mounted."""
        for mount in self.pool.body.get("mountConfiguration", []):
            (configuration,) = mount.values()
            at = configuration.get("relativeMountPath", "")
            try:
                machine.mount(self.world.shares(mount), self.root / folders.MOUNTS / at)
            except (OSError, LookupError, ValueError) as error:
                what = "An error was encountered while configuring specified mount(s)"
                self.fail("MountConfigurationError", what, Message=str(error), MountConfigurationPath=at)
                return False
        return True

    def _run_start_task(self, machine: Machine, task: Body) -> None:
        code = self.world.scenario.start_task_exit_code
        waits = task.get("waitForSuccess", True)
        self.start_task_info = {"state": "running", "startTime": self.world.stamp(), "retryCount": 0}
        self.enter("waitingforstarttask" if waits else "idle")
        if not waits:
            self.pool.node_is_ready()
        if code is not None:
            self._start_task_ended(machine, code, waits=waits)
            return
        environment = folders.environment(self)

        def run() -> None:
            ended = folders.run_start_task(machine, task, environment, self.world)
            self.world.happens(lambda: self._start_task_ended(machine, ended, waits=waits))

        self.world.background(run)

    def _start_task_ended(self, machine: Machine, code: int, *, waits: bool) -> None:
        if self.machine is not machine or self.start_task_info is None:
            return
        self.start_task_info |= {
            "state": "completed",
            "endTime": self.world.stamp(),
            "exitCode": code,
            "result": "failure" if code else "success",
        }
        if code:
            self.start_task_info["failureInfo"] = {
                "category": "usererror",
                "code": "FailureExitCode",
                "message": "The task exited with an exit code representing a failure",
                "details": name_values({"Message": f"The task exited with exit code {code}"}),
            }
        if self.state == "waitingforstarttask":
            self.enter("starttaskfailed" if code and waits else "idle")
            self.pool.node_is_ready()
