"""What a person has set about Azure, and the account that it makes."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cloudbench.cli.cloud_settings import CloudSettings, is_url
from cloudbench.errors import CredentialsError

if TYPE_CHECKING:
    from cloudbench.providers.azure.account import AzureAccount

_AZURE: dict[str, tuple[str | None, str]] = {
    "batch_endpoint": ("AZURE_BATCH_ENDPOINT", "the Batch account's URL, https://NAME.REGION.batch.azure.com"),
    "batch_account": ("AZURE_BATCH_ACCOUNT", "the Batch account's name; by default the first word of its URL"),
    "batch_key": ("AZURE_BATCH_ACCESS_KEY", "a key of the Batch account; without one `az login` speaks"),
    "storage_account": ("AZURE_STORAGE_ACCOUNT", "the storage account that has the file share"),
    "storage_key": ("AZURE_STORAGE_KEY", "a key of the storage account; nodes need it to mount the share"),
    "files_endpoint": ("AZURE_FILES_ENDPOINT", "the file service's URL, where it is not the public cloud's"),
    "share": ("AZURE_FILES_SHARE", "the file share; by default cloudbench"),
    "subscription": ("AZURE_SUBSCRIPTION_ID", "the subscription, for --service vm"),
    "region": ("AZURE_REGION", "the region, for --service vm"),
    "resources_endpoint": ("AZURE_RESOURCES_ENDPOINT", "Azure Resource Manager's URL, where it is another cloud's"),
    "resources_token": ("AZURE_RESOURCES_TOKEN", "what a stand-in of Resource Manager takes in place of a sign-in"),
    "registry_server": ("AZURE_REGISTRY_SERVER", "the private registry that container images come from"),
    "registry_username": ("AZURE_REGISTRY_USERNAME", "who pulls from it"),
    "registry_password": ("AZURE_REGISTRY_PASSWORD", "the password for that"),
    "registry_identity": ("AZURE_REGISTRY_IDENTITY", "or the managed identity of the pool that pulls from it"),
}
"""Each setting of Azure with the variable that it is also known by, and what it is."""

_SECRET = ("batch_key", "storage_key", "registry_password", "resources_token")
_SETTINGS = CloudSettings(cloud="azure", title="Azure", known=_AZURE, secret=_SECRET)
_NEEDED = {"batch": ("batch_endpoint", "storage_account"), "vm": ("subscription", "region", "storage_account")}
_STORAGE_ACCOUNT = re.compile("[a-z0-9]{3,24}")


def parse_azure_options(assignments: Sequence[str]) -> dict[str, str]:
    """The settings in `--azure KEY=VALUE`.

    Raises:
        UsageError: not a setting, or a secret: everybody on this machine can read a command line.
    """
    return _SETTINGS.parse(assignments)


def azure_account(options: Mapping[str, str], service: str, *, complete: bool = True) -> AzureAccount:
    """The account that is set: by the options, then `$CLOUDBENCH_AZURE_…`, then `$AZURE_…`, then `config.toml`.

    Args:
        service: `batch` or `vm`, which need different settings.
        complete: refuse an account of which something is missing; else it says itself what.

    Raises:
        CredentialsError: something is missing, or a key is none; it tells what, and where to set it.
        UsageError: `config.toml` cannot be read, or a setting cannot be right.
    """
    from cloudbench.providers.azure.account import SHARE_NAME, AzureAccount, Registry, Secret, files_endpoint

    found = _SETTINGS.look_up(options)
    missing = _SETTINGS.missing(found, _NEEDED[service])
    if missing and complete:
        raise CredentialsError(missing.what, why=missing.why, todo=missing.todo)
    for key in ("batch_endpoint", "files_endpoint", "resources_endpoint"):
        _SETTINGS.refuse_wrong(found, key, lambda text: is_url(_url(text)), "a URL")
    _SETTINGS.refuse_wrong(
        found, "storage_account", _STORAGE_ACCOUNT.fullmatch, "a name of 3 to 24 lower-case letters and digits"
    )
    words = "a name of 3 to 63 lower-case letters, digits and single hyphens"
    _SETTINGS.refuse_wrong(found, "share", SHARE_NAME.fullmatch, words)
    for key in ("batch_key", "storage_key"):
        if key in found and not _is_key(found[key]):
            raise CredentialsError(
                f"{key} is not a key", why="keys of Azure are base64 text", todo=_SETTINGS.origin(key)
            )
    found = {**{key: f"({key})" for key in _NEEDED[service]}, **found}
    secrets = {key: Secret(found[key]) for key in _SECRET if key in found}
    batch_endpoint = _url(found.get("batch_endpoint", ""))
    registry = found.get("registry_server")
    return AzureAccount(
        batch_account=found.get("batch_account") or (urlsplit(batch_endpoint).hostname or "").partition(".")[0],
        batch_endpoint=batch_endpoint,
        batch_key=secrets.get("batch_key"),
        storage_account=found["storage_account"],
        storage_key=secrets.get("storage_key"),
        files_endpoint=_url(found.get("files_endpoint") or files_endpoint(found["storage_account"])),
        share=found.get("share", "cloudbench"),
        region=found.get("region"),
        subscription=found.get("subscription"),
        registry=Registry(
            server=registry,
            username=found.get("registry_username"),
            password=secrets.get("registry_password"),
            identity=found.get("registry_identity"),
        )
        if registry
        else None,
        resources_endpoint=_url(found.get("resources_endpoint", "https://management.azure.com")),
        resources_token=secrets.get("resources_token"),
        missing=missing,
    )


def azure_variables(values: Mapping[str, str]) -> dict[str, str]:
    """Settings as the variables that set them."""
    return _SETTINGS.variables(values)


def _is_key(text: str) -> bool:
    try:
        return bool(base64.b64decode(text.strip(), validate=True))
    except ValueError:
        return False


def _url(text: str) -> str:
    return text if not text or "://" in text else f"https://{text}"
