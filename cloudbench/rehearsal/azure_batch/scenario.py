"""How a rehearsal goes: how long the service takes, and what fails on purpose.

A scenario is a name of `SCENARIOS` or a YAML file with the fields of `Scenario`.
"""

from __future__ import annotations

import msgspec

from cloudbench.rehearsal.scenarios import choose_scenario


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Delays of the service, and its failures; without any of them all goes well.

    Args:
        allocation_s: from a resize's begin until its nodes are there.
        boot_s: a node's time in `creating`.
        start_s: a node's time in `starting`.
        leave_s: a node's time in `leavingpool`.
        delete_s: from the request to delete a pool or a job until it is gone.
        allocation_error: the code that a resize ends with; nodes granted before it: `nodes_granted`.
        nodes_granted: how many nodes of a pool can be had; None: all. The rest times out, where no error is named.
        resize_timeout_s: when a resize that times out does so; None: as long as the pool says, a quarter of an hour.
        stale_resize_error: a code that stays on a pool which has all its nodes, from a try that failed before.
        pool_quota_reached: no pool can be made; a job with an auto-pool carries a scheduling error.
        preempt_after_s: low-priority nodes are taken back this long after a task has begun to run on them.
        preempted_node: which node of the task, counted as the task counts them; negative: from the last.
        preemptions: how many tasks lose a node like that.
        capacity_returns_s: when a preempted node is replaced; None: never.
        start_task_exit_code: what every start task ends with, instead of running; only pools that have one fail by it.
        unusable_nodes: how many nodes of every pool become unusable instead of idle.
        unusable_code: the error that such a node carries, with its `unusable_message`.
        throttle_every: every so-manieth request is answered by 429.
        retry_after_s: what such an answer asks for.
        fail_after_success: this many requests that make something are carried out, and answered by 503.
        share_outage_after_s: the share stops answering this long after the rehearsal's begin; None: never.
        share_outage_s: for how long.
    """

    allocation_s: float = 3.0
    boot_s: float = 1.0
    start_s: float = 1.0
    leave_s: float = 1.0
    delete_s: float = 2.0
    allocation_error: str | None = None
    nodes_granted: int | None = None
    resize_timeout_s: float | None = None
    stale_resize_error: str | None = None
    pool_quota_reached: bool = False
    preempt_after_s: float | None = None
    preempted_node: int = -1
    preemptions: int = 1
    capacity_returns_s: float | None = None
    start_task_exit_code: int | None = None
    unusable_nodes: int = 0
    unusable_code: str = "NodeUnusable"
    unusable_message: str = "The node cannot be used, as this rehearsal's scenario says"
    throttle_every: int | None = None
    retry_after_s: int = 1
    fail_after_success: int = 0
    share_outage_after_s: float | None = None
    share_outage_s: float = 60.0


SCENARIOS = {
    "calm": Scenario(),
    "quota": Scenario(allocation_error="AccountCoreQuotaReached", nodes_granted=0),
    "spot-quota": Scenario(allocation_error="AccountSpotCoreQuotaReached", nodes_granted=0),
    "pool-quota": Scenario(pool_quota_reached=True),
    "unsupported-size": Scenario(allocation_error="UnsupportedVMSize", nodes_granted=0),
    "partial-allocation": Scenario(allocation_error="AllocationFailed", nodes_granted=1),
    "allocation-timeout": Scenario(allocation_error="AllocationTimedOut", nodes_granted=0, resize_timeout_s=10.0),
    "stale-resize-error": Scenario(stale_resize_error="AllocationTimedOut"),
    "preemption": Scenario(preempt_after_s=5.0),
    "start-task-failure": Scenario(start_task_exit_code=1),
    "unusable-node": Scenario(unusable_nodes=1),
    "image-pull-failure": Scenario(
        unusable_nodes=1,
        unusable_code="ContainerInvalidImage",
        unusable_message="One of the container images cannot be pulled: there is no matching manifest in the registry",
    ),
    "throttling": Scenario(throttle_every=3),
    "503-after-success": Scenario(fail_after_success=1),
    "slow-deletes": Scenario(delete_s=120.0),
    "share-outage": Scenario(share_outage_after_s=5.0),
}


def load_scenario(name_or_path: str) -> Scenario:
    """The scenario of that name, or the one in that file; raises as `choose_scenario` does."""
    return choose_scenario(name_or_path, SCENARIOS)
