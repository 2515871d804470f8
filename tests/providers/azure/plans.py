"""Plans of runs on Azure, and an account whose keys are easy to find where they must not be."""

from __future__ import annotations

import base64
import secrets
from typing import Any

import msgspec

from cloudbench.plan import RunPlan
from cloudbench.providers.azure.account import AzureAccount, Secret
from cloudbench.spec import Setup

BATCH_KEY = base64.b64encode(b"this is the key of the Batch account").decode()
STORAGE_KEY = base64.b64encode(b"this is the key of the storage account").decode()

ACCOUNT = AzureAccount(
    batch_account="bench",
    batch_endpoint="https://bench.eastus.batch.azure.com",
    batch_key=Secret(BATCH_KEY),
    storage_account="benchstore",
    storage_key=Secret(STORAGE_KEY),
    files_endpoint="https://benchstore.file.core.windows.net",
)


def azure_plan(command: str = "true", *, nodes: int = 2, **changes: Any) -> RunPlan:
    """A rehearsed run of its own id, with one rank a node; some of the changes are its setup's."""
    run = changes.pop("id", f"conformance-{secrets.token_hex(4)}")
    chosen = {name: changes.pop(name) for name in ("sku", "priority", "storage", "service") if name in changes}
    setup = Setup(provider="azure", nodes=nodes, **{"sku": "NC6", "service": "batch", **chosen})
    plan = RunPlan(
        id=run,
        group=run,
        experiment="conformance",
        submission=1,
        owner="conformance-owner",
        label=command,
        repeat=1,
        template="shell",
        parameters={},
        setup=setup,
        nodes=nodes,
        gpus_per_node=1,
        launcher="per-node",
        ranks_per_node=1,
        command=command,
        prepare=None,
        requires=(),
        environment={},
        image=None,
        format="tf_cnn_benchmarks",
        timeout_s=120.0,
        rehearsal=True,
    )
    return msgspec.structs.replace(plan, **changes)
