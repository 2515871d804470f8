"""Resource groups with their deployments and what those made. Everything changes under the world's lock."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import uuid4

from cloudbench.rehearsal.azure_resources import templates
from cloudbench.rehearsal.azure_resources.virtual_machines import (
    MountableShares,
    VirtualMachine,
    allocate,
    shut_down_at,
)
from cloudbench.rehearsal.azure_resources.wire import Body, RefusedError, error_body, stamp

if TYPE_CHECKING:
    from cloudbench.rehearsal.azure_batch.world import AzureWorld

GROUP_NAME = re.compile(r"[-\w.()]{0,89}[-\w()]")
_DEPLOYMENT_KEYS = {"mode", "template", "parameters", "debugSetting"}
_MACHINES = "Microsoft.Compute/virtualMachines"
_SCHEDULES = "Microsoft.DevTestLab/schedules"
_STILL_ENDING_S = 0.1
_FAILED = (
    "At least one resource deployment operation failed. Please list deployment operations for details. "
    "Please see https://aka.ms/arm-deployment-operations for usage details."
)
_REFUSED = "The template deployment '{name}' is not valid according to the validation procedure. See inner errors."


class Deployment:
    """One deployment: what it was given, and how far its machines are."""

    def __init__(self, world: AzureWorld, group: Group, name: str, properties: Body) -> None:
        self.name = name
        self.id = f"{group.id}/providers/Microsoft.Resources/deployments/{name}"
        self.resources = templates.expand(properties, group.id)
        self.machines: list[VirtualMachine] = []
        self._world = world
        self._mode = properties["mode"]
        self._began_at = world.now
        self._correlation = str(uuid4())
        template = properties["template"]
        # Values of secure parameters are never told again.
        self._parameters = {
            key: {"type": declared["type"]}
            | ({} if templates.is_secret(template, key) else properties.get("parameters", {}).get(key, {}))
            for key, declared in (template.get("parameters") or {}).items()
        }

    @property
    def state(self) -> str:
        """Its provisioning state, from that of its machines."""
        states = {machine.state for machine in self.machines}
        if "Creating" in states:
            return "Running"
        return "Failed" if "Failed" in states else "Succeeded"

    def error(self) -> Body | None:
        """Why it failed; None where it did not."""
        failed = [error_body(*machine.error) for machine in self.machines if machine.error]
        return error_body("DeploymentFailed", _FAILED, failed) if failed and self.state == "Failed" else None

    def body(self, *, just_begun: bool = False) -> Body:
        """The deployment as the service shows it."""
        properties: Body = {
            "mode": self._mode,
            "provisioningState": "Accepted" if just_begun else self.state,
            "timestamp": stamp(self._world.now),
            "duration": f"PT{self._world.now - self._began_at:.7f}S",
            "correlationId": self._correlation,
            "parameters": self._parameters,
        }
        error = self.error()
        if error:
            properties["error"] = error
        return {
            "id": self.id,
            "name": self.name,
            "type": "Microsoft.Resources/deployments",
            "properties": properties,
        }

    def operations(self) -> list[Body]:
        """One operation for each resource."""
        machines = {machine.id: machine for machine in self.machines}
        return [self._operation(resource, machines.get(resource["id"])) for resource in self.resources]

    def _operation(self, resource: Body, machine: VirtualMachine | None) -> Body:
        state = {"Creating": "Running", "Failed": "Failed"}.get(machine.state if machine else "", "Succeeded")
        properties: Body = {
            "provisioningOperation": "Create",
            "provisioningState": state,
            "timestamp": stamp(self._world.now),
            "statusCode": {"Running": "Accepted", "Failed": "Conflict"}.get(state, "OK"),
            "targetResource": {
                "id": resource["id"],
                "resourceType": resource["type"],
                "resourceName": resource["name"],
            },
        }
        if machine and machine.error:
            properties["statusMessage"] = {"status": "Failed", "error": error_body(*machine.error)}
        name = resource["name"].replace("/", "-")
        return {"id": f"{self.id}/operations/{name}", "operationId": name, "properties": properties}


class Group:
    """A resource group."""

    def __init__(self, world: AzureWorld, subscription: str, name: str, body: Body) -> None:
        self.id = f"/subscriptions/{subscription}/resourceGroups/{name}"
        self.name = name
        self.location: str = body["location"]
        self.tags: dict[str, str] = dict(body.get("tags") or {})
        self.state = "Succeeded"
        self.deployments: dict[str, Deployment] = {}
        self._world = world

    @property
    def machines(self) -> list[VirtualMachine]:
        """All virtual machines in it."""
        return [machine for deployment in self.deployments.values() for machine in deployment.machines]

    @property
    def resources(self) -> list[Body]:
        """All resources in it, as templates describe them."""
        return [resource for deployment in self.deployments.values() for resource in deployment.resources]

    def body(self) -> Body:
        """The group as the service shows it."""
        return {
            "id": self.id,
            "name": self.name,
            "type": "Microsoft.Resources/resourceGroups",
            "location": self.location,
            "tags": self.tags,
            "properties": {"provisioningState": self.state},
        }

    def deploy(self, name: str, body: Body, shares: MountableShares | None) -> Deployment:
        """Begin a deployment.

        Raises:
            RefusedError: 400 for what is asked, 409 while one of that name goes on.
        """
        properties = body.get("properties")
        if not isinstance(properties, dict) or properties.keys() - _DEPLOYMENT_KEYS or body.keys() - {"properties"}:
            raise RefusedError(400, "InvalidRequestContent", "The request content was invalid.")
        if properties.get("mode") != "Incremental":
            raise RefusedError(400, "InvalidDeploymentMode", "This stand-in deploys in the mode 'Incremental' only.")
        known = self.deployments.get(name.lower())
        if known and known.state == "Running":
            message = f"Unable to edit or replace deployment '{name}': previous deployment is still active."
            raise RefusedError(409, "DeploymentActive", message)
        if known:
            raise RefusedError(409, "PropertyChangeNotAllowed", "Changing property 'customData' is not allowed.")
        deployment = Deployment(self._world, self, name, properties)
        self._refuse_what_cannot_be_had(deployment)
        self._make_machines(deployment)
        self.deployments[name.lower()] = deployment
        allocate(deployment.machines, self._world, shares)
        self._arrange_schedules(deployment)
        return deployment

    def delete(self, gone: Callable[[Group], None]) -> None:
        """Begin to delete it with all that is in it; `gone` is called once nothing is left."""
        if self.state == "Deleting":
            return
        self.state = "Deleting"
        for machine in self.machines:
            machine.delete()
        self._world.timers.after(self._world.scenario.delete_s, lambda: self._finish(gone))

    def _finish(self, gone: Callable[[Group], None]) -> None:
        if all(machine.ended for machine in self.machines):
            gone(self)
        else:
            self._world.timers.after(_STILL_ENDING_S, lambda: self._finish(gone))

    def _refuse_what_cannot_be_had(self, deployment: Deployment) -> None:
        """What the service finds before anything is made: quota, and sizes that a region does not have."""
        wanted = self._world.scenario.allocation_error or ""
        sizes = [
            resource["properties"]["hardwareProfile"]["vmSize"]
            for resource in deployment.resources
            if resource["type"] == _MACHINES
        ]
        details = []
        if sizes and "quota" in wanted.lower():
            message = (
                f"Operation could not be completed as it results in exceeding approved {sizes[0]} Family Cores quota. "
                f"Additional details - Deployment Model: Resource Manager, Location: {self.location}, "
                "Current Limit: 0, Current Usage: 0"
            )
            details = [error_body("QuotaExceeded", message)]
        elif sizes and wanted.lower() in ("unsupportedvmsize", "skunotavailable"):
            message = (
                f"The requested VM size for resource 'Following SKUs have failed for Capacity Restrictions: {sizes[0]}'"
                f" is currently not available in location '{self.location}'. Please try another size or deploy to a "
                "different location or different zone. See https://aka.ms/azureskunotavailable for details."
            )
            details = [error_body("SkuNotAvailable", message)]
        if details:
            message = _REFUSED.format(name=deployment.name)
            raise RefusedError(400, "InvalidTemplateDeployment", message, details=details)

    def _make_machines(self, deployment: Deployment) -> None:
        addresses = {
            resource["id"].lower(): resource["properties"]["ipConfigurations"][0]["properties"].get("privateIPAddress")
            for resource in deployment.resources
            if resource["type"] == "Microsoft.Network/networkInterfaces"
        }
        for resource in deployment.resources:
            if resource["type"] == _MACHINES:
                interface = resource["properties"]["networkProfile"]["networkInterfaces"][0]["id"]
                machine = self._world.machines.start(f"{self.name}-{resource['name']}")
                private = str(addresses[interface.lower()])
                deployment.machines.append(VirtualMachine(self._world, resource, machine, private))

    def _arrange_schedules(self, deployment: Deployment) -> None:
        machines = {machine.id.lower(): machine for machine in deployment.machines}
        for resource in deployment.resources:
            schedule = resource["properties"]
            if resource["type"] != _SCHEDULES or schedule.get("status") != "Enabled":
                continue
            after = shut_down_at(schedule, self._world.now) - self._world.now
            self._world.timers.after(after, machines[schedule["targetResourceId"].lower()].deallocate)
