"""`cloudbench completion`: the script that lets a shell complete commands, options, runs and parameters."""

from __future__ import annotations

import click


@click.command(
    epilog="""\b
Examples:
  source <(cloudbench completion bash)
  cloudbench completion fish > ~/.config/fish/completions/cloudbench.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the completion script for a shell."""
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    from cloudbench.cli import cli

    classes = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
    click.echo(classes[shell](cli, {}, "cloudbench", "_CLOUDBENCH_COMPLETE").source())
    return 0
