from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from .conftest import Play, Subscription, body, deployment, machine, refusal, resource_id, schedule, until
from .contract import Contract

OPERATIONS = "/resourcegroups/run/deployments/main/operations"


@pytest.fixture
def group(subscription: Subscription) -> Subscription:
    subscription.group()
    return subscription


def changed(resources: list[dict[str, Any]], index: int, **properties: Any) -> list[dict[str, Any]]:
    """The resources with other properties of one of them."""
    resources = copy.deepcopy(resources)
    resources[index]["properties"].update(properties)
    return resources


def test_a_deployment_goes_on_until_its_machines_are_there(group: Subscription) -> None:
    answered = group.deploy(machine())
    assert answered["properties"]["provisioningState"] == "Accepted"
    assert group.deployed()["provisioningState"] == "Running"
    assert refusal(lambda: group.deploy(machine())) == (409, "DeploymentActive")
    assert group.powers() == {"vm": ""}

    group.clock.advance(60)
    assert group.deployed()["provisioningState"] == "Succeeded"
    assert group.powers() == {"vm": "running"}
    operations = group.send("GET", OPERATIONS)["value"]
    assert {operation["properties"]["provisioningState"] for operation in operations} == {"Succeeded"}
    listed = {item.name: item.type for item in group.client.resources.list_by_resource_group("run")}
    assert listed == {"vm": "Microsoft.Compute/virtualMachines"}


def test_secure_parameters_reach_the_machine_and_are_never_told(group: Subscription) -> None:
    script = "#!/bin/sh\necho the script has $(cat secret || echo begun)"
    template = machine(script="[base64(parameters('script'))]")
    group.deploy(template, parameters={"script": script})
    group.clock.advance(60)
    until(lambda: "the script has begun" in group.said())
    everything = [group.deployed(), group.send("GET", OPERATIONS), group.send("GET", "/resourcegroups/run/resources")]
    path = "/providers/Microsoft.Compute/virtualMachines"
    everything += [group.send("GET", path, version="2024-07-01", statusOnly=only) for only in ("true", "false")]
    assert "the script has" not in json.dumps(everything)


@pytest.mark.parametrize(
    ("template", "code"),
    [
        ([{**machine()[0], "type": "Microsoft.Network/loadBalancers"}], "InvalidResourceType"),
        ([{**machine()[0], "apiVersion": "2010-01-01"}], "NoRegisteredProviderFound"),
        ([{**machine()[0], "colour": "red"}], "InvalidTemplate"),
        ([{key: value for key, value in machine()[0].items() if key != "location"}], "InvalidTemplate"),
        ([machine()[0], machine()[0]], "InvalidTemplate"),
        (machine()[1:], "InvalidTemplate"),
        ([{**machine()[1], "dependsOn": []}], "InvalidResourceReference"),
        (changed(machine(), 1, hardwareProfile={"vmSize": "NC6"}), "InvalidParameter"),
        (changed(machine(), 1, priority="Spot"), "OperationNotAllowed"),
        (changed(machine(), 1, evictionPolicy="Deallocate"), "OperationNotAllowed"),
        (changed(machine(), 1, storageProfile={"imageReference": {"offer": "other"}}), "PlatformImageNotFound"),
        (changed(machine(), 1, osProfile={"customData": "not base64!"}), "InvalidParameter"),
        (machine(script="#!/bin/sh\n" + "x" * 65536), "InvalidParameter"),
        (machine(script="[concat('a', 'b')]"), "InvalidTemplate"),
        (machine(script="[base64(parameters('nowhere'))]"), "InvalidTemplate"),
        ([*machine(), {**schedule("vm", "1200"), "name": "other"}], "InvalidScheduleId"),
        ([*machine(), schedule("vm", "2460")], "InvalidDailyRecurrence"),
    ],
)
def test_what_azure_refuses_is_refused(group: Subscription, template: list[Any], code: str) -> None:
    status, told = refusal(lambda: group.deploy(template))
    assert (told, status) == (code, 404 if code == "PlatformImageNotFound" else 400)
    assert refusal(lambda: group.deployed()) == (404, "DeploymentNotFound")
    assert group.powers() == {}


def test_parameters_and_modes_that_make_no_sense_are_refused(group: Subscription) -> None:
    asked = body(machine(), {"script": "x"})
    unknown = copy.deepcopy(asked)
    unknown["properties"]["parameters"]["other"] = {"value": 1}
    missing = copy.deepcopy(asked)
    missing["properties"]["parameters"] = {}
    complete = copy.deepcopy(asked)
    complete["properties"]["mode"] = "Complete"
    for wrong, code in (
        (unknown, "InvalidTemplate"),
        (missing, "InvalidTemplate"),
        (complete, "InvalidDeploymentMode"),
    ):
        assert refusal(lambda wrong=wrong: group.send("PUT", deployment(), wrong)) == (400, code)


def test_quota_is_found_before_anything_is_made(play: Play) -> None:
    subscription = play(allocation_error="AccountCoreQuotaReached", nodes_granted=0)
    subscription.group()
    assert refusal(lambda: subscription.deploy(machine())) == (400, "InvalidTemplateDeployment")
    assert subscription.powers() == {}


def test_capacity_that_is_missing_fails_the_machine_and_the_deployment(play: Play) -> None:
    subscription = play(allocation_error="AllocationFailed", nodes_granted=1)
    subscription.group()
    subscription.deploy([*machine("first"), *machine("second", address="10.77.0.11")])
    subscription.clock.advance(60)
    properties = subscription.deployed()
    assert properties["provisioningState"] == "Failed"
    assert properties["error"]["code"] == "DeploymentFailed"
    assert [detail["code"] for detail in properties["error"]["details"]] == ["AllocationFailed"]
    assert subscription.powers() == {"first": "running", "second": ""}
    states = {each["properties"]["provisioningState"] for each in subscription.send("GET", OPERATIONS)["value"]}
    assert states == {"Succeeded", "Failed"}


def test_what_was_said_is_what_the_document_describes(group: Subscription, seen: Contract | None) -> None:
    if seen is None:
        pytest.skip("Microsoft's document is not beside this checkout")
    group.deploy(machine())
    group.deployed()
    group.send("GET", OPERATIONS)
    list(group.client.resources.list_by_resource_group("run"))
    coloured = {**body([]), "colour": "red"}
    assert refusal(lambda: group.send("PUT", deployment(), coloured)) == (400, "InvalidRequestContent")
    assert {
        ("Deployments_CreateOrUpdate", 201),
        ("Deployments_Get", 200),
        ("DeploymentOperations_List", 200),
        ("Resources_ListByResourceGroup", 200),
    } <= seen.checked


def test_a_resource_names_others_by_ids_of_its_group(group: Subscription) -> None:
    template = machine()
    elsewhere = resource_id("Microsoft.Network/networkInterfaces", "vm", group="other")
    template[1]["dependsOn"] = []
    template[1]["properties"]["networkProfile"]["networkInterfaces"][0]["id"] = elsewhere
    assert refusal(lambda: group.deploy(template)) == (400, "InvalidResourceReference")
