"""The exact requests that put one attempt of a run on plain virtual machines. Pure.

One resource group holds everything, and one deployment makes it: a network that nobody outside reaches into, the
machines, and for each a schedule by which Azure itself takes it away at a set time. A machine begins with a script
that fetches the node program. What must not be told, or is only known when it is sent, is a `Given`; the dry run
shows the `(…)` placeholders in its place.
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from cloudbench.catalog import find_size
from cloudbench.errors import SpecError
from cloudbench.node.place import MAIN_PORT
from cloudbench.plan import RunPlan, node_job
from cloudbench.providers.azure.account import AzureAccount
from cloudbench.providers.azure.share import ATTEMPT, GIVEN, OWNER, RUN
from cloudbench.providers.base import Request, Step
from cloudbench.run import Handle

SERVICE = "vm"
NODES, PRIORITY, UNTIL = "cloudbench_nodes", "cloudbench_priority", "cloudbench_until"
"""Tags of the group beside whose it is: what later commands need to know of the attempt."""

MOST_LIFETIME_S = 23 * 3600.0
"""A schedule knows the time of day only: what is to live longer would be taken away a day too early."""

STORAGES = ("azure-files", "local")
IMAGE = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204", "version": "latest"}
_MOST_NODES = 180  # a template has 800 resources at most
_NETWORK, _FIRST_ADDRESS = "10.77.0.0/16", "10.77.0.10"  # the first addresses of a network are Azure's own
_NETWORK_API, _COMPUTE_API, _SCHEDULE_API = "2024-05-01", "2024-07-01", "2018-09-15"
_SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
_MOUNT = "/mnt/cloudbench"
_OWN_DISKS = "/mnt/resource_nvme /mnt/nvme /mnt/resource /mnt"  # the first of those that the machine has


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What is not told or not known before it is sent.

    Args:
        addresses: a read-only address of each file that a node is given.
        ended: for each node, the address of the file in which it says that it has ended.
        public_key: for the login that Azure demands; nobody has its other half.
        shut_down_at: when Azure takes the machines away, as `HHMM` in UTC.
        until: the same as an ISO time.
    """

    addresses: Mapping[str, str]
    ended: tuple[str, ...]
    public_key: str
    shut_down_at: str
    until: str
    storage_key: str
    registry_password: str


def placeholders(plan: RunPlan) -> Given:
    """What stands in a dry run in place of what is sent."""
    after = f"{plan.machines_limit_s:.0f} s after it is sent"
    return Given(
        addresses={file: f"(read-only address of {file})" for file in GIVEN},
        ended=tuple(f"(address of the file in which node {node} says its end)" for node in range(plan.nodes)),
        public_key="(a public key whose other half nobody has)",
        shut_down_at=f"(HHMM in UTC, {after})",
        until=f"({after})",
        storage_key="(key of the storage account)",
        registry_password="(password of the registry)",  # noqa: S106  # the placeholder, not a password
    )


def attempt_handle(kind: Literal["files", "group"], run: str, attempt: int) -> Handle:
    """One of the things of an attempt, as the journal knows it."""
    name = f"{run}-a{attempt}"
    return Handle(provider="azure", service=SERVICE, kind=kind, id=name, run=run, attempt=attempt)


def render(plan: RunPlan, attempt: int, account: AzureAccount) -> Request:
    """The folder on the share, then the group with its deployment.

    Raises:
        SpecError: nothing like that can be had on virtual machines.
    """
    handle, given = attempt_handle("group", plan.id, attempt), placeholders(plan)
    marks = {OWNER: plan.owner, RUN: plan.id, ATTEMPT: str(attempt)}
    files = Step(
        action=f"make the folder runs/{handle.id} on share {account.share} of {account.storage_account}",
        handle=attempt_handle("files", plan.id, attempt),
        body={
            "metadata": marks,
            **dict.fromkeys(GIVEN, "(made then)"),
            "job.json": msgspec.to_builtins(node_job(plan, attempt=attempt)),
        },
    )
    path = f"/subscriptions/{account.subscription}/resourcegroups/{handle.id}"
    job = Step(
        action="make the resource group, and all that is in it; deleting the group deletes everything",
        handle=handle,
        body={
            f"PUT {path}": group(plan, attempt, account, given),
            f"PUT {path}/providers/Microsoft.Resources/deployments/{handle.id}": deployment(
                plan, attempt, account, given
            ),
        },
    )
    return Request(plan=plan, attempt=attempt, steps=(files, job))


def group(plan: RunPlan, attempt: int, account: AzureAccount, given: Given) -> dict[str, Any]:
    """The body of the resource group."""
    tags = {NODES: str(plan.nodes), PRIORITY: plan.setup.priority, UNTIL: given.until}
    return {"location": account.region, "tags": {**_marks(plan, attempt), **tags}}


def deployment(plan: RunPlan, attempt: int, account: AzureAccount, given: Given) -> dict[str, Any]:
    """The body of the deployment; the scripts are secure parameters, which Azure never tells again."""
    if plan.setup.sku is None:
        raise SpecError(f"{plan.label}: Azure needs a machine size", todo="--sku NC4as_T4_v3")
    if plan.nodes > _MOST_NODES:
        raise SpecError(f"{plan.label}: one deployment has room for {_MOST_NODES} machines", todo="--service batch")
    name = attempt_handle("group", plan.id, attempt).id
    scope = f"/subscriptions/{account.subscription}/resourceGroups/{name}/providers"
    nodes = range(plan.nodes)
    usual = {"location": account.region, "tags": _marks(plan, attempt)}
    resources = [*_network(scope), *(found for node in nodes for found in _node(plan, node, scope, given))]
    return {
        "properties": {
            "mode": "Incremental",
            "template": {
                "$schema": _SCHEMA,
                "contentVersion": "1.0.0.0",
                "parameters": {f"script{node}": {"type": "secureString"} for node in nodes},
                "resources": [{**resource, **usual} for resource in resources],
            },
            "parameters": {f"script{node}": {"value": script(plan, node, account, given)} for node in nodes},
        }
    }


def script(plan: RunPlan, node: int, account: AzureAccount, given: Given) -> str:
    """What a machine runs first, as root: fetch the node program, run it, and say its end on the share."""
    environment = {
        "CLOUDBENCH_NODE_INDEX": str(node),
        "CLOUDBENCH_NODE_COUNT": str(plan.nodes),
        "CLOUDBENCH_NODE_ADDRESS": private_address(node),
        "CLOUDBENCH_MAIN_ADDRESS": private_address(0),
        "CLOUDBENCH_MAIN_PORT": str(MAIN_PORT),
    }
    exports = " ".join(f"{name}={value}" for name, value in environment.items())
    fetch = f"GIVEN = {dict(given.addresses)!r}\nENDED = {given.ended[node]!r}\n{_TALK}"
    steps = ["python3 talk.py fetch", *_storage(plan, account), *_login(plan, account), _start(plan)]
    steps.append('python3 "$D/cloudbench-node.pyz" wait --out "$D/out"')
    files = {"talk.py": fetch, **_secret_files(plan, account, given)}
    return "\n".join(
        [
            "#!/bin/sh",
            "umask 077",
            f'export {exports} HOME="${{HOME:-/root}}"',
            'D=/var/lib/cloudbench; mkdir -p "$D"; cd "$D" || exit 1',
            *(f"cat >{file} <<'END OF FILE'\n{text}END OF FILE" for file, text in files.items()),
            "{",
            " &&\n".join(steps),
            "} >said.log 2>&1",
            "python3 talk.py end",
            "",
        ]
    )


def private_address(node: int) -> str:
    """The address of a node in the network of its group."""
    return str(ipaddress.ip_address(_FIRST_ADDRESS) + node)


def storage_of(plan: RunPlan) -> str:
    """Where the job finds room for its data: `azure-files` or `local`.

    Raises:
        SpecError: nothing of that name can be had.
    """
    storage = plan.setup.storage or "azure-files"
    if storage not in STORAGES:
        raise SpecError(
            f"storage {storage}: virtual machines of Azure have none of that name here",
            todo="--storage azure-files or local; --service batch mounts blobs",
        )
    return storage


# Runs on the machine. Addresses are secrets: they are in this file, and in no command line and no message.
_TALK = """
import http.client, sys, time, urllib.request

def ask(method, address, data=None, headers={}):
    for pause_s in (1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60):
        try:
            request = urllib.request.Request(address, data, headers, method=method)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read()
        except (OSError, http.client.HTTPException) as error:
            code = getattr(error, "code", None)
            print(method, "failed:", code or getattr(error, "reason", None) or type(error).__name__, flush=True)
            if code in (403, 404):
                break
            time.sleep(pause_s)
    sys.exit("the share does not answer, or refuses")

if sys.argv[1] == "fetch":
    for name, address in GIVEN.items():
        data = ask("GET", address)
        with open(name, "wb") as file:
            file.write(data)
else:
    with open("said.log", "rb") as file:
        said = file.read()[-4096:] or b"\\n"
    ask("PUT", ENDED, b"", {"x-ms-type": "file", "x-ms-content-length": str(len(said))})
    where = "bytes=0-%d" % (len(said) - 1)
    ask("PUT", ENDED + "&comp=range", said, {"x-ms-range": where, "x-ms-write": "update"})
"""


def _storage(plan: RunPlan, account: AzureAccount) -> list[str]:
    """Make CLOUDBENCH_STORAGE: the share, or a folder on the machine's own disk."""
    if storage_of(plan) == "azure-files":
        where = shlex.quote(f"//{urlsplit(account.files_endpoint).netloc}/{account.share}")
        options = '"credentials=$D/share.credentials,vers=3.1.1,dir_mode=0777,file_mode=0777,serverino,nosharesock"'
        return [
            "{ command -v mount.cifs || { apt-get -q update; apt-get -qy install cifs-utils; }; }",
            f"export CLOUDBENCH_STORAGE={_MOUNT} && mkdir -p {_MOUNT}",
            f"mount -t cifs {where} {_MOUNT} -o {options}",
        ]
    return [
        f'for P in {_OWN_DISKS} "$D"; do [ -w "$P" ] && break; done',
        'export CLOUDBENCH_STORAGE="$P/cloudbench-data" && mkdir -p "$CLOUDBENCH_STORAGE"',
    ]


def _login(plan: RunPlan, account: AzureAccount) -> list[str]:
    registry = account.registry
    if image_of(plan) is None or registry is None or registry.password is None:
        return []
    user = shlex.quote(registry.username or "")
    return [f"docker login --username {user} --password-stdin {shlex.quote(registry.server)} <registry.password"]


def _secret_files(plan: RunPlan, account: AzureAccount, given: Given) -> dict[str, str]:
    files = {}
    if storage_of(plan) == "azure-files":
        files["share.credentials"] = f"username={account.storage_account}\npassword={given.storage_key}\n"
    if _login(plan, account):
        files["registry.password"] = f"{given.registry_password}\n"
    return files


def _start(plan: RunPlan) -> str:
    image = image_of(plan)
    options = f' --image {shlex.quote(image)} --mount "$CLOUDBENCH_STORAGE:$CLOUDBENCH_STORAGE"' if image else ""
    return f'python3 "$D/cloudbench-node.pyz" start --files "$D" --out "$D/out"{options}'


def image_of(plan: RunPlan) -> str | None:
    """The container image, `None` where ranks run on the machine's own Python."""
    return None if plan.image in (None, "none") else plan.image


def _marks(plan: RunPlan, attempt: int) -> dict[str, str]:
    return {OWNER: plan.owner, RUN: plan.id, ATTEMPT: str(attempt)}


def _network(scope: str) -> list[dict[str, Any]]:
    """A network of the group's own. Its machines reach out and each other; nobody reaches in."""
    deny = {
        "priority": 100,
        "direction": "Inbound",
        "access": "Deny",
        "protocol": "*",
        "sourceAddressPrefix": "Internet",
        "sourcePortRange": "*",
        "destinationAddressPrefix": "*",
        "destinationPortRange": "*",
    }
    walls = f"{scope}/Microsoft.Network/networkSecurityGroups/walls"
    subnet = {"addressPrefix": _NETWORK, "networkSecurityGroup": {"id": walls}}
    return [
        {
            "type": "Microsoft.Network/networkSecurityGroups",
            "apiVersion": _NETWORK_API,
            "name": "walls",
            "properties": {"securityRules": [{"name": "nobody-from-outside", "properties": deny}]},
        },
        {
            "type": "Microsoft.Network/virtualNetworks",
            "apiVersion": _NETWORK_API,
            "name": "network",
            "dependsOn": [walls],
            "properties": {
                "addressSpace": {"addressPrefixes": [_NETWORK]},
                "subnets": [{"name": "nodes", "properties": subnet}],
            },
        },
    ]


def _node(plan: RunPlan, node: int, scope: str, given: Given) -> list[dict[str, Any]]:
    """One machine with its address for reaching out, its interface and its schedule."""
    name = f"node-{node}"
    network = f"{scope}/Microsoft.Network/virtualNetworks/network"
    address = f"{scope}/Microsoft.Network/publicIPAddresses/{name}"
    interface = f"{scope}/Microsoft.Network/networkInterfaces/{name}"
    machine = f"{scope}/Microsoft.Compute/virtualMachines/{name}"
    ip_configuration = {
        "subnet": {"id": f"{network}/subnets/nodes"},
        "privateIPAllocationMethod": "Static",
        "privateIPAddress": private_address(node),
        "publicIPAddress": {"id": address},
    }
    schedule = {
        "status": "Enabled",
        "taskType": "ComputeVmShutdownTask",
        "dailyRecurrence": {"time": given.shut_down_at},
        "timeZoneId": "UTC",
        "notificationSettings": {"status": "Disabled", "timeInMinutes": 30},
        "targetResourceId": machine,
    }
    return [
        {
            "type": "Microsoft.Network/publicIPAddresses",
            "apiVersion": _NETWORK_API,
            "name": name,
            "sku": {"name": "Standard"},
            "properties": {"publicIPAllocationMethod": "Static"},
        },
        {
            "type": "Microsoft.Network/networkInterfaces",
            "apiVersion": _NETWORK_API,
            "name": name,
            "dependsOn": [network, address],
            "properties": {"ipConfigurations": [{"name": "own", "properties": ip_configuration}]},
        },
        {
            "type": "Microsoft.Compute/virtualMachines",
            "apiVersion": _COMPUTE_API,
            "name": name,
            "dependsOn": [interface],
            "properties": _machine(plan, node, interface, given),
        },
        {
            "type": "Microsoft.DevTestLab/schedules",
            "apiVersion": _SCHEDULE_API,
            "name": f"shutdown-computevm-{name}",
            "dependsOn": [machine],
            "properties": schedule,
        },
    ]


def _machine(plan: RunPlan, node: int, interface: str, given: Given) -> dict[str, Any]:
    key = {"path": "/home/cloudbench/.ssh/authorized_keys", "keyData": given.public_key}
    spot = {"priority": "Spot", "evictionPolicy": "Deallocate", "billingProfile": {"maxPrice": -1}}
    return {
        "hardwareProfile": {"vmSize": find_size("azure", plan.setup.sku or "").name},
        "storageProfile": {
            "imageReference": IMAGE,
            "osDisk": {
                "createOption": "FromImage",
                "deleteOption": "Delete",
                "managedDisk": {"storageAccountType": "Premium_LRS"},
            },
        },
        "osProfile": {
            "computerName": f"node-{node}",
            "adminUsername": "cloudbench",
            "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [key]}},
            "customData": f"[base64(parameters('script{node}'))]",
        },
        "networkProfile": {"networkInterfaces": [{"id": interface, "properties": {"deleteOption": "Delete"}}]},
        **(spot if plan.setup.priority == "low-priority" else {}),
    }
