"""`cloudbench status`: where runs stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cloudbench.cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudbench.cli.session import Session
    from cloudbench.run import Run, Status


@click.command(
    epilog="""\b
Examples:
  cloudbench status
  cloudbench status --format json | jq '.runs[] | select(.phase != "released")'"""
)
@click.argument("runs", nargs=-1, metavar="[RUN…]", shell_complete=options.complete_run)
@options.output_format("table", "json")
def status(runs: tuple[str, ...], output_format: str) -> int:
    """Show where runs stand, the oldest first; without a name all of them.

    A running job is asked how it is; nothing is changed.
    """
    import msgspec

    from cloudbench.cli.session import Session

    session = Session(detach=True)
    run_ids = session.run_ids(runs) or session.store.run_ids()
    found = [session.store.load(run_id) for run_id in run_ids]
    live = _ask(session, found)
    rows = []
    for run in found:
        job = live.get(run.id) or run.status
        rows.append(
            {
                "run": run.id,
                "label": run.plan.label,
                "phase": run.phase.value,
                "outcome": job.outcome.value if job and job.outcome else None,
                "reason": job.reason if job else None,
                "vendor_state": job.vendor_state if job else None,
                "attempt": run.attempt,
                "most_attempts": run.plan.retries + 1,
                "earlier_attempts": run.attempts,
                "collected": run.finished,
            }
        )
    if output_format == "json":
        click.echo(msgspec.json.encode({"runs": rows}).decode())
        return 0
    if not rows:
        click.echo("no runs yet: cloudbench submit", err=True)
        return 0
    to_collect = {run.id for run in found if run.id in live and live[run.id].ended}
    width = max(len(str(row["run"])) for row in rows)
    click.echo(f"{'RUN':{width}}  {'PHASE':12}  {'ATTEMPT':7}  {'OUTCOME':14}  REASON")
    for row in rows:
        hint = f"ended; cloudbench collect {row['run']}" if row["run"] in to_collect else None
        reason = ": ".join(filter(None, [hint, str(row["reason"] or "")]))
        attempt = f"{row['attempt']} of {row['most_attempts']}"
        cells = f"{row['run']:{width}}  {row['phase']:12}  {attempt:7}  {row['outcome'] or '-':14}  {reason}"
        click.echo(cells.rstrip())
    return 0


def _ask(session: Session, runs: Sequence[Run]) -> dict[str, Status]:
    """How running runs stand, as far as their clouds answer: one that does not is told, and hides no other run."""
    from cloudbench.errors import CloudbenchError

    groups: dict[tuple[str, str | None], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.plan.setup.provider, run.plan.account), []).append(run)
    found: dict[str, Status] = {}
    for group in groups.values():
        try:
            found.update(session.engine.poll(group))
        except CloudbenchError as error:
            running = ", ".join(run.id for run in group if not run.finished)
            click.echo(f"warning: how {running} stands is not known: {error}", err=True)
    return found
