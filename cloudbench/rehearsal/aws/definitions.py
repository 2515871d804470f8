"""Job definitions: what a submission makes of them for each node, and what is refused.

moto alone does not show a definition's `nodeProperties`, and leaves node overrides, retries and the least timeout out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from cloudbench.rehearsal.aws.wire import AwsError, Body, Call, Extension, json_response
from cloudbench.rehearsal.server import Response

if TYPE_CHECKING:
    from cloudbench.rehearsal.aws.world import AwsWorld

LEAST_TIMEOUT_S = 60
MOST_ATTEMPTS = 10


class Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """What one node's container needs of its instance."""

    vcpus: float
    memory_mib: int
    gpus: int


class Definitions:
    """The account's job definitions."""

    def __init__(self, world: AwsWorld) -> None:
        self._world = world

    def extensions(self) -> dict[str, Extension]:
        """What is answered here."""
        return {
            "batch:RegisterJobDefinition": self._register,
            "batch:DescribeJobDefinitions": self._describe,
        }

    def _register(self, call: Call, ask: Callable[[], Response]) -> Response:
        parameters = call.parameters
        check_timeout(parameters.get("timeout"))
        check_retries(parameters.get("retryStrategy"))
        if parameters.get("type") == "multinode":
            node_containers(parameters.get("nodeProperties") or {})
        return ask()

    def _describe(self, call: Call, ask: Callable[[], Response]) -> Response:
        response = ask()
        if response.status != 200:
            return response
        body = msgspec.json.decode(response.body)
        batch = self._world.cloud.backend("batch")
        for item in body["jobDefinitions"]:
            properties = batch.get_job_definition_by_arn(item["jobDefinitionArn"]).node_properties
            if properties:
                item["nodeProperties"] = properties
        body["jobDefinitions"] = [
            {name: value for name, value in item.items() if value is not None} for item in body["jobDefinitions"]
        ]
        return json_response(body)


def check_timeout(timeout: Mapping[str, Any] | None) -> None:
    """Refuse a shorter one than the service has."""
    if timeout and int(timeout.get("attemptDurationSeconds") or 0) < LEAST_TIMEOUT_S:
        raise AwsError("ClientException", f"attemptDurationSeconds must be at least {LEAST_TIMEOUT_S}")


def check_retries(strategy: Mapping[str, Any] | None) -> None:
    """Refuse what the service does not retry."""
    if strategy and not 1 <= int(strategy.get("attempts") or 1) <= MOST_ATTEMPTS:
        raise AwsError("ClientException", f"attempts must be between 1 and {MOST_ATTEMPTS}")


def node_containers(properties: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> list[Body]:
    """The container of each node, with what was overridden.

    Raises:
        AwsError: the ranges do not give each node one.
    """
    overrides = overrides or {}
    nodes = int(overrides.get("numNodes") or properties.get("numNodes") or 0)
    found: dict[int, Body] = {}
    for item in properties.get("nodeRangeProperties") or ():
        for node in _targets(item["targetNodes"], nodes):
            found[node] = item.get("container") or {}
    for item in overrides.get("nodePropertyOverrides") or ():
        for node in _targets(item["targetNodes"], nodes):
            found[node] = overridden(found.get(node, {}), item.get("containerOverrides") or {})
    if not nodes or sorted(found) != list(range(nodes)):
        raise AwsError("ClientException", f"nodeRangeProperties must cover each of the {nodes} nodes once")
    if not 0 <= int(properties.get("mainNode") or 0) < nodes:
        raise AwsError("ClientException", "mainNode is not a node of the job")
    return [found[node] for node in range(nodes)]


def overridden(container: Body, changes: Mapping[str, Any]) -> Body:
    """A container's properties with a submission's own: variables by name, resources by type, the rest as a whole."""
    merged = {**container, **{name: value for name, value in changes.items() if value not in (None, "")}}
    for name, key in (("environment", "name"), ("resourceRequirements", "type")):
        items = {item[key]: item for item in (*(container.get(name) or ()), *(changes.get(name) or ()))}
        merged[name] = list(items.values())
    return merged


def with_parameters(container: Body, parameters: Mapping[str, str]) -> Body:
    """The container whose command has the values of its `Ref::name`."""
    command = []
    for word in container.get("command") or ():
        for name in sorted(parameters, key=len, reverse=True):
            word = word.replace(f"Ref::{name}", parameters[name])
        command.append(word)
    return {**container, "command": command}


def requirements(container: Mapping[str, Any]) -> Requirements:
    """What it asks for, in the present way or in the older one."""
    asked = {item["type"]: item["value"] for item in container.get("resourceRequirements") or ()}
    return Requirements(
        vcpus=float(asked.get("VCPU") or container.get("vcpus") or 1),
        memory_mib=int(asked.get("MEMORY") or container.get("memory") or 0),
        gpus=int(asked.get("GPU") or 0),
    )


def _targets(text: str, nodes: int) -> range:
    first, colon, last = text.partition(":")
    begin = int(first or 0)
    return range(begin, min(nodes, int(last or nodes - 1) + 1)) if colon else range(begin, begin + 1)
