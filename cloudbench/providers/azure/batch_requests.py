"""The exact requests that put one attempt of a run on Azure Batch. Pure: a plan and an account give wire bodies.

What must not be told, or is only known when it is sent, stands as a `(…)` placeholder in a body; `fill` puts the
values in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from cloudbench.catalog import find_size
from cloudbench.errors import SpecError
from cloudbench.plan import POOL_IDLE_S, RunPlan, node_job
from cloudbench.providers.azure.account import SHARE_NAME, AzureAccount, Registry
from cloudbench.providers.azure.share import ATTEMPT, GIVEN, OWNER, RUN
from cloudbench.providers.base import Request, Step
from cloudbench.run import Handle

SERVICE = "batch"
NODES = "cloudbench_nodes"
TASK = "node"
POOL = "cloudbench_pool"
IMAGE = "(newest verified microsoft-dsvm ubuntu-hpc image that the service lists)"
NODE_AGENT = "(the node agent that the service lists for that image)"
POOL_ID = "(the pool that the lease holds)"
STORAGE_KEY = "(key of the storage account)"
REGISTRY_PASSWORD = "(password of the registry)"  # noqa: S105  # the placeholder, not a password

_SHORTEST_RESIZE = "PT15M"
_LONGEST_PREFIX = 20  # of an auto-pool's id, as the service allows
_MOUNT = "cloudbench"
_NVME = "/mnt/resource_nvme /mnt/nvme"  # where the HPC image mounts the disks of sizes that have them
_FIT = "python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' && df -h"
"""A machine that cannot run the node program is found out before a task is given to it."""
STORAGES = ("azure-files", "azure-blob", "local")


def attempt_name(run: str, attempt: int) -> str:
    """What everything of an attempt is called."""
    return f"{run}-a{attempt}"


def attempt_handle(kind: Literal["files", "job"], run: str, attempt: int) -> Handle:
    """One of the things of an attempt, as the journal knows it."""
    return Handle(provider="azure", service=SERVICE, kind=kind, id=attempt_name(run, attempt), run=run, attempt=attempt)


def lease_handle(pool: str, run: str, attempt: int) -> Handle:
    """An attempt's use of the machines that a person has named: the job that keeps them is `pool-NAME`."""
    return Handle(provider="azure", service=SERVICE, kind="lease", id=f"pool-{pool}", run=run, attempt=attempt)


def pool_prefix(name: str) -> str:
    """What the id of the attempt's auto-pool begins with: the end of its name, where the digest and the number are."""
    return name[-_LONGEST_PREFIX:].lstrip("-")


def render(plan: RunPlan, attempt: int, account: AzureAccount) -> Request:
    """The folder on the share, then the job with its pool and its task."""
    name = attempt_name(plan.id, attempt)
    files = Step(
        action=f"make the folder runs/{name} on share {account.share} of {account.storage_account}",
        handle=attempt_handle("files", plan.id, attempt),
        body={
            "metadata": _marks(plan, attempt),
            **dict.fromkeys(GIVEN, "(made then)"),
            "job.json": msgspec.to_builtins(node_job(plan, attempt=attempt)),
        },
    )
    job = Step(
        action="make the job; Azure makes its machines, and deletes them when it ends",
        handle=attempt_handle("job", plan.id, attempt),
        body={
            "POST /jobs": _job(plan, attempt, account),
            f"POST /jobs/{name}/tasks": _task(plan, name, account),
            f"PATCH /jobs/{name}": {"onAllTasksComplete": "terminatejob"},
        },
    )
    steps = (files, _lease(plan, attempt, account), job) if plan.setup.pool else (files, job)
    return Request(plan=plan, attempt=attempt, steps=steps)


def fill(body: Any, values: Mapping[str, Any]) -> Any:
    """The body with every placeholder that is a key of `values` replaced by its value."""
    if isinstance(body, Mapping):
        return {key: fill(value, values) for key, value in body.items()}
    if isinstance(body, (list, tuple)):
        return [fill(value, values) for value in body]
    return values.get(body, body) if isinstance(body, str) else body


def address_of(file: str) -> str:
    """The placeholder of a read-only address of one of the files that nodes are given."""
    return f"(read-only address of {file})"


def storage_of(plan: RunPlan) -> tuple[str, str | None]:
    """What the nodes mount, and the container where it is one: `azure-blob/CONTAINER`.

    Raises:
        SpecError: nothing of that name can be mounted.
    """
    kind, _, container = (plan.setup.storage or "azure-files").partition("/")
    if kind not in STORAGES or (container and kind != "azure-blob"):
        raise SpecError(
            f"storage {plan.setup.storage}: Azure Batch nodes have none of that name",
            todo="--storage azure-files, local or azure-blob/CONTAINER",
        )
    if container and not SHARE_NAME.fullmatch(container):
        raise SpecError(
            f"storage {plan.setup.storage}: no container can be called {container!r}",
            todo="its name has 3 to 63 lower-case letters, digits and single hyphens",
        )
    return kind, container or None


def image_of(plan: RunPlan) -> str | None:
    """The container image, `None` where ranks run on the machine's own Python."""
    return None if plan.image in (None, "none") else plan.image


def _marks(plan: RunPlan, attempt: int) -> dict[str, str]:
    return {OWNER: plan.owner, RUN: plan.id, ATTEMPT: str(attempt)}


def _metadata(plan: RunPlan, attempt: int) -> list[dict[str, str]]:
    marks = {**_marks(plan, attempt), NODES: str(plan.nodes)}
    return [{"name": name, "value": value} for name, value in marks.items()]


def _job(plan: RunPlan, attempt: int, account: AzureAccount) -> dict[str, Any]:
    name = attempt_name(plan.id, attempt)
    return {
        "id": name,
        "displayName": plan.label[:1024],
        "constraints": {"maxWallClockTime": f"PT{plan.machines_limit_s:.0f}S", "maxTaskRetryCount": 0},
        "onAllTasksComplete": "noaction",
        "metadata": _metadata(plan, attempt),
        "poolInfo": {"poolId": POOL_ID}
        if plan.setup.pool
        else _auto_pool(pool_prefix(name), _pool(plan, account, _metadata(plan, attempt))),
    }


def _lease(plan: RunPlan, attempt: int, account: AzureAccount) -> Step:
    """The job that keeps a named pool: it has no task, and its wall clock is how long Azure keeps the machines."""
    pool = str(plan.setup.pool)
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9-]{0,19}", pool):
        raise SpecError(f"pool {pool}: is not a name", todo="up to 20 letters, digits and hyphens")
    handle = lease_handle(pool, plan.id, attempt)
    marks = [{"name": OWNER, "value": plan.owner}, {"name": POOL, "value": pool}]
    body = {
        "id": handle.id,
        "displayName": f"keeps the machines of the pool {pool}",
        "constraints": {"maxWallClockTime": f"PT{plan.machines_limit_s + POOL_IDLE_S:.0f}S", "maxTaskRetryCount": 0},
        "onAllTasksComplete": "noaction",
        "metadata": [*marks, {"name": attempt_name(plan.id, attempt), "value": POOL}],
        "poolInfo": _auto_pool(pool, _pool(plan, account, marks)),
    }
    return Step(action=f"use the machines of the pool {pool}, or make them", handle=handle, body={"POST /jobs": body})


def _auto_pool(prefix: str, pool: dict[str, Any]) -> dict[str, Any]:
    """Machines that Azure makes for a job and deletes with it."""
    specification = {"autoPoolIdPrefix": prefix, "poolLifetimeOption": "job", "keepAlive": False, "pool": pool}
    return {"autoPoolSpecification": specification}


def _pool(plan: RunPlan, account: AzureAccount, metadata: list[dict[str, str]]) -> dict[str, Any]:
    if plan.setup.sku is None:
        raise SpecError(f"{plan.label}: Azure needs a machine size", todo="--sku NC4as_T4_v3")
    low_priority = plan.setup.priority == "low-priority"
    machine: dict[str, Any] = {"imageReference": IMAGE, "nodeAgentSKUId": NODE_AGENT}
    if image := image_of(plan):
        machine["containerConfiguration"] = {"type": "dockerCompatible", "containerImageNames": [image]}
        if account.registry:
            machine["containerConfiguration"]["containerRegistries"] = [_registry(account.registry)]
    mounts = _mounts(plan, account)
    return {
        "vmSize": find_size("azure", plan.setup.sku).name,
        "virtualMachineConfiguration": machine,
        "targetDedicatedNodes": 0 if low_priority else plan.nodes,
        "targetLowPriorityNodes": plan.nodes if low_priority else 0,
        "resizeTimeout": _SHORTEST_RESIZE,
        "taskSlotsPerNode": 1,
        "enableInterNodeCommunication": plan.nodes > 1,
        "startTask": {
            "commandLine": shlex.join(["/bin/sh", "-c", _FIT]),
            "waitForSuccess": True,
            "maxTaskRetryCount": 1,
        },
        "metadata": metadata,
        **({"mountConfiguration": mounts} if mounts else {}),
    }


def _registry(registry: Registry) -> dict[str, Any]:
    if registry.identity:
        return {"registryServer": registry.server, "identityReference": {"resourceId": registry.identity}}
    named = {"username": registry.username, "password": REGISTRY_PASSWORD} if registry.password else {}
    return {"registryServer": registry.server, **named}


def _mounts(plan: RunPlan, account: AzureAccount) -> list[dict[str, Any]]:
    kind, container = storage_of(plan)
    if kind == "azure-files":
        share = {
            "accountName": account.storage_account,
            "accountKey": STORAGE_KEY,
            "azureFileUrl": f"{account.files_endpoint}/{account.share}",
            "relativeMountPath": _MOUNT,
            "mountOptions": "-o vers=3.0,dir_mode=0777,file_mode=0777,serverino,nosharesock",
        }
        return [{"azureFileShareConfiguration": share}]
    if kind == "azure-blob":
        blobs = {
            "accountName": account.storage_account,
            "accountKey": STORAGE_KEY,
            "containerName": container or account.share,
            "relativeMountPath": _MOUNT,
            "blobfuseOptions": "--read-only=true",
        }
        return [{"azureBlobFileSystemConfiguration": blobs}]
    return []


def _task(plan: RunPlan, name: str, account: AzureAccount) -> dict[str, Any]:
    """The node program on every node: started in the background, then waited for on the first node."""
    files = [{"httpUrl": address_of(file), "filePath": file} for file in GIVEN]
    start, wait = _start(plan), 'exec python3 "$D/cloudbench-node.pyz" wait --out "$D/out"'
    task: dict[str, Any] = {
        "id": TASK,
        "displayName": name,
        "userIdentity": {"autoUser": {"scope": "pool", "elevationLevel": "admin"}},
        "constraints": {"maxTaskRetryCount": 0},
    }
    if plan.nodes == 1:
        return {**task, "commandLine": _shell(start, wait), "resourceFiles": files}
    return {
        **task,
        "commandLine": _shell(wait),
        "multiInstanceSettings": {
            "numberOfInstances": plan.nodes,
            "coordinationCommandLine": _shell(start),
            "commonResourceFiles": files,
        },
    }


def _start(plan: RunPlan) -> str:
    """Start the node program; the job finds what is mounted, or the machine's own disk, in CLOUDBENCH_STORAGE."""
    kind, _ = storage_of(plan)
    if kind == "local":
        storage = (
            f'for P in {_NVME} "$AZ_BATCH_NODE_SHARED_DIR"; do [ -w "$P" ] && break; done; '
            'export CLOUDBENCH_STORAGE="$P/cloudbench"; mkdir -p "$CLOUDBENCH_STORAGE"'
        )
    else:
        storage = f'export CLOUDBENCH_STORAGE="$AZ_BATCH_NODE_MOUNTS_DIR/{_MOUNT}"'
    image = image_of(plan)
    options = f' --image {shlex.quote(image)} --mount "$CLOUDBENCH_STORAGE:$CLOUDBENCH_STORAGE"' if image else ""
    return f'{storage}; python3 "$D/cloudbench-node.pyz" start --files "$D" --out "$D/out"{options}'


def _shell(*commands: str) -> str:
    """The commands, one after the other while they succeed, in the folder where the files of the task lie."""
    folder = 'D="${AZ_BATCH_TASK_SHARED_DIR:-$AZ_BATCH_TASK_WORKING_DIR}"'
    return shlex.join(["/bin/sh", "-c", f"{folder}; {' && '.join(commands)}"])
