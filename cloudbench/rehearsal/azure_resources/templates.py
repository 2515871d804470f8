"""Deployment templates: expanded with their parameters, and held against what the service knows.

Of the template language the functions `parameters` and `base64` are known; everything else is refused.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from cloudbench.catalog import find_size
from cloudbench.errors import SpecError
from cloudbench.rehearsal.azure_resources.wire import Body, RefusedError
from cloudbench.rehearsal.guest import way_around

KNOWN = {
    "Microsoft.Compute/virtualMachines": ("2024-07-01",),
    "Microsoft.DevTestLab/schedules": ("2018-09-15",),
    "Microsoft.Network/networkInterfaces": ("2024-05-01",),
    "Microsoft.Network/networkSecurityGroups": ("2024-05-01",),
    "Microsoft.Network/publicIPAddresses": ("2024-05-01",),
    "Microsoft.Network/virtualNetworks": ("2024-05-01",),
}
"""Resource types, and the api-versions in which they can be deployed."""

IMAGES = {("microsoft-dsvm", "ubuntu-hpc", "2204"), ("microsoft-dsvm", "ubuntu-hpc", "2404")}
LONGEST_USER_DATA = 65535  # bytes, before it is put into base64

_TEMPLATE_KEYS = {"$schema", "contentVersion", "parameters", "resources", "outputs"}
_RESOURCE_KEYS = {"type", "apiVersion", "name", "location", "tags", "sku", "dependsOn", "properties", "zones"}
_TYPES = {"string", "securestring", "int", "bool", "object", "secureobject", "array"}
_EXPRESSION = re.compile(r"\[(?!\[)(.*)\]", re.DOTALL)
_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_TEXT = re.compile(r"'((?:[^']|'')*)'")


def expand(properties: Body, scope: str) -> list[Body]:
    """The resources of a deployment with their ids, all expressions evaluated.

    Args:
        properties: the deployment's, with `template` and `parameters`.
        scope: the id of the resource group.

    Raises:
        RefusedError: 400; the template, a type, an api-version or a value is not known.
    """
    template = properties.get("template")
    if not isinstance(template, dict) or template.keys() - _TEMPLATE_KEYS:
        raise invalid(f"the template has properties other than {', '.join(sorted(_TEMPLATE_KEYS))}")
    if not {"$schema", "contentVersion", "resources"} <= template.keys():
        raise invalid("the required properties '$schema', 'contentVersion' and 'resources' are not all there")
    values = _values(template.get("parameters") or {}, properties.get("parameters") or {})
    resources = [_evaluated(resource, values) for resource in template["resources"]]
    for resource in resources:
        _check(resource)
        resource["id"] = f"{scope}/providers/{resource['type']}/{resource['name']}"
    _check_dependencies(resources)
    for resource in resources:
        if resource["type"] == "Microsoft.Compute/virtualMachines":
            _check_machine(resource["properties"])
        elif resource["type"] == "Microsoft.DevTestLab/schedules":
            _check_schedule(resource)
    return resources


def is_secret(template: Body, parameter: str) -> bool:
    """Whether the service never tells the value of a parameter again."""
    return str(template["parameters"][parameter]["type"]).lower().startswith("secure")


def invalid(why: str) -> RefusedError:
    """The refusal of a template."""
    return RefusedError(400, "InvalidTemplate", f"Deployment template validation failed: '{why}'.")


def user_data(machine: Body) -> str:
    """The script that a virtual machine begins with; empty where it has none."""
    return base64.b64decode((machine.get("osProfile") or {}).get("customData") or "", validate=True).decode()


def _values(declared: Body, given: Body) -> Body:
    for name in given.keys() - declared.keys():
        raise invalid(f"the template parameters '{name}' in the parameters file are not valid")
    values = {}
    for name, declaration in declared.items():
        if str(declaration.get("type")).lower() not in _TYPES:
            raise invalid(f"the type of the template parameter '{name}' is not known")
        if "value" not in given.get(name, {}) and "defaultValue" not in declaration:
            raise invalid(f"the value for the template parameter '{name}' is not provided")
        values[name] = given.get(name, {}).get("value", declaration.get("defaultValue"))
    return values


def _evaluated(value: Any, parameters: Body) -> Any:
    if isinstance(value, Mapping):
        return {key: _evaluated(inner, parameters) for key, inner in value.items()}
    if isinstance(value, list):
        return [_evaluated(inner, parameters) for inner in value]
    expression = _EXPRESSION.fullmatch(value) if isinstance(value, str) else None
    return _called(expression[1].strip(), parameters) if expression else value


def _called(text: str, parameters: Body) -> Any:
    if literal := _TEXT.fullmatch(text):
        return literal[1].replace("''", "'")
    call = _CALL.fullmatch(text)
    name = call[1].lower() if call else ""
    if call is None or name not in ("parameters", "base64"):
        raise invalid(f"the template language expression '{text}' is not known to this stand-in")
    argument = _called(call[2].strip(), parameters)
    if name == "base64":
        return base64.b64encode(str(argument).encode()).decode()
    if argument not in parameters:
        raise invalid(f"the template parameter '{argument}' is not found")
    return parameters[argument]


def _check(resource: Body) -> None:
    for key in ("type", "apiVersion", "name", "location", "properties"):
        if key not in resource:
            raise invalid(f"the resource {resource.get('name')!r} has no {key}")
    if unknown := resource.keys() - _RESOURCE_KEYS:
        raise invalid(f"could not find member '{min(unknown)}' on object of type 'TemplateResource'")
    kind, version = resource["type"], resource["apiVersion"]
    if kind not in KNOWN:
        raise RefusedError(400, "InvalidResourceType", f"The resource type '{kind}' could not be found.")
    if version not in KNOWN[kind]:
        why = f"No registered resource provider found for location '{resource['location']}' and API version '{version}'"
        supported = ", ".join(KNOWN[kind])
        message = f"{why} for type '{kind}'. The supported api-versions are '{supported}'."
        raise RefusedError(400, "NoRegisteredProviderFound", message)


def _check_dependencies(resources: list[Body]) -> None:
    ids = [resource["id"].lower() for resource in resources]
    for resource in resources:
        if ids.count(resource["id"].lower()) > 1:
            raise invalid(f"the resource '{resource['id']}' is defined multiple times in a template")
        for needed in resource.get("dependsOn") or ():
            if needed.lower() not in ids:
                raise invalid(f"the resource '{needed}' is not defined in the template")
        for needed in _ids_in(resource["properties"]):
            if needed.lower().partition("/subnets/")[0] not in ids:
                message = f"Resource {needed} referenced by resource {resource['id']} was not found."
                raise RefusedError(400, "InvalidResourceReference", message)


def _ids_in(value: Any) -> list[str]:
    """The ids of other resources that a resource names."""
    if isinstance(value, Mapping):
        return [found for inner in value.values() for found in _ids_in(inner)]
    if isinstance(value, list):
        return [found for inner in value for found in _ids_in(inner)]
    return [value] if isinstance(value, str) and value.startswith("/subscriptions/") else []


def _check_machine(machine: Body) -> None:
    size = (machine.get("hardwareProfile") or {}).get("vmSize")
    try:
        known = find_size("azure", str(size)).name
    except SpecError:
        known = ""
    if known != size:
        message = f"The value {size} provided for the VM size is not valid."
        raise RefusedError(400, "InvalidParameter", message)
    reference = (machine.get("storageProfile") or {}).get("imageReference") or {}
    if tuple(reference.get(key) for key in ("publisher", "offer", "sku")) not in IMAGES:
        raise RefusedError(404, "PlatformImageNotFound", f"The platform image {reference} is not available.")
    if (machine.get("priority") == "Spot") != ("evictionPolicy" in machine):
        message = "Eviction policy can be set only on Azure Spot Virtual Machines, which need it."
        raise RefusedError(400, "OperationNotAllowed", message)
    profile = machine.get("osProfile") or {}
    linux = profile.get("linuxConfiguration") or {}
    keys = (linux.get("ssh") or {}).get("publicKeys") or ()
    if not (profile.get("adminPassword") or (linux.get("disablePasswordAuthentication") and keys)):
        message = "Authentication using either SSH or by user name and password must be enabled in Linux profile."
        raise RefusedError(400, "InvalidParameter", message)
    try:
        script = user_data(machine)
    except ValueError:
        script = None
    if script is None or len(script.encode()) > LONGEST_USER_DATA:
        message = "Custom data in OSProfile must be in Base64 encoding and with a maximum length of 87380 characters."
        raise RefusedError(400, "InvalidParameter", message)
    if (found := way_around(script)) is not None:
        message = f"custom data with {found!r} would reach the machine that rehearses: name programs alone"
        raise RefusedError(400, "NotForRehearsal", message)


def _check_schedule(resource: Body) -> None:
    schedule, target = resource["properties"], str(resource["properties"].get("targetResourceId"))
    time = str((schedule.get("dailyRecurrence") or {}).get("time"))
    if schedule.get("taskType") != "ComputeVmShutdownTask" or schedule.get("timeZoneId") != "UTC":
        raise RefusedError(400, "InvalidRequestContent", "This stand-in knows shutdown schedules in UTC only.")
    if resource["name"] != f"shutdown-computevm-{target.rsplit('/', 1)[-1]}":
        message = f"The name of the schedule of {target} must be 'shutdown-computevm-' and the machine's."
        raise RefusedError(400, "InvalidScheduleId", message)
    if not re.fullmatch(r"([01]\d|2[0-3])[0-5]\d", time):
        raise RefusedError(400, "InvalidDailyRecurrence", f"'{time}' is not a time of day.")
