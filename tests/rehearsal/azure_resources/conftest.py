"""A subscription on this machine for every test, driven by the real SDK, on a clock that the test turns."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.policies import HeadersPolicy
from azure.core.rest import HttpRequest
from azure.mgmt.resource.resources import ResourceManagementClient

from cloudbench.rehearsal.azure_batch.scenario import Scenario
from cloudbench.rehearsal.azure_resources import MountableShares, ResourcesStandIn
from cloudbench.rehearsal.clock import Clock
from cloudbench.rehearsal.machines import Machines

from .contract import Contract, contract

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
TOKEN = "a token that opens this stand-in and nothing else"  # noqa: S105
PATIENCE_S = 120.0

# Delays that no slow machine reaches by itself; turning the clock on by a minute ends them.
SLOW = {"allocation_s": 30.0, "boot_s": 20.0, "delete_s": 50.0}

ACCOUNT, KEY = "benchstore", base64.b64encode(b"a key of the storage account").decode()


class NoCredential:
    """The policy of the client sends the token."""

    def get_token(self, *scopes: str, **options: Any) -> Any:
        raise NotImplementedError


class Subscription:
    """A stand-in with its clock, its machines and a client that is the real SDK."""

    def __init__(self, root: Path, seen: Contract | None, scenario: Scenario | None = None) -> None:
        self._ends = ExitStack()
        self.clock = Clock()
        self.machines = Machines(root / "nodes", containers=False)
        self.root = root
        self._ends.callback(self.machines.close)
        (root / "share").mkdir()
        shares = MountableShares(account=ACCOUNT, key=KEY, folders=lambda: {"bench": root / "share"})
        self.stand_in = ResourcesStandIn(
            self.machines, self.clock, subscription=SUBSCRIPTION, token=TOKEN, scenario=scenario, shares=shares
        )
        self._ends.callback(self.stand_in.close)
        self.url = self.stand_in.start()
        self._hook = {"raw_response_hook": seen.check} if seen else {}
        self.client = self.connect()

    def connect(self, token: str | None = TOKEN) -> ResourceManagementClient:
        """A client with that token."""
        policy = HeadersPolicy({"Authorization": f"Bearer {token}"} if token else {})
        client = ResourceManagementClient(
            NoCredential(),
            SUBSCRIPTION,
            self.url,
            authentication_policy=policy,
            retry_backoff_factor=0.01,
            polling_interval=0,
            **self._hook,
        )
        self._ends.callback(client.close)
        return client

    def close(self) -> None:
        """End it all; a fault of the stand-in fails the test."""
        self._ends.close()
        assert self.stand_in.faults == []

    def send(self, method: str, path: str, body: Any = None, version: str = "2024-03-01", **query: str) -> Any:
        """The JSON of an answer to a request for which the SDK has no method.

        Raises:
            HttpResponseError: it is refused.
        """
        url = f"/subscriptions/{SUBSCRIPTION}{path}"
        request = HttpRequest(method, url, params={"api-version": version, **query}, json=body)
        response = self.client.send_request(request)
        response.raise_for_status()
        return response.json()

    def group(self, name: str = "run", **tags: str) -> None:
        """Make a group."""
        self.client.resource_groups.create_or_update(name, {"location": "eastus", "tags": tags})

    def deploy(self, resources: list[Any], group: str = "run", parameters: dict[str, Any] | None = None) -> Any:
        """Deploy these resources, as `main`."""
        return self.send("PUT", deployment(group), body(resources, parameters))

    def deployed(self, group: str = "run") -> Any:
        """The deployment's properties."""
        return self.send("GET", deployment(group))["properties"]

    def powers(self) -> dict[str, str]:
        """The power state of every machine."""
        path = "/providers/Microsoft.Compute/virtualMachines"
        listed = self.send("GET", path, version="2024-07-01", statusOnly="true")["value"]
        return {machine["name"]: power(machine["properties"]["instanceView"]["statuses"]) for machine in listed}

    def disk(self, machine: str, group: str = "run") -> Path:
        """What stands in for a machine's disk."""
        return self.root / "nodes" / f"{group}-{machine}"

    def said(self, machine: str = "vm") -> str:
        """What a machine's script has printed so far."""
        path = self.disk(machine) / "cloud-init-output.log"
        return path.read_text() if path.exists() else ""


def power(statuses: list[dict[str, str]]) -> str:
    """The power state among statuses."""
    found = [status["code"] for status in statuses if status["code"].startswith("PowerState/")]
    return found[0].partition("/")[2] if found else ""


def deployment(group: str = "run") -> str:
    """The path of the deployment `main`."""
    return f"/resourcegroups/{group}/providers/Microsoft.Resources/deployments/main"


def body(resources: list[Any], parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    """A deployment of these resources; the parameters are secure strings."""
    given = parameters or {}
    return {
        "properties": {
            "mode": "Incremental",
            "template": {
                "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
                "contentVersion": "1.0.0.0",
                "parameters": {name: {"type": "secureString"} for name in given},
                "resources": resources,
            },
            "parameters": {name: {"value": value} for name, value in given.items()},
        }
    }


def resource_id(kind: str, name: str, group: str = "run") -> str:
    """A resource's id."""
    return f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/{kind}/{name}"


def machine(name: str = "vm", script: str = "", address: str = "10.77.0.10", **more: Any) -> list[dict[str, Any]]:
    """A virtual machine that begins with a script, and its interface."""
    interface = resource_id("Microsoft.Network/networkInterfaces", name)
    ip = {"privateIPAllocationMethod": "Static", "privateIPAddress": address}
    profile = {
        "computerName": name,
        "adminUsername": "bench",
        "linuxConfiguration": {
            "disablePasswordAuthentication": True,
            "ssh": {"publicKeys": [{"path": "authorized_keys", "keyData": "ssh-ed25519 AAAA"}]},
        },
        "customData": script if script.startswith("[") else base64.b64encode(script.encode()).decode(),
    }
    return [
        {
            "type": "Microsoft.Network/networkInterfaces",
            "apiVersion": "2024-05-01",
            "name": name,
            "location": "eastus",
            "properties": {"ipConfigurations": [{"name": "own", "properties": ip}]},
        },
        {
            "type": "Microsoft.Compute/virtualMachines",
            "apiVersion": "2024-07-01",
            "name": name,
            "location": "eastus",
            "dependsOn": [interface],
            "properties": {
                "hardwareProfile": {"vmSize": "Standard_NC6"},
                "storageProfile": {
                    "imageReference": {
                        "publisher": "microsoft-dsvm",
                        "offer": "ubuntu-hpc",
                        "sku": "2204",
                        "version": "latest",
                    }
                },
                "osProfile": profile,
                "networkProfile": {"networkInterfaces": [{"id": interface}]},
                **more,
            },
        },
    ]


def schedule(name: str, time: str) -> dict[str, Any]:
    """What shuts a machine down at a time of day."""
    target = resource_id("Microsoft.Compute/virtualMachines", name)
    return {
        "type": "Microsoft.DevTestLab/schedules",
        "apiVersion": "2018-09-15",
        "name": f"shutdown-computevm-{name}",
        "location": "eastus",
        "dependsOn": [target],
        "properties": {
            "status": "Enabled",
            "taskType": "ComputeVmShutdownTask",
            "dailyRecurrence": {"time": time},
            "timeZoneId": "UTC",
            "targetResourceId": target,
        },
    }


def refusal(call: Callable[[], Any]) -> tuple[int, str]:
    """The status and the error code with which a call is refused."""
    with pytest.raises(HttpResponseError) as refused:
        call()
    error = refused.value.response.json()["error"]  # type: ignore[union-attr]
    assert error["message"]
    return refused.value.response.status_code, error["code"]  # type: ignore[union-attr]


def until(holds: Callable[[], bool]) -> None:
    """Wait for what other threads and processes bring about."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def seen() -> Contract | None:
    return contract()


Play = Callable[..., Subscription]


@pytest.fixture
def play(tmp_path: Path, seen: Contract | None) -> Iterator[Play]:
    """Begin a subscription whose service goes by these fields of a scenario."""
    begun: list[Subscription] = []

    def play(**fields: Any) -> Subscription:
        root = tmp_path / f"subscription-{len(begun)}"
        root.mkdir()
        begun.append(Subscription(root, seen, Scenario(**{**SLOW, **fields})))
        return begun[-1]

    yield play
    for subscription in begun:
        subscription.close()


@pytest.fixture
def subscription(play: Play) -> Subscription:
    return play()
