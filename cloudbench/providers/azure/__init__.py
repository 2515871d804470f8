"""Azure as a provider: Batch pools and plain virtual machines, with an Azure file share for what nodes write."""

from __future__ import annotations

from cloudbench.errors import UsageError, did_you_mean
from cloudbench.providers.azure.account import AzureAccount
from cloudbench.providers.base import Provider

__all__ = ["SERVICES", "AzureAccount", "azure_provider", "check_service"]

SERVICES = ("batch", "vm")


def check_service(service: str | None) -> str:
    """The service that is meant: `batch` where it is None.

    Raises:
        UsageError: there is no such service.
    """
    if service is None:
        return SERVICES[0]
    if service not in SERVICES:
        raise UsageError(
            f"the azure provider has no service {service!r}{did_you_mean(service, SERVICES)}",
            todo=" or ".join(f"--service {name}" for name in SERVICES),
        )
    return service


def azure_provider(account: AzureAccount, *, service: str | None, one_by_one: bool = False) -> Provider:
    """The provider of one of Azure's services.

    Args:
        service: `vm`, or `batch`, also where it is None.
        one_by_one: runs take turns, because they use the same machines.

    Raises:
        UsageError: no such service.
    """
    if check_service(service) == "vm":
        from cloudbench.providers.azure.vm import AzureVmProvider

        return AzureVmProvider(account)
    from cloudbench.providers.azure.batch import AzureBatchProvider

    return AzureBatchProvider(account, one_by_one=one_by_one)
