"""The exact requests that put one attempt of a run on AWS Batch. Pure: a plan and an account give parameters of boto3.

What must not be told, or is only known when it is sent, stands as a `(…)` placeholder in a body; `fill` puts the
values in. Where machines come from is the same for runs that want the same: it is named by a hash of what it contains.
"""

from __future__ import annotations

import base64
import hashlib
import math
from typing import Any

import msgspec

from cloudbench.catalog import Size
from cloudbench.errors import SpecError
from cloudbench.plan import RunPlan, node_job
from cloudbench.providers.aws.account import AwsAccount
from cloudbench.providers.aws.bootstrap import FILES_URL, container_program
from cloudbench.providers.aws.files import ADDRESSES, GIVEN, OWNER
from cloudbench.providers.aws.requests import (
    END_S,
    FILES_ADDRESS,
    SECURITY_GROUPS,
    SUBNETS,
    attempt_name,
    marks,
    refuse_pool,
    size_of,
    tag_specifications,
)
from cloudbench.providers.base import Request, Step
from cloudbench.run import Handle

BATCH = "batch"
ENVIRONMENT, DEFINITION = "cloudbench-environment", "cloudbench-definition"
EXPIRES, PRIORITY = "cloudbench-expires", "cloudbench-priority"
STORAGES = ("local", "efs")
NO_IMAGE = "(container image)"
A_WEEK_LATER = "(a week after it is made)"

_MOST_VCPUS = 10_000  # the account's quota is the real limit, and jobs are what costs
_LONGEST_RUNNABLE_S = 1800
_ROOT_GB = 200
_MOUNT = "/mnt/cloudbench"
_MIME = """\
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="=="

--==
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/sh
mkdir -p {mount}
{disks}chmod 1777 {mount}
--==--
"""
_NVME = f"""\
set -- $(lsblk -dpno NAME,MODEL | awk '/Instance Storage/ {{print $1}}')
if [ $# -gt 1 ]; then
  mdadm --create /dev/md0 --level=0 --force --run --raid-devices=$# "$@" && set -- /dev/md0
fi
[ $# = 1 ] && mkfs.xfs -f "$1" && mount "$1" {_MOUNT}
"""
_OLDER = ("K80", "V100")
"""GPUs that the newest driver does not know any more."""


def handle_of(kind: str, name: str, run: str, attempt: int) -> Handle:
    """One of the things of an attempt, as the journal knows it."""
    return Handle(provider="aws", service=BATCH, kind=kind, id=name, run=run, attempt=attempt)


def environment_name(plan: RunPlan, account: AwsAccount) -> str:
    """What the launch template, the environment and the queue of the run are called, and its placement group."""
    # The name is a hash of everything that the environment contains but itself.
    content = [_launch_template_data(plan, account), _compute_resources(plan, account, ""), account.service_role]
    return _hashed(plan, content)


def definition_name(plan: RunPlan, account: AwsAccount) -> str:
    """What the job definition of the run is called."""
    return _hashed(plan, _definition(plan, account))


def render(plan: RunPlan, attempt: int, account: AwsAccount) -> Request:
    """The files, where the machines come from, what a job is, and the job itself."""
    refuse_impossible(plan, account)
    environment, definition = environment_name(plan, account), definition_name(plan, account)
    size = size_of(plan)

    def step(kind: str, name: str, action: str, body: dict[str, Any]) -> Step:
        return Step(action=action, handle=handle_of(kind, name, plan.id, attempt), body=body)

    name = attempt_name(plan.id, attempt)
    tags = {**marks(plan, attempt, BATCH), EXPIRES: A_WEEK_LATER}
    files = step(
        "files",
        name,
        f"put runs/{name} into bucket {account.bucket}",
        {
            "metadata": files_marks(plan, attempt, account),
            **dict.fromkeys((*GIVEN, ADDRESSES), "(made then)"),
            "job.json": msgspec.to_builtins(node_job(plan, attempt=attempt)),
        },
    )
    group = step(
        "placement-group",
        environment,
        "make a placement group, so that the nodes are near each other",
        {
            "create_placement_group": {
                "GroupName": environment,
                "Strategy": "cluster",
                "TagSpecifications": tag_specifications(tags, "placement-group"),
            }
        },
    )
    template = step(
        "launch-template",
        environment,
        f"make a launch template for {size.name}",
        {
            "create_launch_template": {
                "LaunchTemplateName": environment,
                "LaunchTemplateData": _launch_template_data(plan, account),
                "TagSpecifications": tag_specifications(tags, "launch-template"),
            }
        },
    )
    compute = step(
        "compute-environment",
        environment,
        "make a compute environment, which has no machine until a job needs one",
        {"create_compute_environment": _environment(plan, account, environment, tags)},
    )
    queue = step("job-queue", environment, "make a job queue", {"create_job_queue": _queue(environment, tags)})
    define = step(
        "job-definition",
        definition,
        "register the job definition",
        {"register_job_definition": {"jobDefinitionName": definition, **_definition(plan, account), "tags": tags}},
    )
    job = step(
        "job",
        name,
        "submit the job",
        {"submit_job": _job(plan, attempt, environment, definition)},
    )
    groups = (group,) if plan.nodes > 1 else ()
    return Request(plan=plan, attempt=attempt, steps=(files, *groups, template, compute, queue, define, job))


def refuse_impossible(plan: RunPlan, account: AwsAccount) -> None:
    """Refuse what AWS Batch can never run.

    Raises:
        SpecError: several nodes on Spot, or a storage that is not there.
    """
    if plan.nodes > 1 and plan.setup.priority == "low-priority":
        raise SpecError(
            f"{plan.label}: AWS Batch runs a job of {plan.nodes} nodes on dedicated machines only: multi-node parallel "
            "jobs are not supported on Spot",
            todo="--service ec2 takes Spot machines for several nodes; or --priority dedicated",
        )
    refuse_pool(plan)
    kind = storage_of(plan)
    if kind not in STORAGES:
        raise SpecError(
            f"storage {kind}: AWS Batch nodes have none of that name", todo=f"--storage {' or '.join(STORAGES)}"
        )
    if kind == "efs" and account.file_system is None:
        raise SpecError("storage efs: no file system is set", todo="--aws file_system=fs-…")


def files_marks(plan: RunPlan, attempt: int, account: AwsAccount) -> dict[str, str]:
    """Whose the files are, and which of the things that runs share are needed for them."""
    return {
        **marks(plan, attempt, BATCH),
        ENVIRONMENT: environment_name(plan, account),
        DEFINITION: definition_name(plan, account),
    }


def image_of(plan: RunPlan) -> str | None:
    """The container image; a rehearsal goes without one, for what stands in for it is there."""
    if plan.image not in (None, "none"):
        return plan.image
    return "cloudbench-cpu" if plan.rehearsal else None


def storage_of(plan: RunPlan) -> str:
    """What the nodes have besides their own disk: `local` NVMe disks where the size has them, or `efs`."""
    return plan.setup.storage or "local"


def memory_mib(size: Size) -> int:
    """What a job may ask for of a machine's memory: a job that asks for nearly all of it is never placed."""
    whole = size.memory_gib * 1024
    return int(whole - max(0.04 * whole, 1024))


def _hashed(plan: RunPlan, content: Any) -> str:
    identity = msgspec.json.encode([plan.owner, plan.rehearsal, content], order="deterministic")
    return f"cloudbench-{hashlib.sha256(identity).hexdigest()[:16]}"


def _launch_template_data(plan: RunPlan, account: AwsAccount) -> dict[str, Any]:
    """A root disk that holds large images; NVMe disks as one file system; the fast network where the size has it."""
    size = size_of(plan)
    disk = {
        "DeviceName": "/dev/xvda",
        "Ebs": {"VolumeSize": _ROOT_GB, "VolumeType": "gp3", "DeleteOnTermination": True},
    }
    data: dict[str, Any] = {"BlockDeviceMappings": [disk], "MetadataOptions": {"HttpTokens": "required"}}
    if storage_of(plan) == "local":
        script = _MIME.format(mount=_MOUNT, disks=_NVME if size.local_nvme_gb else "")
        data["UserData"] = base64.b64encode(script.encode()).decode()
    if _has_efa(plan):
        groups = list(account.security_groups) or SECURITY_GROUPS
        data["NetworkInterfaces"] = [{"DeviceIndex": 0, "InterfaceType": "efa", "Groups": groups}]
    return data


def _has_efa(plan: RunPlan) -> bool:
    return plan.nodes > 1 and size_of(plan).rdma


def _environment(plan: RunPlan, account: AwsAccount, name: str, tags: dict[str, str]) -> dict[str, Any]:
    return {
        "computeEnvironmentName": name,
        "type": "MANAGED",
        "state": "ENABLED",
        "computeResources": _compute_resources(plan, account, name),
        **({"serviceRole": account.service_role} if account.service_role else {}),
        "tags": tags,
    }


def _compute_resources(plan: RunPlan, account: AwsAccount, environment: str) -> dict[str, Any]:
    low_priority = plan.setup.priority == "low-priority"
    resources: dict[str, Any] = {
        "type": "SPOT" if low_priority else "EC2",
        "allocationStrategy": "SPOT_PRICE_CAPACITY_OPTIMIZED" if low_priority else "BEST_FIT_PROGRESSIVE",
        "minvCpus": 0,
        "desiredvCpus": 0,
        "maxvCpus": _MOST_VCPUS,
        "instanceTypes": [size_of(plan).name],
        "subnets": list(account.subnets) or SUBNETS,
        "securityGroupIds": list(account.security_groups) or SECURITY_GROUPS,
        "instanceRole": account.instance_role,
        "ec2Configuration": [{"imageType": "ECS_AL2_NVIDIA" if size_of(plan).gpu in _OLDER else "ECS_AL2023_NVIDIA"}],
        "launchTemplate": {"launchTemplateName": environment, "version": "$Latest"},
        "tags": {OWNER: plan.owner},
    }
    if plan.nodes > 1:
        resources["placementGroup"] = environment
    return resources


def _queue(environment: str, tags: dict[str, str]) -> dict[str, Any]:
    """A queue that gives up jobs which AWS itself says it cannot place."""
    reasons = (
        "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY",
        "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE",
        "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT",
    )
    return {
        "jobQueueName": environment,
        "state": "ENABLED",
        "priority": 1,
        "computeEnvironmentOrder": [{"order": 1, "computeEnvironment": environment}],
        "jobStateTimeLimitActions": [
            {"reason": reason, "state": "RUNNABLE", "maxTimeSeconds": _LONGEST_RUNNABLE_S, "action": "CANCEL"}
            for reason in reasons
        ],
        "tags": tags,
    }


def _definition(plan: RunPlan, account: AwsAccount) -> dict[str, Any]:
    container = _container(plan, account)
    definition: dict[str, Any] = {"type": "container" if plan.nodes == 1 else "multinode", "propagateTags": True}
    if plan.nodes == 1:
        definition["platformCapabilities"] = ["EC2"]
        definition["containerProperties"] = container
    else:
        definition["nodeProperties"] = {
            "numNodes": plan.nodes,
            "mainNode": 0,
            "nodeRangeProperties": [{"targetNodes": f"0:{plan.nodes - 1}", "container": container}],
        }
    return definition


def _container(plan: RunPlan, account: AwsAccount) -> dict[str, Any]:
    size = size_of(plan)
    needs = {"VCPU": size.vcpus, "MEMORY": memory_mib(size), "GPU": plan.gpus_per_node}
    linux: dict[str, Any] = {"initProcessEnabled": True, "sharedMemorySize": 2048}
    if _has_efa(plan):
        linux["devices"] = [{"hostPath": "/dev/infiniband/uverbs0", "permissions": ["READ", "WRITE", "MKNOD"]}]
    volume: dict[str, Any] = {"name": "storage", "host": {"sourcePath": _MOUNT}}
    if storage_of(plan) == "efs":
        volume = {
            "name": "storage",
            "efsVolumeConfiguration": {"fileSystemId": account.file_system, "transitEncryption": "ENABLED"},
        }
    return {
        "image": image_of(plan) or NO_IMAGE,
        "command": ["python3", "-c", container_program()],
        "environment": [{"name": "CLOUDBENCH_STORAGE", "value": _MOUNT}],
        "resourceRequirements": [{"type": kind, "value": str(value)} for kind, value in needs.items()],
        "linuxParameters": linux,
        "ulimits": [{"name": "memlock", "softLimit": -1, "hardLimit": -1}],
        "logConfiguration": {"logDriver": "awslogs", "options": {}},
        "volumes": [volume],
        "mountPoints": [{"sourceVolume": "storage", "containerPath": _MOUNT, "readOnly": False}],
    }


def _job(plan: RunPlan, attempt: int, queue: str, definition: str) -> dict[str, Any]:
    """The job. Another attempt is a job of its own, so that what was lost is counted: Batch itself tries none."""
    given = {"environment": [{"name": FILES_URL, "value": FILES_ADDRESS}]}
    job: dict[str, Any] = {
        "jobName": attempt_name(plan.id, attempt),
        "jobQueue": queue,
        "jobDefinition": definition,
        "timeout": {"attemptDurationSeconds": max(math.ceil(plan.timeout_s + END_S), 60)},
        "retryStrategy": {"attempts": 1},
        "propagateTags": True,
        "tags": {**marks(plan, attempt, BATCH), PRIORITY: plan.setup.priority},
    }
    if plan.nodes == 1:
        return {**job, "containerOverrides": given}
    overrides = {"nodePropertyOverrides": [{"targetNodes": f"0:{plan.nodes - 1}", "containerOverrides": given}]}
    return {**job, "nodeOverrides": overrides}
