"""The stand-in itself: HTTP in front, everything under one lock."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import unquote
from uuid import uuid4

import msgspec

from cloudbench.rehearsal.azure_batch.scenario import Scenario
from cloudbench.rehearsal.azure_batch.world import AzureWorld
from cloudbench.rehearsal.azure_resources.groups import GROUP_NAME, Deployment, Group
from cloudbench.rehearsal.azure_resources.virtual_machines import MountableShares
from cloudbench.rehearsal.azure_resources.wire import Body, RefusedError, answer
from cloudbench.rehearsal.server import HttpServer, Request, Response

if TYPE_CHECKING:
    from cloudbench.rehearsal.clock import Clock
    from cloudbench.rehearsal.machines import Machines

RESOURCES_VERSIONS = ("2024-03-01", "2025-04-01")
COMPUTE_VERSIONS = ("2024-07-01",)
PAGE = 100

_FILTER = re.compile(r"tagName eq '([^']*)'(?: and tagValue eq '((?:[^']|'')*)')?", re.IGNORECASE)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and what its path names."""

    request: Request
    names: tuple[str, ...]

    def body(self) -> Body:
        """The JSON object that was sent.

        Raises:
            RefusedError: 400.
        """
        try:
            body = json.loads(self.request.body)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise RefusedError(400, "InvalidRequestContent", "The request content was invalid.")
        return body


class ResourcesStandIn:
    """Azure Resource Manager for one subscription on this machine.

    Real clients reach it with its endpoint as base URL. Clients refuse to send a bearer token over plain http: theirs
    wants an authentication policy that sends it all the same.

    Args:
        machines: where its virtual machines are; they outlive it, and are closed by whoever made them.
        token: the bearer token that opens it; None: any token does.
        shares: what virtual machines can mount.
    """

    def __init__(
        self,
        machines: Machines,
        clock: Clock,
        *,
        subscription: str,
        token: str | None = None,
        scenario: Scenario | None = None,
        shares: MountableShares | None = None,
    ) -> None:
        self.calls: Counter[str] = Counter()  # how often which operation was asked for, such as `GET groups`
        self._world = AzureWorld(machines, clock, scenario or Scenario())
        self._subscription = subscription
        self._token = token
        self._shares = shares
        self._groups: dict[str, Group] = {}
        self._deletions: dict[str, Group] = {}
        self._requests = 0
        self._failures_left = self._world.scenario.fail_after_success
        self._server = HttpServer(self._answer)

    @property
    def faults(self) -> list[Exception]:
        """What went wrong in the stand-in itself."""
        return [*self._server.faults, *self._world.faults]

    def start(self, port: int = 0) -> str:
        """Begin to serve; the endpoint, which clients take as their base URL."""
        self._world.url = self._server.start(port)
        self._world.start()
        return self._world.url

    def close(self) -> None:
        """End the service; its machines stay."""
        self._server.close()
        self._world.close()

    def _answer(self, request: Request) -> Response:
        try:
            self._authorize(request)
            name, versions, operation, names = self._find(request)
            self._check_version(request, versions)
            with self._world.lock:
                self.calls[name] += 1
                self._throttle()
                self._world.timers.play()
                response = operation(self, Call(request=request, names=names))
                self._world.timers.play()  # what the request brought about at once
                if response.status == 201 and self._failures_left:
                    self._failures_left -= 1
                    raise RefusedError(503, "ServiceUnavailable", "The service is temporarily unavailable.")
                return response
        except RefusedError as refusal:
            return refusal.response()

    def _authorize(self, request: Request) -> None:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        challenge = {"WWW-Authenticate": 'Bearer authorization_uri="https://login.microsoftonline.com/organizations"'}
        if kind.lower() != "bearer" or not token:
            message = "Authentication failed. The 'Authorization' header is missing."
            raise RefusedError(401, "AuthenticationFailed", message, headers=challenge)
        if self._token is not None and token != self._token:
            raise RefusedError(401, "InvalidAuthenticationToken", "The access token is invalid.", headers=challenge)

    def _find(self, request: Request) -> tuple[str, tuple[str, ...], _Operation, tuple[str, ...]]:
        path = unquote(request.path).rstrip("/")
        match = re.fullmatch(r"/subscriptions/([^/]+)((?:/.*)?)", path, re.IGNORECASE)
        if match is None or match[1].lower() != self._subscription.lower():
            message = f"The subscription '{match[1] if match else ''}' could not be found."
            raise RefusedError(404, "SubscriptionNotFound", message)
        for method, pattern, name, versions, operation in _ROUTES:
            found = re.fullmatch(pattern, match[2], re.IGNORECASE)
            if found and method == request.method:
                return f"{method} {name}", versions, operation, found.groups()
        raise RefusedError(404, "InvalidResourceType", f"The stand-in does not serve {request.method} {path}.")

    def _check_version(self, request: Request, versions: tuple[str, ...]) -> None:
        version = request.query.get("api-version")
        if version is None:
            message = "The api-version query parameter (?api-version=) is required for all requests."
            raise RefusedError(400, "MissingApiVersionParameter", message)
        if version not in versions:
            supported = ", ".join(versions)
            message = f"The api-version '{version}' is invalid. The supported versions are '{supported}'."
            raise RefusedError(400, "InvalidApiVersionParameter", message)

    def _throttle(self) -> None:
        self._requests += 1
        every = self._world.scenario.throttle_every
        if every and self._requests % every == 0:
            wait = {"Retry-After": str(self._world.scenario.retry_after_s)}
            raise RefusedError(429, "TooManyRequests", "The request is being throttled.", headers=wait)

    def _group(self, call: Call) -> Group:
        name = call.names[0]
        if name.lower() not in self._groups:
            raise RefusedError(404, "ResourceGroupNotFound", f"Resource group '{name}' could not be found.")
        return self._groups[name.lower()]

    def _deployment(self, call: Call) -> Deployment:
        group, name = self._group(call), call.names[1]
        if name.lower() not in group.deployments:
            raise RefusedError(404, "DeploymentNotFound", f"Deployment '{name}' could not be found.")
        return group.deployments[name.lower()]

    def _put_group(self, call: Call) -> Response:
        body, name = call.body(), call.names[0]
        if not GROUP_NAME.fullmatch(name):
            raise RefusedError(400, "InvalidResourceGroup", f"The resource group name '{name}' is not allowed.")
        if body.keys() - {"location", "tags", "managedBy"} or not body.get("location"):
            raise RefusedError(400, "LocationRequired", "The location property is required for this definition.")
        known = self._groups.get(name.lower())
        if known is None:
            group = self._groups[name.lower()] = Group(self._world, self._subscription, name, body)
            return answer(group.body(), 201)
        if known.state == "Deleting":
            message = f"The resource group '{name}' is in deprovisioning state and cannot perform this operation."
            raise RefusedError(409, "ResourceGroupBeingDeleted", message)
        if known.location != body["location"]:
            message = f"Invalid resource group location '{body['location']}'. It already exists in {known.location}."
            raise RefusedError(409, "InvalidResourceGroupLocation", message)
        known.tags = dict(body.get("tags") or {})
        return answer(known.body())

    def _get_group(self, call: Call) -> Response:
        return answer(self._group(call).body())

    def _head_group(self, call: Call) -> Response:
        return answer(None, 204 if call.names[0].lower() in self._groups else 404)

    def _delete_group(self, call: Call) -> Response:
        group, token = self._group(call), uuid4().hex
        group.delete(lambda gone: self._drop(gone))
        self._deletions[token] = group
        path = f"/subscriptions/{self._subscription}/operationresults/{token}"
        where = f"{self._world.url}{path}?api-version={call.request.query['api-version']}"
        return answer(None, 202, {"Location": where, "Retry-After": "1"})

    def _drop(self, group: Group) -> None:
        self._groups.pop(group.name.lower(), None)

    def _get_deletion(self, call: Call) -> Response:
        group = self._deletions.get(call.names[0])
        if group is not None and group in self._groups.values():
            where = f"{self._world.url}{call.request.path}?api-version={call.request.query['api-version']}"
            return answer(None, 202, {"Location": where, "Retry-After": "1"})
        return answer(None, 200)

    def _list_groups(self, call: Call) -> Response:
        wanted = call.request.query.get("$filter")
        groups = list(self._groups.values())
        if wanted:
            match = _FILTER.fullmatch(wanted.strip())
            if match is None:
                raise RefusedError(400, "InvalidFilterInQueryString", "Invalid $filter specified in the query string.")
            name, value = match[1].lower(), match[2] and match[2].replace("''", "'")
            groups = [group for group in groups if _has_tag(group.tags, name, value)]
        return self._page([group.body() for group in groups], call)

    def _put_deployment(self, call: Call) -> Response:
        group, name = self._group(call), call.names[1]
        if group.state == "Deleting":
            message = f"The resource group '{group.name}' is in deprovisioning state and cannot perform this operation."
            raise RefusedError(409, "ResourceGroupBeingDeleted", message)
        if not re.fullmatch(r"[-\w.()]{1,64}", name):
            raise RefusedError(400, "InvalidDeploymentName", f"The deployment name '{name}' is not valid.")
        deployment = group.deploy(name, call.body(), self._shares)
        version = call.request.query["api-version"]
        where = f"{self._world.url}{deployment.id}/operationStatuses/{uuid4().hex}?api-version={version}"
        return answer(deployment.body(just_begun=True), 201, {"Azure-AsyncOperation": where, "Retry-After": "1"})

    def _get_deployment(self, call: Call) -> Response:
        return answer(self._deployment(call).body())

    def _get_deployment_status(self, call: Call) -> Response:
        deployment = self._deployment(call)
        error = deployment.error()
        return answer({"status": deployment.state, **({"error": error} if error else {})})

    def _list_operations(self, call: Call) -> Response:
        return self._page(self._deployment(call).operations(), call)

    def _list_resources(self, call: Call) -> Response:
        shown = ("id", "name", "type", "location", "tags", "sku")
        resources = [{key: made[key] for key in shown if key in made} for made in self._group(call).resources]
        return self._page(resources, call)

    def _list_machines(self, call: Call) -> Response:
        status_only = call.request.query.get("statusOnly", "").lower() == "true"
        machines = [machine for group in self._groups.values() for machine in group.machines]
        return self._page([machine.body(status_only=status_only) for machine in machines], call)

    def _get_instance_view(self, call: Call) -> Response:
        for machine in self._group(call).machines:
            if machine.name.lower() == call.names[1].lower():
                return answer({"statuses": machine.statuses()})
        raise RefusedError(404, "ResourceNotFound", f"The resource '{call.names[1]}' was not found.")

    def _page(self, items: list[Body], call: Call) -> Response:
        """A page of a listing, with the address of the next one where there is more."""
        query = call.request.query
        first, size = int(query.get("$skiptoken", 0)), int(query.get("$top", PAGE))
        body: Body = {"value": items[first : first + size]}
        if first + size < len(items):
            kept = "".join(f"&{key}={value}" for key, value in query.items() if key in ("api-version", "statusOnly"))
            kept += f"&$filter={query['$filter']}".replace(" ", "%20") if "$filter" in query else ""
            top = f"&$top={size}" if "$top" in query else ""
            body["nextLink"] = f"{self._world.url}{call.request.path}?$skiptoken={first + size}{top}{kept}"
        return answer(body)


def _has_tag(tags: dict[str, str], name: str, value: str | None) -> bool:
    return any(key.lower() == name and (value is None or held == value) for key, held in tags.items())


_Operation = Callable[[ResourcesStandIn, Call], Response]

_GROUP = r"/resourcegroups/([^/]+)"
_DEPLOYMENT = rf"{_GROUP}/providers/Microsoft\.Resources/deployments/([^/]+)"
_COMPUTE = r"/providers/Microsoft\.Compute/virtualMachines"
_AT, _OF = RESOURCES_VERSIONS, COMPUTE_VERSIONS

_ROUTES: list[tuple[str, str, str, tuple[str, ...], _Operation]] = [
    ("GET", "/resourcegroups", "groups", _AT, ResourcesStandIn._list_groups),
    ("PUT", _GROUP, "group", _AT, ResourcesStandIn._put_group),
    ("GET", _GROUP, "group", _AT, ResourcesStandIn._get_group),
    ("HEAD", _GROUP, "group", _AT, ResourcesStandIn._head_group),
    ("DELETE", _GROUP, "group", _AT, ResourcesStandIn._delete_group),
    ("GET", r"/operationresults/(\w+)", "deletion", _AT, ResourcesStandIn._get_deletion),
    ("GET", rf"{_GROUP}/resources", "resources", _AT, ResourcesStandIn._list_resources),
    ("PUT", _DEPLOYMENT, "deployment", _AT, ResourcesStandIn._put_deployment),
    ("GET", _DEPLOYMENT, "deployment", _AT, ResourcesStandIn._get_deployment),
    ("GET", rf"{_DEPLOYMENT}/operationStatuses/\w+", "status", _AT, ResourcesStandIn._get_deployment_status),
    ("GET", rf"{_GROUP}/deployments/([^/]+)/operations", "operations", _AT, ResourcesStandIn._list_operations),
    ("GET", _COMPUTE, "machines", _OF, ResourcesStandIn._list_machines),
    ("GET", rf"{_GROUP}{_COMPUTE}/([^/]+)/instanceView", "instance view", _OF, ResourcesStandIn._get_instance_view),
]
