"""The account that a plan runs in: the one that is set, or the stand-ins that it is rehearsed on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cloudbench.cli.rehearsals import Rehearsals
from cloudbench.errors import CredentialsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudbench.plan import RunPlan
    from cloudbench.providers.aws import AwsAccount
    from cloudbench.providers.azure import AzureAccount
    from cloudbench.store import Store


class AzureAccounts:
    """The accounts of Azure of one command.

    Args:
        options: settings that were given as options; None where the command has no such options.
        scenario: how a rehearsal that this command begins goes.
    """

    def __init__(self, store: Store, options: Mapping[str, str] | None, scenario: str | None) -> None:
        self._options = options
        self._rehearsals = Rehearsals("azure", store, scenario)

    def name(self, plan: RunPlan) -> str:
        """What a plan records of its account, and every later command must match."""
        from cloudbench.providers.azure import check_service

        return self._rehearsals.account if plan.rehearsal else self.of(plan).name(check_service(plan.setup.service))

    def of(self, plan: RunPlan) -> AzureAccount:
        """The account of the plan.

        Raises:
            CredentialsError: no account is set, or another one than the plan's.
        """
        from cloudbench.cli.azure_settings import azure_account
        from cloudbench.providers.azure import check_service

        logging.getLogger("azure").addHandler(logging.NullHandler())  # what its SDKs warn of, our errors tell
        service = check_service(plan.setup.service)
        if plan.rehearsal:
            return azure_account(self._rehearsals.settings(plan.account), service)
        # A command that submits is told by the provider's check what is missing; any other one cannot go on.
        account = azure_account(self._options or {}, service, complete=self._options is None)
        _refuse_another(plan, account.name(service), "")
        return account


class AwsAccounts:
    """The accounts of AWS of one command; the arguments are those of `AzureAccounts`."""

    def __init__(self, store: Store, options: Mapping[str, str] | None, scenario: str | None) -> None:
        self._options = options
        self._rehearsals = Rehearsals("aws", store, scenario)
        self._set: AwsAccount | None = None

    def name(self, plan: RunPlan) -> str:
        """What a plan records of its account, and every later command must match."""
        return self._rehearsals.account if plan.rehearsal else self.of(plan).name

    def of(self, plan: RunPlan) -> AwsAccount:
        """The account of the plan.

        Raises:
            CredentialsError: no account is set, or another one than the plan's.
        """
        from cloudbench.cli.aws_settings import aws_account

        if plan.rehearsal:
            return aws_account(self._rehearsals.settings(plan.account))
        if self._set is None:  # AWS is asked who we are: once
            self._set = aws_account(self._options or {}, complete=self._options is None)
        _refuse_another(plan, self._set.name, ": its profile, region and bucket")
        return self._set


def _refuse_another(plan: RunPlan, name: str, which: str) -> None:
    if plan.account not in (None, name):
        raise CredentialsError(
            f"run {plan.id} is in another account than the one that is set",
            why=f"it was submitted to {plan.account}; set is {name}",
            todo=f"set the account that it was submitted to{which}",
        )
