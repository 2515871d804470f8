"""`cloudbench doctor`: whether an account is ready, found out by reading only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cloudbench.cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudbench.providers.azure.readiness import Finding


@click.command(
    epilog="""\b
Examples:
  cloudbench doctor --provider azure
  cloudbench doctor --provider azure --service vm
  cloudbench doctor --provider azure --format json"""
)
@click.option("--provider", type=click.Choice(["azure"]), required=True, help="Whose account to look at.")
@click.option("--service", type=click.Choice(["batch", "vm"]), default="batch", show_default=True)
@options.azure
@options.output_format("text", "json")
def doctor(provider: str, service: str, azure: tuple[str, ...], output_format: str) -> int:
    """Check an account before a run needs it; nothing is made or changed.

    Exit codes: 0 all is well, 3 the credentials are missing or refused, 4 something else is missing.
    """
    from cloudbench.cli.session import home
    from cloudbench.cli.settings import azure_account, parse_azure_options
    from cloudbench.providers.azure.readiness import find_out
    from cloudbench.store import Store

    account = azure_account(parse_azure_options(azure), service, complete=False)
    findings = find_out(account, owner=Store(home()).owner, service=service)
    _tell(findings, output_format)
    codes = [finding.exit_code for finding in findings if finding.state == "failed"]
    return min(codes, default=0)


def _tell(findings: Sequence[Finding], output_format: str) -> None:
    import msgspec

    if output_format == "json":
        click.echo(msgspec.json.encode({"checks": findings}).decode())
        return
    for finding in findings:
        click.echo(f"{finding.state:7} {finding.what}")
        for word, text in (("why", finding.why), ("try", finding.todo)):
            if text:
                click.echo(f"        {word}: {text}")
