"""What is told on standard error while runs go on: a line a step, and on a terminal the newest line of training."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from cloudbench.run import AttemptBegan, CancelRequested, Ended, Event, FilesLost, Phase, PhaseEntered, Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.status import Status

_SHOWN_EVERY_S = 1.0
_SPINNER_CELLS = 3

_TOLD = {
    Phase.PROVISIONING: "provisioning",
    Phase.RUNNING: "running",
    Phase.COLLECTING: "bringing its files home",
    Phase.RELEASED: "released",
}


class Progress:
    """The engine's clock and listener: tells events as they come, and the newest line while the engine waits.

    Args:
        newest_line: the line that a run's training printed last, empty where there is none yet.
    """

    def __init__(self, newest_line: Callable[[str], str]) -> None:
        self._newest_line = newest_line
        self._running_since: dict[str, float] = {}
        self._spinner: tuple[Console, Status] | None = None

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait; on a terminal show how the runs are getting on."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._running_since and sys.stderr.isatty():
                self._show(min(self._running_since))
            time.sleep(min(left, _SHOWN_EVERY_S))

    def event(self, run: Run, event: Event) -> None:
        """Tell an event of a run, on a line of its own."""
        self._hide()
        if isinstance(event, PhaseEntered):
            self._running_since.pop(run.id, None)
            if event.phase is Phase.RUNNING:
                self._running_since[run.id] = time.monotonic()
            if event.phase in _TOLD:
                click.echo(f"{run.id}: {_TOLD[event.phase]}", err=True)
        elif isinstance(event, CancelRequested):
            click.echo(f"{run.id}: ending it ({event.reason})", err=True)
        elif isinstance(event, Ended) and event.status.outcome:
            click.echo(f"{run.id}: {event.status.outcome.value}", err=True)
        elif isinstance(event, FilesLost):
            from cloudbench.cli.session import plain_line

            click.echo(f"{run.id}: files of attempt {run.attempt} are lost ({plain_line(event.reason)})", err=True)
        elif isinstance(event, AttemptBegan):
            click.echo(f"{run.id}: attempt {event.number} of {run.plan.retries + 1}", err=True)

    def _show(self, run_id: str) -> None:
        from rich.cells import set_cell_size
        from rich.text import Text

        if self._spinner is None:
            from rich.console import Console

            console = Console(stderr=True)
            self._spinner = console, console.status("")
            self._spinner[1].start()
        console, status = self._spinner
        minutes, seconds = divmod(int(time.monotonic() - self._running_since[run_id]), 60)
        line = f"{run_id} {minutes}m{seconds:02}s  {self._newest_line(run_id)}"
        status.update(Text(set_cell_size(line, max(console.width - _SPINNER_CELLS, 0)).rstrip()))

    def _hide(self) -> None:
        if self._spinner is not None:
            self._spinner[1].stop()
            self._spinner = None
