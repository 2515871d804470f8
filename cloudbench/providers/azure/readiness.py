"""Whether an Azure account is ready for runs: a list of findings, from reading alone."""

from __future__ import annotations

from collections.abc import Callable

from cloudbench.errors import CloudbenchError, CredentialsError
from cloudbench.providers.azure.account import AzureAccount
from cloudbench.providers.azure.batch import AzureBatchProvider
from cloudbench.providers.azure.share import Share
from cloudbench.providers.azure.vm import AzureVmProvider
from cloudbench.providers.base import Provider
from cloudbench.providers.findings import Finding as Finding


def find_out(account: AzureAccount, *, owner: str, service: str = "batch") -> list[Finding]:
    """Look at the settings, the service (its images as well), the share, and at what is left of that owner's runs.

    Args:
        service: `batch` or `vm`.
    """
    if account.missing:
        missing = account.missing
        return [_failed(CredentialsError(missing.what, why=missing.why, todo=missing.todo))]
    return _look_at_machines(account, owner) if service == "vm" else _look_at_batch(account, owner)


def _look_at_machines(account: AzureAccount, owner: str) -> list[Finding]:
    provider, share = AzureVmProvider(account), Share(account)
    speaks = "a stand-in on this machine" if account.is_stand_in else "with the sign-in of this machine"
    try:
        return [
            Finding(
                state="ok",
                what=f"subscription {account.subscription} in {account.region}, {speaks}; "
                f"share {account.share} of storage account {account.storage_account}",
            ),
            _asked(lambda: _share(share, account)),
            _keys(account),
            _asked(lambda: _left(provider, owner)),
            Finding(
                state="note",
                what="quotas are not looked at: Azure tells before a machine is made where one is reached",
                todo=f"az vm list-usage --location {account.region}",
            ),
        ]
    finally:
        provider.close()
        share.close()


def _look_at_batch(account: AzureAccount, owner: str) -> list[Finding]:
    batch, share = AzureBatchProvider(account), Share(account)
    try:
        return [
            _settings(account),
            _asked(lambda: _image(batch)),
            _asked(lambda: _share(share, account)),
            _keys(account),
            _asked(lambda: _left(batch, owner)),
            Finding(
                state="note",
                what="quotas are not looked at: Batch tells them only to who manages the account",
                todo=f"az batch account show --name {account.batch_account} --resource-group GROUP",
            ),
        ]
    finally:
        batch.close()
        share.close()


def _settings(account: AzureAccount) -> Finding:
    speaks = "a shared key" if account.batch_key else "the sign-in of this machine"
    where = " (a stand-in on this machine)" if account.is_stand_in else ""
    return Finding(
        state="ok",
        what=f"Batch account {account.batch_account} at {account.batch_endpoint}{where}, with {speaks}; "
        f"share {account.share} of storage account {account.storage_account}",
    )


def _image(batch: AzureBatchProvider) -> Finding:
    image = batch.machine_image()
    name = " ".join(image.reference[key] for key in ("publisher", "offer", "sku"))
    return Finding(state="ok", what=f"the Batch account answers; nodes start from {name} ({image.node_agent})")


def _share(share: Share, account: AzureAccount) -> Finding:
    if share.exists():
        return Finding(state="ok", what=f"share {account.share} is there")
    return Finding(
        state="failed",
        what=f"storage account {account.storage_account} has no share {account.share}",
        todo=f"az storage share-rm create --storage-account {account.storage_account} --name {account.share}",
    )


def _keys(account: AzureAccount) -> Finding:
    if account.storage_key:
        return Finding(state="ok", what="a key of the storage account is set: nodes can mount the share")
    return Finding(
        state="note",
        what="no key of the storage account is set: nodes can push their logs, and mount nothing",
        todo="set $CLOUDBENCH_AZURE_STORAGE_KEY, or use --storage local",
    )


def _left(provider: Provider, owner: str) -> Finding:
    left = [f"{handle.kind} {handle.id}" for handle in provider.find(owner)]
    if not left:
        return Finding(state="ok", what=f"nothing of {owner} is left there")
    return Finding(
        state="note",
        what=f"{len(left)} things of {owner} are there: {', '.join(left)}",
        todo="cloudbench status tells which runs they belong to; cloudbench cancel RUN takes them away",
    )


def _asked(ask: Callable[[], Finding]) -> Finding:
    try:
        return ask()
    except CloudbenchError as error:
        return _failed(error)


def _failed(error: CloudbenchError) -> Finding:
    code = 3 if isinstance(error, CredentialsError) else 4
    todo = None if error.todo == "cloudbench doctor --provider azure" else error.todo
    return Finding(state="failed", what=error.what, why=error.why, todo=todo, exit_code=code)
