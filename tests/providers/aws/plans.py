"""Plans of runs on AWS, and an account whose keys are easy to find where they must not be."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from cloudbench.plan import RunPlan
from cloudbench.providers.aws.account import AwsAccount
from cloudbench.spec import Setup

ACCOUNT = AwsAccount(account_id="123456789012", region="us-east-1", bucket="bench")


def aws_plan(command: str = "true", *, nodes: int = 2, **changes: Any) -> RunPlan:
    """A rehearsed run of its own id, with one rank a node; some of the changes are its setup's."""
    run = changes.pop("id", f"conformance-{secrets.token_hex(4)}")
    chosen = {name: changes.pop(name) for name in ("sku", "priority", "storage", "service") if name in changes}
    setup = Setup(provider="aws", nodes=nodes, **{"sku": "p2.xlarge", "service": "batch", **chosen})
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
