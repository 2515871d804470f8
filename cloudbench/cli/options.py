"""Options and completions that several commands share."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from importlib import resources
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

scenario = click.option(
    "--scenario", metavar="NAME|FILE", help="How the rehearsal goes, such as quota or preemption.  [default: all well]"
)
azure = click.option(
    "--azure", multiple=True, metavar="KEY=VALUE", help="A setting of the Azure account, such as share=NAME."
)
aws = click.option(
    "--aws", multiple=True, metavar="KEY=VALUE", help="A setting of the AWS account, such as bucket=NAME."
)


def output_format(*formats: str) -> Callable[[Any], Any]:
    """`--format`, the first of these by default."""
    return click.option(
        "--format", "output_format", type=click.Choice(formats), default=formats[0], show_default=True, help="Output."
    )


class LaunchOptions(NamedTuple):
    """What every command can be told that starts runs."""

    dry_run: bool
    detach: bool
    rehearse: bool
    full_size: bool
    scenario: str | None
    retries: int
    azure: tuple[str, ...]
    aws: tuple[str, ...]
    yes: bool
    output_format: str


_LAUNCH = (
    click.option(
        "--dry-run", is_flag=True, help="Print the exact requests, look whether they can work, and send none."
    ),
    click.option("--detach", is_flag=True, help="Start it and come back later with status, logs, collect."),
    click.option(
        "--rehearse", is_flag=True, help="Try it on this machine against stand-ins of the cloud, free of charge."
    ),
    click.option("--full-size", is_flag=True, help="Rehearse the job as it is, not shrunk for this machine."),
    scenario,
    click.option(
        "--retries",
        type=click.IntRange(min=0),
        default=1,
        show_default=True,
        help="More attempts where the provider takes the machines back.",
    ),
    azure,
    aws,
    click.option("--yes", is_flag=True, help="Do not ask before spending money."),
    output_format("table", "json"),
)


def launch_options(command: Callable[..., int]) -> Callable[..., int]:
    """Let a command have the `LaunchOptions`, which it gets as its first argument."""

    @functools.wraps(command)
    def with_options(**given: Any) -> int:
        chosen = LaunchOptions(**{name: given.pop(name) for name in LaunchOptions._fields})
        return command(chosen, **given)

    for option in reversed(_LAUNCH):
        with_options = option(with_options)
    return with_options


def complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of the runs that begin so."""
    from cloudbench.cli.session import home
    from cloudbench.store import Store

    if not home().exists():
        return []
    return [CompletionItem(run_id) for run_id in Store(home()).run_ids() if run_id.startswith(incomplete)]


def complete_template(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the shipped templates that begin so, then files."""
    from cloudbench.loading import template_names

    names = [CompletionItem(name) for name in template_names() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


def complete_service(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Services of the provider that the line names."""
    provider = importlib.import_module(f"cloudbench.providers.{context.params.get('provider') or 'local'}")
    return [CompletionItem(name) for name in provider.SERVICES if name.startswith(incomplete)]


def complete_sku(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Current sizes of the provider that the line names, of all clouds where it names none."""
    from cloudbench.catalog import sizes

    named = context.params.get("provider")
    return [
        CompletionItem(size.short_name, help=size.hardware)
        for provider in ([named] if named in ("azure", "aws") else ["azure", "aws"])
        for size in sizes(provider)
        if size.short_name.lower().startswith(incomplete.lower()) and not size.retired
    ]


class SetupOption(click.Option):
    """An option whose help names the setups that ship with the product, read when the help is printed."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The option and its help."""
        record = super().get_help_record(ctx)
        return record and (record[0], f"{record[1]} One of {', '.join(_setup_names())}.")


def complete_setup(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the shipped setups that begin so."""
    return [CompletionItem(name) for name in _setup_names() if name.startswith(incomplete)]


def _setup_names() -> list[str]:
    """The keys of `data/setups.yaml`, found without a YAML parser: help and completion must be instant."""
    text = resources.files("cloudbench").joinpath("data").joinpath("setups.yaml").read_text("utf-8")
    return re.findall(r"^([\w-]+):", text, re.MULTILINE)


def complete_parameter(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`key=` for the parameters of the template that the line names."""
    from cloudbench.errors import CloudbenchError
    from cloudbench.loading import load_template

    try:
        template = load_template(context.params.get("template") or "tf_cnn_benchmarks")
    except CloudbenchError:
        return []
    return [CompletionItem(f"{name}=") for name in template.parameters if name.startswith(incomplete)]
