"""What a person has set about clouds: options, then variables, then `config.toml`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import platformdirs

from cloudbench.errors import CredentialsError, UsageError, did_you_mean

if TYPE_CHECKING:
    from cloudbench.providers.azure.account import AzureAccount
    from cloudbench.providers.base import Problem

_AZURE: dict[str, tuple[str, str]] = {
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
_NEEDED = {"batch": ("batch_endpoint", "storage_account"), "vm": ("subscription", "region", "storage_account")}


def parse_azure_options(assignments: Sequence[str]) -> dict[str, str]:
    """The settings in `--azure KEY=VALUE`.

    Raises:
        UsageError: not a setting, or a secret: everybody on this machine can read a command line.
    """
    found = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or key not in _AZURE:
            raise UsageError(
                f"--azure {key}: expected KEY=VALUE with one of the settings{did_you_mean(key, _AZURE)}",
                todo=", ".join(key for key in _AZURE if key not in _SECRET),
            )
        if key in _SECRET:
            raise UsageError(
                f"--azure {key}: others on this machine can read a command line",
                todo=f"set ${_variable(key)}, or {key} in {_config_path()}",
            )
        found[key] = value
    return found


def azure_account(options: Mapping[str, str], service: str, *, complete: bool = True) -> AzureAccount:
    """The account that is set: by the options, then `$CLOUDBENCH_AZURE_…`, then `$AZURE_…`, then `config.toml`.

    Args:
        service: `batch` or `vm`, which need different settings.
        complete: refuse an account of which something is missing; else it says itself what.

    Raises:
        CredentialsError: something is missing; it lists what, and where to set it.
        UsageError: `config.toml` cannot be read.
    """
    from cloudbench.providers.azure.account import AzureAccount, Registry, Secret, files_endpoint

    found = {key: value for key in _AZURE if (value := _look_up(key, options))}
    missing = _missing(found, service)
    if missing and complete:
        raise CredentialsError(missing.what, why=missing.why, todo=missing.todo)
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
    return {_variable(key): value for key, value in values.items() if key in _AZURE}


def _missing(found: Mapping[str, str], service: str) -> Problem | None:
    from cloudbench.providers.base import Problem

    missing = [key for key in _NEEDED[service] if key not in found]
    if not missing:
        return None
    return Problem(
        severity="error",
        what=f"no Azure account is set: {', '.join(missing)} missing",
        why="; ".join(f"{key} is {_AZURE[key][1]}" for key in missing),
        todo=f"export {' '.join(f'{_variable(key)}=…' for key in missing)}, or set them under [azure] in "
        f"{_config_path()}; docs/azure.md says what to create; --rehearse needs none of it",
        exit_code=CredentialsError.exit_code,
    )


def _look_up(key: str, options: Mapping[str, str]) -> str | None:
    configured = _config().get(key)
    return options.get(key) or os.environ.get(_variable(key)) or os.environ.get(_AZURE[key][0]) or configured


def _variable(key: str) -> str:
    return f"CLOUDBENCH_AZURE_{key.upper()}"


def _url(text: str) -> str:
    return text if not text or "://" in text else f"https://{text}"


def _config_path() -> Path:
    """`config.toml` in `$CLOUDBENCH_HOME`, else in the platform's folder for configuration."""
    configured = os.environ.get("CLOUDBENCH_HOME")
    folder = Path(configured).expanduser() if configured else platformdirs.user_config_path("cloudbench")
    return folder / "config.toml"


def _config() -> dict[str, str]:
    """What `[azure]` in `config.toml` sets.

    Raises:
        UsageError: the file cannot be read, or sets what is no setting.
    """
    path = _config_path()
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read", why=str(error), todo="check the file, or take it away") from error
    table = _parse_toml(text, path).get("azure", {})
    if not isinstance(table, dict):
        raise UsageError(f"{path}: azure: is not a table", todo="begin it with [azure]")
    for key, value in table.items():
        if key not in _AZURE:
            raise UsageError(f"{path}: azure.{key}: there is no such setting{did_you_mean(key, _AZURE)}")
        if not isinstance(value, str):
            raise UsageError(f"{path}: azure.{key}: is not text", todo=f'{key} = "…"')
    return table


def _parse_toml(text: str, path: Path) -> dict[str, Any]:
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        return dict(toml.loads(text))
    except ValueError as error:
        raise UsageError(f"{path}: is not TOML", why=str(error), todo="correct the file") from error
