from __future__ import annotations

import ast
import json
import subprocess
from typing import Any

import msgspec
import pytest

from cloudbench.catalog import find_size
from cloudbench.errors import SpecError
from cloudbench.plan import RunPlan
from cloudbench.providers.azure import vm_template
from cloudbench.providers.azure.account import Registry, Secret
from cloudbench.providers.azure.vm import AzureVmProvider
from tests.providers.azure.plans import ACCOUNT, BATCH_KEY, STORAGE_KEY, azure_plan

VM_ACCOUNT = msgspec.structs.replace(
    ACCOUNT,
    subscription="11111111-2222-3333-4444-555555555555",
    region="eastus",
    registry=Registry(server="images.example.com", username="me", password=Secret("a password of the registry")),
)
GIVEN = vm_template.Given(
    addresses={"job.json": "https://share/job.json?sig=read"},
    ended=("https://share/ended-0?sig=write", "https://share/ended-1?sig=write"),
    public_key="ssh-ed25519 AAAA",
    shut_down_at="1234",
    until="2026-03-04T12:34:00+00:00",
    storage_key=STORAGE_KEY,
    registry_password="a password of the registry",  # noqa: S106
)


def vm_plan(**changes: Any) -> RunPlan:
    return azure_plan(id="run", service="vm", **changes)


def resources(plan: RunPlan, kind: str) -> dict[str, dict[str, Any]]:
    body = vm_template.deployment(plan, 1, VM_ACCOUNT, GIVEN)
    listed = body["properties"]["template"]["resources"]
    return {each["name"]: each for each in listed if each["type"].endswith(f"/{kind}")}


def script(plan: RunPlan, node: int = 0) -> str:
    return vm_template.script(plan, node, VM_ACCOUNT, GIVEN)


def test_the_dry_run_has_everything_but_secrets() -> None:
    plan = vm_plan(image="images.example.com/bench:1")
    request = AzureVmProvider(VM_ACCOUNT).render(plan, 2)
    text = msgspec.json.encode(request).decode()
    assert [step.handle.kind for step in request.steps] == ["files", "group"]
    assert {step.handle.id for step in request.steps} == {"run-a2"}
    for placeholder in (
        "(key of the storage account)",
        "(read-only address of push.json)",
        "(password of the registry)",
    ):
        assert placeholder in text
    for secret in (STORAGE_KEY, BATCH_KEY, "a password of the registry", "sig="):
        assert secret not in text


def test_what_is_sent_differs_from_the_dry_run_by_what_was_not_told_only() -> None:
    plan = vm_plan()
    rendered = AzureVmProvider(VM_ACCOUNT).render(plan, 1).steps[-1].body
    [shown] = [body for path, body in rendered.items() if "deployments" in path]
    sent = vm_template.deployment(plan, 1, VM_ACCOUNT, GIVEN)
    text = json.dumps(sent["properties"]["template"]).replace("1234", vm_template.placeholders(plan).shut_down_at)
    text = text.replace(GIVEN.public_key, vm_template.placeholders(plan).public_key)
    assert json.loads(text) == shown["properties"]["template"]


def test_scripts_are_secure_parameters() -> None:
    body = vm_template.deployment(vm_plan(), 1, VM_ACCOUNT, GIVEN)["properties"]
    assert {each["type"] for each in body["template"]["parameters"].values()} == {"secureString"}
    assert body["template"]["parameters"].keys() == body["parameters"].keys() == {"script0", "script1"}
    assert "sig=" not in json.dumps(body["template"])
    assert STORAGE_KEY not in json.dumps(body["template"])


def test_nobody_reaches_in() -> None:
    [walls] = resources(vm_plan(), "networkSecurityGroups").values()
    rules = [rule["properties"] for rule in walls["properties"]["securityRules"]]
    assert [(rule["direction"], rule["access"], rule["sourceAddressPrefix"]) for rule in rules] == [
        ("Inbound", "Deny", "Internet")
    ]
    [network] = resources(vm_plan(), "virtualNetworks").values()
    assert all("networkSecurityGroup" in subnet["properties"] for subnet in network["properties"]["subnets"])


def test_each_node_has_its_address_and_its_schedule() -> None:
    plan = vm_plan()
    interfaces = resources(plan, "networkInterfaces")
    addresses = [
        interfaces[f"node-{node}"]["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"]
        for node in range(2)
    ]
    assert addresses == ["10.77.0.10", "10.77.0.11"]
    assert "CLOUDBENCH_NODE_ADDRESS=10.77.0.11 CLOUDBENCH_MAIN_ADDRESS=10.77.0.10" in script(plan, 1)
    schedules = resources(plan, "schedules")
    assert schedules.keys() == {"shutdown-computevm-node-0", "shutdown-computevm-node-1"}
    for schedule in schedules.values():
        assert schedule["properties"]["dailyRecurrence"] == {"time": "1234"}
        assert schedule["properties"]["status"] == "Enabled"
        assert schedule["dependsOn"] == [schedule["properties"]["targetResourceId"]]


def test_addresses_go_on_beyond_a_hundred_nodes() -> None:
    assert vm_template.private_address(179) == "10.77.0.189"
    assert vm_template.private_address(250) == "10.77.1.4"


@pytest.mark.parametrize(("priority", "spot"), [("dedicated", False), ("low-priority", True)])
def test_low_priority_is_a_spot_machine(priority: str, spot: bool) -> None:
    machine = resources(vm_plan(priority=priority), "virtualMachines")["node-0"]["properties"]
    assert (machine.get("priority") == "Spot") is spot
    assert ("evictionPolicy" in machine) is spot
    assert machine["hardwareProfile"] == {"vmSize": find_size("azure", "NC6").name}


def test_group_and_resources_carry_whose_they_are() -> None:
    tags = vm_template.group(vm_plan(), 3, VM_ACCOUNT, GIVEN)["tags"]
    assert (tags["cloudbench_owner"], tags["cloudbench_run"], tags["cloudbench_attempt"]) == (
        "conformance-owner",
        "run",
        "3",
    )
    for kind in ("virtualMachines", "publicIPAddresses", "schedules"):
        assert all(each["tags"]["cloudbench_run"] == "run" for each in resources(vm_plan(), kind).values())


@pytest.mark.parametrize("storage", ["local", "azure-files"])
@pytest.mark.parametrize("image", [None, "images.example.com/bench:1"])
def test_the_script_is_one_that_a_shell_reads(storage: str, image: str | None) -> None:
    text = script(vm_plan(storage=storage, image=image))
    assert text.startswith("#!/bin/sh\n")
    subprocess.run(["/bin/sh", "-n"], input=text, text=True, check=True)
    program = text.split("cat >talk.py <<'END OF FILE'\n")[1].split("END OF FILE\n")[0]
    ast.parse(program, feature_version=(3, 8))
    assert ("docker login" in text) == ("--image" in text) == (image is not None)
    assert ("mount -t cifs //benchstore.file.core.windows.net/cloudbench" in text) == (storage == "azure-files")


def test_a_script_has_no_secret_in_a_command() -> None:
    text = script(vm_plan(image="images.example.com/bench:1"))
    commands = text.split("{\n")[-1]
    for secret in (STORAGE_KEY, "a password of the registry", "sig="):
        assert secret in text
        assert secret not in commands


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"storage": "azure-blob"}, "azure-blob"), ({"sku": None}, "machine size"), ({"nodes": 181}, "180 machines")],
)
def test_what_virtual_machines_do_not_have_is_refused(changes: dict[str, Any], told: str) -> None:
    plan = vm_plan(nodes=changes.pop("nodes", 2))
    plan = msgspec.structs.replace(plan, setup=msgspec.structs.replace(plan.setup, **changes))
    with pytest.raises(SpecError, match=told):
        vm_template.render(plan, 1, VM_ACCOUNT)
