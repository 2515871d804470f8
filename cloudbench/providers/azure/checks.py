"""What stands against a run on Azure before anything is made, for both of its services."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cloudbench.catalog import find_size, retirement_problem
from cloudbench.errors import CloudbenchError, CredentialsError, UsageError
from cloudbench.plan import RunPlan
from cloudbench.providers.azure.account import AzureAccount
from cloudbench.providers.azure.share import Share
from cloudbench.providers.base import Problem


def check_size(plan: RunPlan) -> list[Problem]:
    """Whether the plan names a machine size that can be had; in a rehearsal a retired one is a warning."""
    if plan.setup.sku is None:
        what = f"{plan.label}: Azure needs a machine size"
        return [Problem(severity="error", what=what, todo="--sku NC4as_T4_v3", exit_code=2)]
    found = retirement_problem(find_size("azure", plan.setup.sku), rehearsal=plan.rehearsal)
    if found is None:
        return []
    return [Problem(severity=found.severity, what=found.what, why=found.why, todo=found.todo, exit_code=4)]


def check_needs(plan: RunPlan, account: AzureAccount, *, mounted: str | None, image: str | None) -> Iterator[Problem]:
    """What the plan needs of the account, or of the machines' own image.

    Args:
        mounted: the storage that nodes mount, if they do.
        image: the container image, if there is one.
    """
    if mounted and account.storage_key is None and account.missing is None:
        yield Problem(
            severity="error",
            what=f"storage {mounted}: nodes cannot mount it without a key of the storage account",
            todo="set $CLOUDBENCH_AZURE_STORAGE_KEY, or use --storage local",
            exit_code=CredentialsError.exit_code,
        )
    if plan.requires and image is None and not plan.rehearsal:
        what = f"no --image: the machines' own Python must have {', '.join(plan.requires)}"
        yield Problem(severity="warning", what=what)


def refuse_missing_share(share: Share, account: AzureAccount) -> None:
    """Look for the share.

    Raises:
        UsageError: it is not there.
    """
    if not share.exists():
        raise UsageError(
            f"storage account {account.storage_account} has no share {account.share}",
            todo=f"az storage share-rm create --storage-account {account.storage_account} --name {account.share}",
        )


@contextlib.contextmanager
def errors_as_problems(problems: list[Problem]) -> Iterator[None]:
    """Add an error that is raised within to the problems."""
    try:
        yield
    except CloudbenchError as error:
        problems.append(
            Problem(severity="error", what=error.what, why=error.why, todo=error.todo, exit_code=error.exit_code)
        )
