"""The AWS account of a plan: the one that is set, or the stand-in that the plan is rehearsed on."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from cloudbench.errors import CredentialsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudbench.plan import RunPlan
    from cloudbench.providers.aws import AwsAccount
    from cloudbench.rehearsal.aws.rehearsal import AwsEndpoints
    from cloudbench.store import Store

_REHEARSAL = "rehearsal "


class AwsAccounts:
    """The accounts of one command.

    Args:
        rehearsals: the folder with those of all commands.
        store: where the files go of nodes whose rehearsal was killed.
        options: settings of AWS that were given as options; None where the command has no such options.
        scenario: how a rehearsal that this command begins goes; all goes well where it is None.
    """

    def __init__(
        self, rehearsals: Path, store: Store, *, options: Mapping[str, str] | None, scenario: str | None
    ) -> None:
        self._rehearsals = rehearsals
        self._store = store
        self._options = options
        self._scenario = scenario
        self._rehearsal: tuple[str, AwsEndpoints] | None = None
        self._set: AwsAccount | None = None

    def name(self, plan: RunPlan) -> str:
        """What a plan records of the account, and every later command must match."""
        return f"{_REHEARSAL}{self._own_rehearsal()[0]}" if plan.rehearsal else self.account(plan).name

    def account(self, plan: RunPlan) -> AwsAccount:
        """The account of the plan.

        Raises:
            CredentialsError: no account is set, or another one than the plan's.
        """
        from cloudbench.cli.aws_settings import aws_account

        if plan.rehearsal:
            return aws_account(msgspec.structs.asdict(self._endpoints(plan.account)))
        if self._set is None:
            # A command that submits is told by the provider's check what is missing; any other one cannot go on.
            self._set = aws_account(self._options or {}, complete=self._options is None)
        if plan.account not in (None, self._set.name):
            raise CredentialsError(
                f"run {plan.id} is in another account than the one that is set",
                why=f"it was submitted to {plan.account}; set is {self._set.name}",
                todo="set the account that it was submitted to: its profile, region and bucket",
            )
        return self._set

    def _endpoints(self, recorded: str | None) -> AwsEndpoints:
        """Where the rehearsal answers that a plan was recorded with.

        Where its process is gone, so are its machines: a stand-in that holds nothing tells so.
        """
        from cloudbench.rehearsal.aws.rehearsal import AwsEndpoints
        from cloudbench.rehearsal.presence import find_endpoints

        name = (recorded or "").removeprefix(_REHEARSAL)
        if name and (self._rehearsal is None or name != self._rehearsal[0]):
            found = find_endpoints(self._rehearsals / name, AwsEndpoints)
            if found:
                return found
        return self._own_rehearsal()[1]

    def _own_rehearsal(self) -> tuple[str, AwsEndpoints]:
        """The stand-in of this command, begun when it is first needed; it ends with the command."""
        if self._rehearsal is None:
            from cloudbench.rehearsal.aws import load_scenario
            from cloudbench.rehearsal.aws.rehearsal import AwsRehearsal
            from cloudbench.rehearsal.presence import remove_dead

            scenario = load_scenario(self._scenario) if self._scenario else None
            name = secrets.token_hex(4)
            remove_dead(self._rehearsals, self._store.keep_node_files)
            rehearsal = AwsRehearsal(self._rehearsals / name, scenario=scenario)
            click.get_current_context().call_on_close(rehearsal.close)
            self._rehearsal = name, rehearsal.start()
        return self._rehearsal
