"""Azure Resource Manager, as far as runs on virtual machines need it: groups, their deployment, and listings."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from cloudbench.errors import CapacityError, CredentialsError, InfrastructureError, QuotaError
from cloudbench.providers.azure.account import AzureAccount, needs_sdk, service_words, sign_in, translated
from cloudbench.providers.azure.share import RUN
from cloudbench.providers.azure.vm_status import outcome_of, words_of
from cloudbench.run import Outcome

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken
    from azure.core.exceptions import HttpResponseError
    from azure.mgmt.resource.resources import ResourceManagementClient

DEPLOYMENTS_API, COMPUTE_API = "2024-03-01", "2024-07-01"
_FORCED = "Microsoft.Compute/virtualMachines"  # deleted without a shutdown: they are billed until they are gone


class Resources:
    """The resource groups of one subscription. Each call reaches the service; nothing is kept.

    Every method raises our errors only.
    """

    def __init__(self, account: AzureAccount) -> None:
        self._account = account

    @functools.cached_property
    def _client(self) -> ResourceManagementClient:
        return resources_client(self._account)

    def close(self) -> None:
        """Close the connections."""
        if "_client" in self.__dict__:
            self._client.close()

    def group(self, name: str) -> dict[str, Any] | None:
        """A resource group; None where there is none."""
        return self._get(f"/resourcegroups/{name}", f"looking for the resource group {name}")

    def deployment(self, name: str) -> dict[str, Any] | None:
        """The deployment of the group of that name; None where there is none."""
        return self._get(_deployment(name), f"asking for the deployment {name}")

    def operations(self, name: str) -> list[dict[str, Any]]:
        """What the deployment of a group did for each resource."""
        path = f"/resourcegroups/{name}/deployments/{name}/operations"
        found = self._get(path, f"asking what the deployment {name} did") or {}
        return list(found.get("value") or ())

    def make_group(self, name: str, body: Mapping[str, Any]) -> None:
        """Make a resource group, or give it these tags."""
        with translated(f"making the resource group {name}"):
            self._client.resource_groups.create_or_update(name, dict(body))

    def deploy(self, name: str, body: Mapping[str, Any]) -> None:
        """Begin the deployment of a group; one that goes on already is ours.

        Raises:
            QuotaError, CapacityError: Azure knows beforehand that it cannot be had.
        """
        from azure.core.exceptions import HttpResponseError

        with translated(f"making the deployment {name}"):
            try:
                self._send("PUT", _deployment(name), DEPLOYMENTS_API, body)
            except HttpResponseError as error:
                if error.status_code != 409:
                    _refuse(f"making the machines of {name}", error)

    def delete_group(self, name: str) -> None:
        """Begin to delete a resource group with all that is in it; one that is not there is no error."""
        from azure.core.exceptions import ResourceNotFoundError

        with translated(f"deleting the resource group {name}"):
            try:
                self._client.resource_groups.begin_delete(name, force_deletion_types=_FORCED, polling=False)
            except ResourceNotFoundError:
                return

    def groups(self, tag: str = RUN, value: str | None = None) -> list[dict[str, Any]]:
        """All groups with a tag, or with that value of it."""
        wanted = f"tagName eq '{tag}'"
        if value is not None:
            wanted += " and tagValue eq '{}'".format(value.replace("'", "''"))
        with translated("listing resource groups"):
            return [group.as_dict() for group in self._client.resource_groups.list(filter=wanted)]

    def machines(self) -> dict[str, dict[str, dict[str, Any]]]:
        """All virtual machines of the subscription with their status: by group, in lower case, and name."""
        found: dict[str, dict[str, dict[str, Any]]] = {}
        path = "/providers/Microsoft.Compute/virtualMachines"
        with translated("listing virtual machines"):
            page = self._send("GET", path, COMPUTE_API, statusOnly="true")
            while True:
                for machine in page.get("value") or ():
                    group = str(machine["id"]).split("/")[4].lower()  # the listing has it in capitals at times
                    found.setdefault(group, {})[machine["name"].lower()] = machine
                if not page.get("nextLink"):
                    return found
                page = self._follow(page["nextLink"])

    def _get(self, path: str, doing: str) -> dict[str, Any] | None:
        from azure.core.exceptions import ResourceNotFoundError

        with translated(doing):
            try:
                return self._send("GET", path, DEPLOYMENTS_API)
            except ResourceNotFoundError as error:
                words = service_words(error)
                if words.startswith("SubscriptionNotFound"):
                    raise CredentialsError(
                        f"{doing}: the sign-in does not see the subscription {self._account.subscription}", why=words
                    ) from None
                return None

    def _send(
        self, method: str, path: str, version: str, body: Mapping[str, Any] | None = None, **query: str
    ) -> dict[str, Any]:
        """A request for which the SDK has no method, or none that only asks once."""
        from azure.core.rest import HttpRequest

        path = f"/subscriptions/{self._account.subscription}{path}"
        json = None if body is None else dict(body)
        return self._answered(HttpRequest(method, path, params={"api-version": version, **query}, json=json))

    def _follow(self, address: str) -> dict[str, Any]:
        from azure.core.rest import HttpRequest

        return self._answered(HttpRequest("GET", address))

    def _answered(self, request: Any) -> dict[str, Any]:
        from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError

        response = self._client.send_request(request)
        try:
            response.raise_for_status()
        except HttpResponseError as error:
            kinds = {401: ClientAuthenticationError, 404: ResourceNotFoundError}
            raise kinds.get(response.status_code, HttpResponseError)(response=response) from error
        return dict(response.json())


class _StandInCredential:
    """In place of a sign-in, which no stand-in gets; the policy of `resources_client` sends what it takes."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        raise NotImplementedError


def resources_client(account: AzureAccount) -> ResourceManagementClient:
    """A client of the subscription.

    Raises:
        UsageError: the SDK is not installed.
        CredentialsError: a stand-in without its token.
    """
    with needs_sdk():
        from azure.core.pipeline.policies import HeadersPolicy
        from azure.mgmt.resource.resources import ResourceManagementClient

    subscription, endpoint = account.subscription or "", account.resources_endpoint
    if account.is_stand_in and account.resources_token and urlsplit(endpoint).hostname == "127.0.0.1":
        # The SDK's own policy sends no token over plain http; a stand-in's opens nothing else.
        policy = HeadersPolicy({"Authorization": f"Bearer {account.resources_token.reveal()}"})
        return ResourceManagementClient(
            _StandInCredential(), subscription, endpoint, authentication_policy=policy, retry_backoff_factor=0.1
        )
    return ResourceManagementClient(sign_in(account), subscription, endpoint)


def _refuse(doing: str, error: HttpResponseError) -> NoReturn:
    """Raise what a deployment was refused for; the causes stand in the details of the service's answer.

    Raises:
        QuotaError, CapacityError, HttpResponseError: the last one where it is neither.
    """
    try:
        response: Any = error.response
        body = response.json().get("error") or {}
    except (AttributeError, ValueError):  # no answer, or none in JSON
        body = {}
    outcome, words = outcome_of(body), words_of(body)
    if outcome is Outcome.QUOTA:
        raise QuotaError(f"{doing}: the account's quota does not allow it", why=words) from None
    if outcome is Outcome.NO_CAPACITY:
        raise CapacityError(f"{doing}: there is no such machine to be had", why=words) from None
    if error.status_code == 400:
        raise InfrastructureError(f"{doing}: Azure refused it", why=words) from None
    raise error


def _deployment(name: str) -> str:
    return f"/resourcegroups/{name}/providers/Microsoft.Resources/deployments/{name}"
