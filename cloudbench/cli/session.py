"""What the commands share: the store, the providers, the engine and its progress."""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
import platformdirs

from cloudbench.cli.accounts import AwsAccounts, AzureAccounts
from cloudbench.cli.progress import Progress
from cloudbench.engine import Engine
from cloudbench.errors import CloudbenchError
from cloudbench.run import EXIT_CODES, Outcome, Run
from cloudbench.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudbench.plan import RunPlan
    from cloudbench.providers.base import Problem, Provider


_LONGEST_LINE = 200
_CONTROL = re.compile(
    r"\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # strings to the terminal, such as a title for its window
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours and movements of the cursor
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x1f\x7f-\x9f]"
)


class Session:
    """One command's view of the world, opened when it is first needed and closed with the command.

    Args:
        detach: nodes that are started go on without this process.
        progress: tell on standard error what is done.
        azure: settings of Azure that were given as options; None where the command has no such options.
        aws: the same of AWS.
        scenario: how a rehearsal that this command begins goes; all goes well where it is None.
    """

    def __init__(
        self,
        *,
        detach: bool = False,
        progress: bool = False,
        azure: Mapping[str, str] | None = None,
        aws: Mapping[str, str] | None = None,
        scenario: str | None = None,
    ) -> None:
        self.home = home()
        self.store = Store(self.home)
        self._detach = detach
        self._azure = AzureAccounts(self.store, azure, scenario)
        self._aws = AwsAccounts(self.store, aws, scenario)
        self._providers: dict[tuple[str | None, ...], Provider] = {}
        self._newest: dict[str, tuple[float, str]] = {}
        told = Progress(self._newest_line) if progress else None
        self.engine = Engine(self.store, self.provider_for, clock=told, notice=told.event if told else None)

    def provider_for(self, plan: RunPlan) -> Provider:
        """The provider that takes the plan, one object for all plans of a service and an account.

        Raises:
            UsageError: no such provider or service.
            CredentialsError: no account is set, or another one than the plan's.
        """
        key = (plan.setup.provider, plan.setup.service, plan.setup.pool, plan.account)
        if key not in self._providers:
            self._providers[key] = self._make_provider(plan)
        return self._providers[key]

    def with_accounts(self, plans: Sequence[RunPlan]) -> tuple[RunPlan, ...]:
        """The plans with the account that each will run in: every later command must find the same one."""
        return tuple(msgspec.structs.replace(plan, account=self._account_name(plan)) for plan in plans)

    def _make_provider(self, plan: RunPlan) -> Provider:
        provider: Provider
        if plan.setup.provider == "local":
            from cloudbench.providers.local import local_provider

            provider = local_provider(self.home / "local", service=plan.setup.service, attached=not self._detach)
        elif plan.setup.provider == "azure":
            from cloudbench.providers.azure import azure_provider

            one_by_one = plan.setup.pool is not None
            provider = azure_provider(self._azure.of(plan), service=plan.setup.service, one_by_one=one_by_one)
        else:
            from cloudbench.providers.aws import aws_provider

            provider = aws_provider(self._aws.of(plan), service=plan.setup.service)
        return provider

    def _account_name(self, plan: RunPlan) -> str | None:
        if plan.setup.provider == "local":
            return None
        return self._aws.name(plan) if plan.setup.provider == "aws" else self._azure.name(plan)

    def _newest_line(self, run_id: str) -> str:
        """What the first rank printed last; a cloud is asked for it no more often than how the run stands."""
        run = self.store.load(run_id)
        provider = self.provider_for(run.plan)
        asked_at, line = self._newest.get(run_id, (-math.inf, ""))
        if time.monotonic() - asked_at >= provider.poll_interval_s:
            with contextlib.suppress(CloudbenchError):
                line = _last_line(provider, run) or line
            self._newest[run_id] = time.monotonic(), line
        return line

    def run_ids(self, names: Sequence[str]) -> list[str]:
        """Ids of the runs that a person means by these names, each of them once."""
        return list(dict.fromkeys(run_id for name in names for run_id in self.store.find_all(name)))

    def drive(self, run_ids: Sequence[str], *, detach: bool = False) -> list[Run]:
        """`Engine.drive`; an interrupt that leaves runs unfinished tells which.

        Raises:
            KeyboardInterrupt: the command was interrupted, with what there is to say of it.
        """
        try:
            return self.engine.drive(run_ids, detach=detach)
        except KeyboardInterrupt as interrupt:
            left = [run_id for run_id in run_ids if not self.store.load(run_id).finished]
            if not left:
                raise
            raise KeyboardInterrupt(
                f"interrupted again: the job may still be ending; cloudbench resume {' '.join(left)}"
            ) from interrupt


def _last_line(provider: Provider, run: Run) -> str:
    """The end of the first rank's log; empty where there is none yet."""
    job = provider.render(run.plan, run.attempt).job
    ranks = [log for log in provider.logs(job) if log.name.startswith("rank-")]
    if not ranks:
        return ""
    chunk = provider.read_log(job, ranks[0].node, ranks[0].name, max(ranks[0].size_bytes - 2000, 0))
    lines = chunk.data.decode("utf-8", "replace").split("\n")
    return next(filter(None, map(plain_line, reversed(lines))), "")


def plain_line(text: str) -> str:
    """What a program printed as a line that does nothing to a terminal, and is cut where it is very long."""
    plain = _CONTROL.sub("", text.expandtabs())
    return plain if len(plain) <= _LONGEST_LINE else plain[: _LONGEST_LINE - 1] + "…"


def home() -> Path:
    """The folder of the journal and the artifacts: `$CLOUDBENCH_HOME`, else the platform's data folder."""
    configured = os.environ.get("CLOUDBENCH_HOME")
    return Path(configured).expanduser() if configured else platformdirs.user_data_path("cloudbench")


def refuse_problems(problems: Sequence[Problem]) -> None:
    """Tell the warnings, and raise the first error."""
    for problem in dict.fromkeys(problems):
        error = CloudbenchError(problem.what, why=problem.why, todo=problem.todo)
        if problem.severity == "error":
            error.exit_code = problem.exit_code
            raise error
        click.echo(f"warning: {error}", err=True)


def exit_code(runs: Sequence[Run]) -> int:
    """What the command returns for runs that have ended: the first that is not a success decides."""
    return next((EXIT_CODES[run.outcome] for run in runs if run.outcome not in (None, Outcome.SUCCEEDED)), 0)


def tell_failures(runs: Sequence[Run]) -> None:
    """Say why each run that did not succeed ended, with the last lines that its ranks printed."""
    for run in runs:
        if run.status is None or run.outcome is Outcome.SUCCEEDED or run.outcome is None:
            continue
        click.echo(f"{run.id}: {run.outcome.value}: {plain_line(run.status.reason or 'no reason is known')}", err=True)
        for line in run.status.last_lines:
            click.echo(f"  | {plain_line(line)}", err=True)
        click.echo(f"  all of it: cloudbench logs {run.id}", err=True)
