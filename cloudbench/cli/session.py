"""What the commands share: the store, the providers, the engine and its progress."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
import platformdirs

from cloudbench.cli.progress import Progress
from cloudbench.engine import Engine
from cloudbench.errors import CloudbenchError, UsageError
from cloudbench.run import EXIT_CODES, Outcome, Run
from cloudbench.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """

    def __init__(self, *, detach: bool = False, progress: bool = False) -> None:
        self.home = home()
        self.store = Store(self.home)
        self._detach = detach
        self._providers: dict[tuple[str, str | None], Provider] = {}
        told = Progress(self._newest_line) if progress else None
        self.engine = Engine(self.store, self.provider_for, clock=told, notice=told.event if told else None)

    def provider_for(self, plan: RunPlan) -> Provider:
        """The provider that takes the plan, one object for all plans of a service.

        Raises:
            UsageError: no such provider or service.
        """
        key = (plan.setup.provider, plan.setup.service)
        if key not in self._providers:
            self._providers[key] = self._make_provider(*key)
        return self._providers[key]

    def _make_provider(self, name: str, service: str | None) -> Provider:
        if name != "local":
            raise UsageError(
                f"provider {name!r} is not part of this version of cloudbench",
                why="it runs on this machine only so far",
                todo="--provider local",
            )
        from cloudbench.providers.local import local_provider

        provider: Provider = local_provider(self.home / "local", service=service, attached=not self._detach)
        return provider

    def _newest_line(self, run_id: str) -> str:
        run = self.store.load(run_id)
        provider = self.provider_for(run.plan)
        try:
            job = provider.render(run.plan, run.attempt).job
            ranks = [log for log in provider.logs(job) if log.name.startswith("rank-")]
            if not ranks:
                return ""
            log = ranks[0]
            chunk = provider.read_log(job, log.node, log.name, max(log.size_bytes - 2000, 0))
        except CloudbenchError:
            return ""
        lines = chunk.data.decode("utf-8", "replace").split("\n")
        return next(filter(None, map(plain_line, reversed(lines))), "")

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
