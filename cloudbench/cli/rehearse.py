"""`cloudbench rehearse`: the stand-ins of the clouds, kept up for any client."""

from __future__ import annotations

import click

from cloudbench.cli import options


@click.command(
    epilog="""\b
Examples:
  cloudbench rehearse --serve > rehearsal.sh &
  source rehearsal.sh; cloudbench doctor --provider azure
  cloudbench rehearse --serve --scenario preemption --format json
  cloudbench rehearse --serve --provider aws > rehearsal.sh &"""
)
@click.option("--serve", is_flag=True, help="Keep them up until Ctrl-C.")
@click.option("--provider", type=click.Choice(["azure", "aws"]), default="azure", show_default=True)
@options.scenario
@options.output_format("shell", "json")
def rehearse(serve: bool, provider: str, scenario: str | None, output_format: str) -> int:
    """Keep stand-ins of a cloud up on this machine.

    Their endpoints and keys are printed as soon as they answer: as shell variables, which cloudbench itself reads, or
    as JSON. They run what a job asks for as processes, or as containers where there is a Docker engine.
    """
    import threading

    from cloudbench.cli.rehearsals import new_rehearsal
    from cloudbench.cli.session import Session
    from cloudbench.errors import UsageError

    if not serve:
        raise UsageError(
            "rehearse: nothing to do",
            todo="cloudbench rehearse --serve; a single run is rehearsed by cloudbench submit --rehearse",
        )
    rehearsal = new_rehearsal(provider, Session().store, scenario)
    try:
        _tell(provider, rehearsal.start(), output_format)
        click.echo("serving until Ctrl-C; whatever runs then ends with it", err=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        click.echo("ended", err=True)
    finally:
        rehearsal.close()
    return 0


def _tell(provider: str, endpoints: object, output_format: str) -> None:
    import shlex

    import msgspec

    from cloudbench.cli.aws_settings import aws_variables
    from cloudbench.cli.azure_settings import azure_variables

    values: dict[str, str] = msgspec.to_builtins(endpoints)
    if output_format == "json":
        click.echo(msgspec.json.encode(values).decode())
        return
    variables = aws_variables(values) if provider == "aws" else azure_variables(values)
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")
