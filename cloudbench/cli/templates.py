"""`cloudbench templates`: what can be run, and its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cloudbench.cli import options

if TYPE_CHECKING:
    from cloudbench.spec import Scalar


@click.command()
@click.argument("name", required=False, shell_complete=options.complete_template)
@options.output_format("table", "json")
def templates(name: str | None, output_format: str) -> int:
    """List the templates, or describe one and its parameters."""
    import msgspec

    from cloudbench.loading import load_template, template_names

    if name is None:
        found = [load_template(shipped) for shipped in template_names()]
        if output_format == "json":
            click.echo(msgspec.json.encode({"templates": found}).decode())
            return 0
        for template in found:
            click.echo(f"{template.name}\n{click.wrap_text(template.description, 100, '  ', '  ')}")
        return 0
    template = load_template(name)
    if output_format == "json":
        click.echo(msgspec.json.encode(template).decode())
        return 0
    click.echo(
        f"{template.name}\n{click.wrap_text(template.description, 100, '  ', '  ')}\n\nParameters (--set KEY=VALUE):"
    )
    width = max((len(key) for key in template.parameters), default=0)
    for key, parameter in template.parameters.items():
        default = "-" if parameter.default is None else _written(parameter.default)
        choices = f"[{' | '.join(map(_written, parameter.choices))}]" if parameter.choices else ""
        click.echo("  ".join(filter(None, [f"  {key:{width}}  {default:12}", parameter.help, choices])).rstrip())
    return 0


def _written(value: Scalar) -> str:
    """A value as `--set` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
