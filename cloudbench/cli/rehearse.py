"""`cloudbench rehearse`: the stand-ins of the clouds, kept up for any client."""

from __future__ import annotations

import click

from cloudbench.cli import options


@click.command(
    epilog="""\b
Examples:
  cloudbench rehearse --serve > rehearsal.sh &
  source rehearsal.sh; cloudbench doctor --provider azure
  cloudbench rehearse --serve --scenario preemption --format json"""
)
@click.option("--serve", is_flag=True, help="Keep them up until Ctrl-C.")
@options.scenario
@options.output_format("shell", "json")
def rehearse(serve: bool, scenario: str | None, output_format: str) -> int:
    """Keep stand-ins of Azure Batch and Azure Files up on this machine.

    Their endpoints and keys are printed as soon as they answer: as shell variables, which cloudbench itself reads, or
    as JSON. They run what a job asks for as processes, or as containers where there is a Docker engine.
    """
    import secrets
    import threading

    from cloudbench.cli.session import home
    from cloudbench.errors import UsageError
    from cloudbench.rehearsal.azure import AzureRehearsal
    from cloudbench.rehearsal.azure_batch.scenario import load_scenario
    from cloudbench.rehearsal.presence import remove_dead

    if not serve:
        raise UsageError(
            "rehearse: nothing to do",
            todo="cloudbench rehearse --serve; a single run is rehearsed by cloudbench submit --rehearse",
        )
    loaded = load_scenario(scenario) if scenario else None
    root = home() / "rehearsals"
    remove_dead(root)
    rehearsal = AzureRehearsal(root / secrets.token_hex(4), scenario=loaded)
    try:
        _tell(rehearsal.start(), output_format)
        click.echo("serving until Ctrl-C; whatever runs then ends with it", err=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        click.echo("ended", err=True)
    finally:
        rehearsal.close()
    return 0


def _tell(endpoints: object, output_format: str) -> None:
    import shlex

    import msgspec

    from cloudbench.cli.settings import azure_variables

    values: dict[str, str] = msgspec.to_builtins(endpoints)
    if output_format == "json":
        click.echo(msgspec.json.encode(values).decode())
    else:
        for name, value in azure_variables(values).items():
            click.echo(f"export {name}={shlex.quote(value)}")
