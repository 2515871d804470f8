"""`cloudbench run`: an experiment file."""

from __future__ import annotations

from pathlib import Path

import click

from cloudbench.cli import options


@click.command(
    epilog="""\b
Examples:
  cloudbench run experiment.yaml
  cloudbench run experiment.yaml --rehearse
  cloudbench run experiment.yaml --dry-run --format json"""
)
@click.argument("experiment", type=click.Path(path_type=Path))
@options.dry_run
@options.detach
@options.rehearse
@options.full_size
@options.scenario
@options.retries
@options.azure
@options.aws
@click.option("--yes", is_flag=True, help="Do not ask before spending money.")
@options.output_format("table", "json")
def run(
    experiment: Path,
    dry_run: bool,
    detach: bool,
    rehearse: bool,
    full_size: bool,
    scenario: str | None,
    retries: int,
    azure: tuple[str, ...],
    aws: tuple[str, ...],
    yes: bool,
    output_format: str,
) -> int:
    """Run every setup of an experiment file and print its summary."""
    from cloudbench.cli.launch import launch, planned_rehearsal
    from cloudbench.loading import load_experiment, load_template

    loaded = load_experiment(experiment)
    templates = {name: load_template(name, beside=experiment.parent) for name in loaded.templates}
    return launch(
        loaded,
        templates,
        rehearsal=planned_rehearsal(rehearse=rehearse, full_size=full_size),
        retries=retries,
        dry_run=dry_run,
        detach=detach,
        ask=not yes,
        output_format=output_format,
        azure=azure,
        aws=aws,
        scenario=scenario,
    )
