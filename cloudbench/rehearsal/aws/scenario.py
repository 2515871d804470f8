"""How a rehearsal of AWS goes: how long the services take, and what fails on purpose.

A scenario is a name of `SCENARIOS` or a YAML file with the fields of `Scenario`.
"""

from __future__ import annotations

import msgspec

from cloudbench.rehearsal.scenarios import choose_scenario


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Delays of the services, and their failures; without any of them all goes well.

    Args:
        change_s: a queue's or compute environment's time in CREATING and UPDATING.
        delete_s: their time in DELETING, and the least that an instance is in `shutting-down`.
        schedule_s: from a job's submission until it is RUNNABLE.
        boot_s: from an instance's launch until it runs.
        pull_s: a job's time in STARTING.
        idle_s: how long an instance of AWS Batch stays after its job.
        explain_s: how long a job is RUNNABLE until the service says why.
        no_capacity: no instance can be had, for want of capacity.
        vcpu_limit: the account's quota; EC2 refuses more, jobs of AWS Batch wait for ever.
        environment_error: the `statusReason` of an environment that becomes INVALID.
        interrupt_after_s: Spot instances are taken back this long after they run.
        interruptions: how many are.
        interrupted_node: which instance of a job or of one request is; negative: counted from the last.
        throttle_every: every so-manieth request of a client is refused as one too many.
        fail_after_success: this many requests that make something are carried out, and answered as a failure.
        fail_deletes: this many requests that take something away fail.
        stale_reads_s: how long what was made is not yet seen by those who ask for it.
    """

    change_s: float = 1.0
    delete_s: float = 1.0
    schedule_s: float = 1.0
    boot_s: float = 3.0
    pull_s: float = 1.0
    idle_s: float = 3.0
    explain_s: float = 5.0
    no_capacity: bool = False
    vcpu_limit: int | None = None
    environment_error: str | None = None
    interrupt_after_s: float | None = None
    interruptions: int = 1
    interrupted_node: int = -1
    throttle_every: int | None = None
    fail_after_success: int = 0
    fail_deletes: int = 0
    stale_reads_s: float = 0.0


SCENARIOS = {
    "calm": Scenario(),
    "no-capacity": Scenario(no_capacity=True),
    "quota": Scenario(vcpu_limit=0),
    "invalid-environment": Scenario(environment_error="CLIENT_ERROR - You are not authorized to use launch templates."),
    "preemption": Scenario(interrupt_after_s=5.0),
    "throttling": Scenario(throttle_every=3),
    "500-after-success": Scenario(fail_after_success=1),
    "slow-deletes": Scenario(delete_s=120.0),
    "failing-deletes": Scenario(fail_deletes=2),
    "stale-reads": Scenario(stale_reads_s=4.0),
}


def load_scenario(name_or_path: str) -> Scenario:
    """The scenario of that name, or the one in that file; raises as `choose_scenario` does."""
    return choose_scenario(name_or_path, SCENARIOS)
