"""The exact requests that put one attempt of a run on plain EC2 instances. Pure: a plan and an account give parameters.

One request makes all instances or none. They are told everything by their user data, and end themselves: when the node
program has ended, at the latest when their limit is reached, also when no client ever comes back.
"""

from __future__ import annotations

import shlex
from typing import Any, Literal

import msgspec

from cloudbench.errors import SpecError
from cloudbench.plan import RunPlan, node_job
from cloudbench.providers.aws.account import AwsAccount
from cloudbench.providers.aws.bootstrap import instance_program
from cloudbench.providers.aws.files import ADDRESSES, GIVEN
from cloudbench.providers.aws.requests import (
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

EC2 = "ec2"
NAME = "cloudbench-name"
IMAGE = "(newest Deep Learning AMI that the region lists)"
IMAGE_PARAMETER = "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
"""The public parameter that names it; in place of `{}` the kind of processor."""
STORAGES = ("local", "efs")

_ROOT_GB = 200
_NVME = "/opt/dlami/nvme"  # where the Deep Learning AMI mounts the disks of sizes that have them
_EFS = "/mnt/efs"
_EFS_OPTIONS = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"
_LONGEST_USER_DATA = 16 * 1024


def handle_of(kind: Literal["files", "placement-group", "instances"], run: str, attempt: int) -> Handle:
    """One of the things of an attempt, as the journal knows it."""
    return Handle(provider="aws", service=EC2, kind=kind, id=attempt_name(run, attempt), run=run, attempt=attempt)


def render(plan: RunPlan, attempt: int, account: AwsAccount) -> Request:
    """The files, a placement group for several nodes, and all instances at once."""
    refuse_pool(plan)
    storage = storage_of(plan, account)
    name, tags = attempt_name(plan.id, attempt), marks(plan, attempt, EC2)
    files = Step(
        action=f"put runs/{name} into bucket {account.bucket}",
        handle=handle_of("files", plan.id, attempt),
        body={
            "metadata": tags,
            **dict.fromkeys((*GIVEN, ADDRESSES), "(made then)"),
            "job.json": msgspec.to_builtins(node_job(plan, attempt=attempt)),
        },
    )
    group = Step(
        action="make a placement group, so that the nodes are near each other",
        handle=handle_of("placement-group", plan.id, attempt),
        body={
            "create_placement_group": {
                "GroupName": name,
                "Strategy": "cluster",
                "TagSpecifications": tag_specifications(tags, "placement-group"),
            }
        },
    )
    instances = Step(
        action=f"run {plan.nodes} x {size_of(plan).name}; they end themselves",
        handle=handle_of("instances", plan.id, attempt),
        body={"run_instances": _instances(plan, name, {**tags, NAME: name}, account, storage)},
    )
    groups = (group,) if plan.nodes > 1 else ()
    return Request(plan=plan, attempt=attempt, steps=(files, *groups, instances))


def image_of(plan: RunPlan) -> str | None:
    """The container image, `None` where ranks run on the machine's own Python."""
    return None if plan.image in (None, "none") else plan.image


def storage_of(plan: RunPlan, account: AwsAccount) -> str:
    """What the nodes have besides their root disk: `local` NVMe disks where the size has them, or `efs`.

    Raises:
        SpecError: nothing of that name can be had.
    """
    storage = plan.setup.storage or STORAGES[0]
    if storage not in STORAGES:
        raise SpecError(
            f"storage {storage}: EC2 nodes have none of that name", todo=f"--storage {' or '.join(STORAGES)}"
        )
    if storage == "efs" and account.file_system is None:
        raise SpecError("storage efs: no file system is set", todo="--aws file_system=fs-…")
    return storage


def limit_minutes(plan: RunPlan) -> int:
    """After how long the instances end themselves, whatever happens."""
    return max(int(plan.machines_limit_s // 60), 1)


def _instances(plan: RunPlan, name: str, tags: dict[str, str], account: AwsAccount, storage: str) -> dict[str, Any]:
    size = size_of(plan)
    request: dict[str, Any] = {
        "ClientToken": name,
        "MinCount": plan.nodes,
        "MaxCount": plan.nodes,
        "ImageId": account.image if account.image and account.image.startswith("ami-") else IMAGE,
        "InstanceType": size.name,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        "UserData": user_data(plan, account, storage),
        "TagSpecifications": tag_specifications(tags, "instance", "volume"),
    }
    if account.image is None:
        disk = {"VolumeSize": _ROOT_GB, "VolumeType": "gp3", "DeleteOnTermination": True}
        request["BlockDeviceMappings"] = [{"DeviceName": "/dev/sda1", "Ebs": disk}]
    if plan.setup.priority == "low-priority":
        options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        request["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
    if plan.nodes > 1:
        request["Placement"] = {"GroupName": name}
    if plan.nodes > 1 and size.rdma:
        network = {
            "SubnetId": account.subnets[0] if account.subnets else SUBNETS,
            "Groups": list(account.security_groups) or SECURITY_GROUPS,
        }
        request["NetworkInterfaces"] = [{"DeviceIndex": 0, "InterfaceType": "efa", **network}]
        return request
    # What is not named EC2 chooses itself: a zone of the default VPC that has such machines, and the VPC's own group.
    if account.subnets:
        request["SubnetId"] = account.subnets[0]
    if account.security_groups:
        request["SecurityGroupIds"] = list(account.security_groups)
    return request


def user_data(plan: RunPlan, account: AwsAccount, storage: str) -> str:
    """The script that an instance begins with: its own end first, then the node program.

    Raises:
        SpecError: it is longer than AWS takes.
    """
    if storage == "efs":
        source = f"{account.file_system}.efs.{account.region}.amazonaws.com:/"
        place = f"mkdir -p {_EFS} && mount -t nfs4 -o {_EFS_OPTIONS} {source} {_EFS} || shutdown -P now\nP={_EFS}"
    else:
        place = f'for P in {_NVME} "${{TMPDIR:-/var/tmp}}"; do [ -w "$P" ] && break; done'
    image = image_of(plan)
    mount = ' --mount "$CLOUDBENCH_STORAGE:$CLOUDBENCH_STORAGE"'
    options = f" --image {shlex.quote(image)}{mount}" if image else ""
    script = f"""\
#!/bin/sh
shutdown -P +{limit_minutes(plan)}
{place}
export CLOUDBENCH_STORAGE="$P/cloudbench"
mkdir -p "$CLOUDBENCH_STORAGE"
printf '%s\\n' '{FILES_ADDRESS}' | python3 -c {shlex.quote(instance_program())} {plan.nodes}{options}
shutdown -P now
"""
    if len(script) > _LONGEST_USER_DATA - 2048:  # the address is long
        raise SpecError(f"{plan.label}: what its machines are told is too long", todo="a shorter --image")
    return script
