"""Which instances a job of AWS Batch gets, and why it gets none: the rules that moto does not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cloudbench.rehearsal.aws.cloud import instance_type, instance_types
from cloudbench.rehearsal.aws.definitions import Requirements, requirements
from cloudbench.rehearsal.aws.wire import AwsError

if TYPE_CHECKING:
    from cloudbench.rehearsal.aws.environments import Environments
    from cloudbench.rehearsal.aws.hosts import Hosts

_HELD_BACK = 0.04  # of an instance's memory, by its system and the container agent

# As AWS documents them for jobs that stay RUNNABLE.
NO_CAPACITY = (
    "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot fulfill the capacity requested for instance type"
)
TOO_MUCH = (
    "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - The job resource requirement (vCPU/memory/GPU) is higher than that "
    "can be met by the CE(s) attached to the job queue."
)
TOO_LARGE = (
    "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE - CE(s) associated with the job queue cannot meet the CPU "
    "requirement of the job."
)
INVALID = "ACTION_REQUIRED - CE(s) associated with the job queue are invalid."
UNKNOWN = "UNDETERMINED - Batch job is blocked, root cause is undetermined."


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job can run: an environment of moto's and the type of each node's instance."""

    environment: Any
    types: tuple[str, ...]


class Blocked(Exception):  # noqa: N818 - it is how things are, and no fault
    """No environment of the queue takes the job now; `reason` is what the service tells, None while it only waits."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason)
        self.reason = reason


def find_place(
    queue: Any, containers: Sequence[Mapping[str, Any]], *, multinode: bool, environments: Environments, hosts: Hosts
) -> Place:
    """The first environment of the queue that can take the job now.

    Raises:
        Blocked: none does.
    """
    reasons: list[str | None] = []
    for environment in queue.environments:
        try:
            return _place(environment, containers, multinode=multinode, environments=environments, hosts=hosts)
        except Blocked as blocked:
            reasons.append(blocked.reason)
    waits = None in reasons
    raise Blocked(None if waits else reasons[0] if reasons else UNKNOWN)


def _place(
    environment: Any,
    containers: Sequence[Mapping[str, Any]],
    *,
    multinode: bool,
    environments: Environments,
    hosts: Hosts,
) -> Place:
    if environments.invalid(environment):
        raise Blocked(INVALID)
    if not environments.usable(environment):
        raise Blocked(None)
    resources = environment.compute_resources
    if multinode and resources["type"] != "EC2":
        # The service does not place such a job elsewhere, and does not say so.
        raise Blocked(UNKNOWN)
    types = tuple(_smallest(resources["instanceTypes"], container) for container in containers)
    wanted = sum(_figures(name).vcpus for name in types)
    if wanted > int(resources["maxvCpus"]):
        raise Blocked(TOO_LARGE)
    used = sum(host.vcpus for host in hosts.living() if host.id in environment_hosts(environment))
    if used + wanted > int(resources["maxvCpus"]):
        raise Blocked(None)
    for name in set(types):
        try:
            hosts.check_room(name, types.count(name))
        except AwsError as error:
            reason = f"{NO_CAPACITY} [{name}]" if error.code == "InsufficientInstanceCapacity" else UNKNOWN
            raise Blocked(reason) from error
    return Place(environment=environment, types=types)


def environment_hosts(environment: Any) -> set[str]:
    """Ids of the instances that belong to an environment."""
    return {instance.id for instance in environment.instances}


def _smallest(names: Sequence[str], container: Mapping[str, Any]) -> str:
    """The smallest type that holds the container."""
    wanted = requirements(container)
    named = container.get("instanceType")
    known = [found for name in names for found in instance_types(name)]
    fitting = [name for name in known if named in (None, name) and _holds(_figures(name), wanted)]
    if not fitting:
        raise Blocked(TOO_MUCH)
    return min(fitting, key=lambda name: (_figures(name).gpus, _figures(name).vcpus, _figures(name).memory_mib))


def _holds(has: Requirements, wanted: Requirements) -> bool:
    usable_mib = int(has.memory_mib * (1 - _HELD_BACK))
    return wanted.vcpus <= has.vcpus and wanted.memory_mib <= usable_mib and wanted.gpus <= has.gpus


def _figures(name: str) -> Requirements:
    known = instance_type(name) or {}
    gpus = known.get("GpuInfo", {}).get("Gpus", ())
    return Requirements(
        vcpus=int(known.get("VCpuInfo", {}).get("DefaultVCpus", 0)),
        memory_mib=int(known.get("MemoryInfo", {}).get("SizeInMiB", 0)),
        gpus=sum(int(gpu.get("Count", 0)) for gpu in gpus),
    )
