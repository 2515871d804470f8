"""The stand-ins that plans are rehearsed on: those that this command keeps up, or another one."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cloudbench.rehearsal.aws.rehearsal import AwsEndpoints, AwsRehearsal
    from cloudbench.rehearsal.azure import AzureEndpoints, AzureRehearsal
    from cloudbench.store import Store

_PREFIX = "rehearsal "


def new_rehearsal(cloud: str, store: Store, scenario: str | None) -> AwsRehearsal | AzureRehearsal:
    """A rehearsal of `azure` or `aws` that goes by a scenario, where one is named; it is not begun yet.

    It is called as its folder is. What dead ones have left is removed first; their nodes' files go to the store.

    Raises:
        UsageError: the cloud knows no scenario of that name.
        SpecError: the scenario's file is missing, or does not describe one.
    """
    from cloudbench.rehearsal.presence import remove_dead

    root = _root(store)
    remove_dead(root, store.keep_node_files)
    folder = root / secrets.token_hex(4)
    if cloud == "aws":
        from cloudbench.rehearsal import aws
        from cloudbench.rehearsal.aws.rehearsal import AwsRehearsal

        return AwsRehearsal(folder, scenario=aws.load_scenario(scenario) if scenario else None)
    from cloudbench.rehearsal.azure import AzureRehearsal
    from cloudbench.rehearsal.azure_batch.scenario import load_scenario

    return AzureRehearsal(folder, scenario=load_scenario(scenario) if scenario else None)


def _root(store: Store) -> Path:
    return store.home / "rehearsals"


class Rehearsals:
    """The rehearsals of one cloud that the plans of one command belong to.

    Args:
        cloud: `azure` or `aws`.
        store: beside its journal lie the folders of all rehearsals.
        scenario: how a rehearsal that this command begins goes; all goes well where it is None.
    """

    def __init__(self, cloud: str, store: Store, scenario: str | None) -> None:
        self._cloud = cloud
        self._store = store
        self._scenario = scenario
        self._own: tuple[str, AwsEndpoints | AzureEndpoints] | None = None

    @property
    def account(self) -> str:
        """What a plan records of the account that it is rehearsed in by this command."""
        return f"{_PREFIX}{self._begun()[0]}"

    def settings(self, recorded: str | None) -> Mapping[str, str]:
        """The account of a plan as settings: where its rehearsal answers, and which keys it takes.

        Where the process of that rehearsal is gone, so are its machines: stand-ins that hold nothing tell so.
        """
        name = (recorded or "").removeprefix(_PREFIX)
        if name and (self._own is None or name != self._own[0]):
            found = self._find(_root(self._store) / name)
            if found:
                return msgspec.structs.asdict(found)
            click.echo(
                f"warning: {recorded} has ended with its command; what its nodes wrote is brought home", err=True
            )
        return msgspec.structs.asdict(self._begun()[1])

    def _find(self, folder: Path) -> AwsEndpoints | AzureEndpoints | None:
        from cloudbench.rehearsal.presence import find_endpoints

        if self._cloud == "aws":
            from cloudbench.rehearsal.aws.rehearsal import AwsEndpoints

            return find_endpoints(folder, AwsEndpoints)
        from cloudbench.rehearsal.azure import AzureEndpoints

        return find_endpoints(folder, AzureEndpoints)

    def _begun(self) -> tuple[str, AwsEndpoints | AzureEndpoints]:
        """The rehearsal of this command, begun when it is first needed; it ends with the command."""
        if self._own is None:
            rehearsal = new_rehearsal(self._cloud, self._store, self._scenario)
            click.get_current_context().call_on_close(rehearsal.close)
            self._own = rehearsal.folder.name, rehearsal.start()
        return self._own
