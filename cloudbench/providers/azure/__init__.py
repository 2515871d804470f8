"""Azure as a provider: Batch pools and plain virtual machines, with an Azure file share for what nodes write."""

from __future__ import annotations

from cloudbench.errors import UsageError, did_you_mean
from cloudbench.providers.azure.account import AzureAccount
from cloudbench.providers.base import Provider

__all__ = ["SERVICES", "AzureAccount", "azure_provider", "check_service"]

SERVICES = ("batch",)


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


def azure_provider(account: AzureAccount, *, service: str | None) -> Provider:
    """The provider of one of Azure's services.

    Args:
        service: `batch`, also where it is None.

    Raises:
        UsageError: no such service.
    """
    check_service(service)
    from cloudbench.providers.azure.batch import AzureBatchProvider

    return AzureBatchProvider(account)
