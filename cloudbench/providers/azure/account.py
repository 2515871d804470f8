"""The Azure account: names, endpoints and keys, the clients that speak for it, and its errors in our words."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from cloudbench.errors import (
    CapacityError,
    CloudbenchError,
    CredentialsError,
    InfrastructureError,
    QuotaError,
    UsageError,
)
from cloudbench.plan import STAND_IN
from cloudbench.providers.base import Problem
from cloudbench.providers.secret import Secret as Secret

if TYPE_CHECKING:
    from azure.batch import BatchClient
    from azure.core.credentials import TokenCredential
    from azure.core.exceptions import HttpResponseError
    from azure.storage.fileshare import ShareClient

API_VERSION = "2025-06-01"
"""Of Batch, for the requests that the SDK has no method for that does just that."""
SHARE_NAME = re.compile("(?!.{64})(?=.{3})[a-z0-9]+(-[a-z0-9]+)*")
"""What a file share can be called, or a container for blobs."""
_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 60
_SHARE_READ_TIMEOUT_S = 20  # a share that hangs must not hold up the end of a run
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Registry(msgspec.Struct, frozen=True, kw_only=True):
    """Where private container images come from: by a name and a password, or by the pool's managed identity."""

    server: str
    username: str | None = None
    password: Secret | None = None
    identity: str | None = None


class AzureAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Whose machines and whose share are used.

    Without `batch_key` or `storage_key` the person's own sign-in speaks (`az login`, a managed identity, …).
    `resources_token` stands in for a sign-in where Azure Resource Manager is a stand-in. `missing` is why the account
    cannot be used yet; what is not set stands as `(name of the setting)` in requests then.
    """

    batch_account: str = ""
    batch_endpoint: str = ""
    batch_key: Secret | None = None
    storage_account: str
    storage_key: Secret | None = None
    files_endpoint: str
    share: str = "cloudbench"
    region: str | None = None
    subscription: str | None = None
    registry: Registry | None = None
    resources_endpoint: str = "https://management.azure.com"
    resources_token: Secret | None = None
    missing: Problem | None = None

    def name(self, service: str) -> str:
        """What a journal records of a run on `batch` or `vm`, and every later command must match."""
        whose = self.subscription if service == "vm" else self.batch_account
        return f"{STAND_IN if self.is_stand_in else ''}{whose}/{self.storage_account}/{self.share}"

    @property
    def is_stand_in(self) -> bool:
        """Whether the endpoint is on this machine, and so costs nothing."""
        return urlsplit(self.files_endpoint).hostname in _LOOPBACK

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Everything that must not be told."""
        password = self.registry.password if self.registry else None
        return tuple(filter(None, (self.batch_key, self.storage_key, self.resources_token, password)))


def files_endpoint(storage_account: str) -> str:
    """Where the file service of a storage account in the public cloud answers."""
    return f"https://{storage_account}.file.core.windows.net"


def batch_client(account: AzureAccount) -> BatchClient:
    """A client of the Batch account.

    Raises:
        UsageError: the SDK is not installed.
    """
    with needs_sdk():
        from azure.batch import BatchClient
        from azure.core.credentials import AzureNamedKeyCredential
    credential = (
        AzureNamedKeyCredential(account.batch_account, account.batch_key.reveal())
        if account.batch_key
        else sign_in(account)
    )
    return BatchClient(
        endpoint=account.batch_endpoint,
        credential=credential,
        connection_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
    )


def share_client(account: AzureAccount) -> ShareClient:
    """A client of the share.

    Raises:
        UsageError: the SDK is not installed.
    """
    with needs_sdk():
        from azure.core.credentials import AzureNamedKeyCredential
        from azure.storage.fileshare import LinearRetry, ShareClient
    options: dict[str, Any] = (
        {"credential": AzureNamedKeyCredential(account.storage_account, account.storage_key.reveal())}
        if account.storage_key
        else {"credential": sign_in(account), "token_intent": "backup"}
    )
    return ShareClient(
        account.files_endpoint,
        account.share,
        retry_policy=LinearRetry(backoff=2, retry_total=3),
        connection_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_SHARE_READ_TIMEOUT_S,
        **options,
    )


def sign_in(account: AzureAccount) -> TokenCredential:
    """The person's own sign-in.

    Raises:
        UsageError: the SDK is not installed.
        CredentialsError: the endpoint is a stand-in, to which no real token is ever sent.
    """
    if account.is_stand_in:
        raise CredentialsError(
            "a stand-in takes its own keys only", todo="cloudbench rehearse --serve prints what to set"
        )
    with needs_sdk():
        from azure.identity import DefaultAzureCredential
    return DefaultAzureCredential()


@contextlib.contextmanager
def needs_sdk() -> Iterator[None]:
    """Tell what to install where an import of Azure's SDKs fails."""
    try:
        yield
    except ImportError as error:
        raise UsageError(
            "the Azure provider needs Azure's Python packages",
            why=str(error),
            todo="pip install 'cloudbench[azure]'",
        ) from error


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn the SDK's errors into ours; `doing` is what was tried, such as `making the job NAME`.

    Raises:
        CredentialsError: refused for who we are; QuotaError, CapacityError: for what is asked;
        InfrastructureError: anything else.
    """
    from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

    try:
        yield
    except ClientAuthenticationError as error:
        raise _credentials_error(doing, service_words(error) or _first_line(error)) from None
    except HttpResponseError as error:
        raise _translate(doing, error) from None
    except AzureError as error:
        raise InfrastructureError(
            f"{doing}: Azure does not answer", why=_first_line(error), todo="cloudbench doctor --provider azure"
        ) from None


def _translate(doing: str, error: HttpResponseError) -> CloudbenchError:
    words = service_words(error)
    if error.status_code in (401, 403):
        return _credentials_error(doing, words)
    code = words.partition(":")[0].lower()
    if "quota" in code:
        return QuotaError(f"{doing}: the account's quota does not allow it", why=words)
    if code in ("overconstrainedallocationrequesterror", "unsupportedvmsize", "allocationfailed", "skunotavailable"):
        return CapacityError(f"{doing}: there is no such machine to be had", why=words)
    return InfrastructureError(f"{doing}: Azure refused it ({error.status_code})", why=words)


def _credentials_error(doing: str, words: str) -> CredentialsError:
    return CredentialsError(
        f"{doing}: Azure refused the credentials", why=words, todo="cloudbench doctor --provider azure"
    )


_NOT_TOLD = ("propertyvalue", "authenticationerrordetail")
"""Details of an error that repeat what was sent, keys included."""


def service_words(error: HttpResponseError) -> str:
    """The service's own words, as `Code: message`, without anything that was sent to it."""
    code = getattr(error, "error_code", None)
    body = _body(error)
    body = body.get("error", body) if isinstance(body, dict) else {}
    message = body.get("message")
    message = message.get("value") if isinstance(message, dict) else message
    details = [
        f"{item.get('key')}: {item.get('value')}"
        for item in body.get("values") or ()
        if str(item.get("key")).lower() not in _NOT_TOLD
    ]
    code = body.get("code") or (getattr(code, "value", code))
    first = str(message or "").strip().partition("\n")[0] or (error.reason or "")
    return "; ".join([": ".join(filter(None, [code and str(code), first])), *details])


def _body(error: HttpResponseError) -> Any:
    """The answer as it was sent; nothing where it is no JSON, or cannot be read any more."""
    from azure.core.exceptions import AzureError

    response: Any = error.response
    try:
        if hasattr(response, "read"):
            response.read()
        return msgspec.json.decode(response.text()) if response else {}
    except (msgspec.DecodeError, UnicodeDecodeError, AzureError):
        return {}


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
