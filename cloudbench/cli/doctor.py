"""`cloudbench doctor`: whether an account is ready, found out by reading only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cloudbench.cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudbench.providers.findings import Finding


@click.command(
    epilog="""\b
Examples:
  cloudbench doctor --provider azure
  cloudbench doctor --provider azure --service vm
  cloudbench doctor --provider aws --aws region=us-east-1 --aws bucket=my-bucket
  cloudbench doctor --provider azure --format json"""
)
@click.option("--provider", type=click.Choice(["azure", "aws"]), required=True, help="Whose account to look at.")
@click.option("--service", type=click.Choice(["batch", "vm", "ec2"]), default="batch", show_default=True)
@options.azure
@options.aws
@options.output_format("text", "json")
def doctor(provider: str, service: str, azure: tuple[str, ...], aws: tuple[str, ...], output_format: str) -> int:
    """Check an account before a run needs it; nothing is made or changed.

    Exit codes: 0 all is well, 3 the credentials are missing or refused, 4 something else is missing.
    """
    findings = _of_aws(service, aws) if provider == "aws" else _of_azure(service, azure)
    _tell(findings, output_format)
    codes = [finding.exit_code for finding in findings if finding.state == "failed"]
    return min(codes, default=0)


def _of_azure(service: str, assignments: Sequence[str]) -> Sequence[Finding]:
    from cloudbench.cli.azure_settings import azure_account, parse_azure_options
    from cloudbench.cli.session import home
    from cloudbench.providers.azure import check_service
    from cloudbench.providers.azure.readiness import find_out
    from cloudbench.store import Store

    account = azure_account(parse_azure_options(assignments), check_service(service), complete=False)
    return find_out(account, owner=Store(home()).owner, service=service)


def _of_aws(service: str, assignments: Sequence[str]) -> Sequence[Finding]:
    from cloudbench.cli.aws_settings import aws_account, parse_aws_options
    from cloudbench.cli.session import home
    from cloudbench.providers.aws import check_service
    from cloudbench.providers.aws.readiness import find_out
    from cloudbench.store import Store

    account = aws_account(parse_aws_options(assignments), complete=False)
    return find_out(account, owner=Store(home()).owner, service=check_service(service))


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
