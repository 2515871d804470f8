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
@options.launch_options
def run(chosen: options.LaunchOptions, experiment: Path) -> int:
    """Run every setup of an experiment file and print its summary."""
    from cloudbench.cli.launch import launch
    from cloudbench.loading import load_experiment, load_template

    loaded = load_experiment(experiment)
    templates = {name: load_template(name, beside=experiment.parent) for name in loaded.templates}
    return launch(loaded, templates, chosen)
