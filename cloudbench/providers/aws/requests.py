"""What requests to both services have in common: names, marks, placeholders and how they are filled in. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudbench.catalog import Size, find_size
from cloudbench.errors import SpecError
from cloudbench.plan import RunPlan
from cloudbench.providers.aws.files import ATTEMPT, NODES, OWNER, RUN, SERVICE

END_S = 300.0
"""How much longer than its own limit a job may run, so that its nodes end by themselves and push their last bytes."""

_WAIT_S = 3600.0

SUBNETS = "(subnets of the default VPC)"
SECURITY_GROUPS = "(default security group of the VPC)"
FILES_ADDRESS = "(signed address of files.json)"


def attempt_name(run: str, attempt: int) -> str:
    """What everything of an attempt is called that is its own."""
    return f"{run}-a{attempt}"


def lifetime_s(plan: RunPlan) -> float:
    """How long the nodes of an attempt can read and push: as long as machines may be waited for, and then live."""
    return plan.machines_limit_s + _WAIT_S


def marks(plan: RunPlan, attempt: int, service: str) -> dict[str, str]:
    """Whose a thing is, as tags or metadata."""
    return {
        OWNER: plan.owner,
        RUN: plan.id,
        ATTEMPT: str(attempt),
        SERVICE: service,
        NODES: str(plan.nodes),
    }


def tag_specifications(tags: Mapping[str, str], *kinds: str) -> list[dict[str, Any]]:
    """Tags as EC2 takes them with a request that makes things."""
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]
    return [{"ResourceType": kind, "Tags": listed} for kind in kinds]


def fill(body: Any, values: Mapping[str, Any]) -> Any:
    """The body with every placeholder that is a key of `values` replaced by its value, also within a text."""
    if isinstance(body, Mapping):
        return {key: fill(value, values) for key, value in body.items()}
    if isinstance(body, (list, tuple)):
        return [fill(value, values) for value in body]
    if not isinstance(body, str):
        return body
    for key, value in values.items():
        if body == key:
            return value
        if isinstance(value, str):
            body = body.replace(key, value)
    return body


def size_of(plan: RunPlan) -> Size:
    """The machine size of the plan.

    Raises:
        SpecError: none is named, or none of that name is known.
    """
    if plan.setup.sku is None:
        raise SpecError(f"{plan.label}: AWS needs a machine size", todo="--sku g4dn.xlarge")
    return find_size("aws", plan.setup.sku)


def refuse_pool(plan: RunPlan) -> None:
    """Refuse a pool.

    Raises:
        SpecError: the plan asks for one.
    """
    if plan.setup.pool is not None:
        raise SpecError(
            f"pool {plan.setup.pool}: AWS has no pools",
            why="runs that want the same machines share an environment by themselves",
            todo="leave --pool out",
        )
