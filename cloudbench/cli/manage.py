"""`cloudbench collect`, `cancel` and `resume`: runs that were left alone."""

from __future__ import annotations

import click

from cloudbench.cli import options

_runs = click.argument("runs", nargs=-1, required=True, metavar="RUN…", shell_complete=options.complete_run)


@click.command()
@_runs
def collect(runs: tuple[str, ...]) -> int:
    """Bring the files of runs home, and release those that have ended.

    A run that is still going on stays as it is; what it has written so far comes home. One that was preempted begins
    its next attempt with `cloudbench resume`.
    """
    from cloudbench.cli.session import Session, tell_failures
    from cloudbench.run import Phase

    session = Session(progress=True)
    found = [session.engine.collect(run_id) for run_id in session.run_ids(runs)]
    tell_failures(found)
    for run in found:
        if run.phase is Phase.PLANNED:
            click.echo(f"{run.id}: cloudbench resume {run.id} begins attempt {run.attempt}", err=True)
        elif not run.finished:
            click.echo(f"{run.id}: still {run.phase.value}; collect it again when it has ended", err=True)
        click.echo(session.store.folder(run.id))
    return 0


@click.command()
@_runs
@click.option("--release-anyway", is_flag=True, help="Release even what holds files that cannot be brought home.")
def cancel(runs: tuple[str, ...], release_anyway: bool) -> int:
    """End runs: they are stopped, their files brought home, and everything released."""
    from cloudbench.cli.session import Session

    session = Session(progress=True)
    for run_id in session.run_ids(runs):
        session.engine.cancel(run_id, reason="cancelled", release_anyway=release_anyway)
        click.echo(run_id)
    return 0


@click.command()
@_runs
@options.output_format("table", "json")
def resume(runs: tuple[str, ...], output_format: str) -> int:
    """Drive runs to their end whose client died or was detached."""
    from cloudbench.cli.session import Session, exit_code, tell_failures
    from cloudbench.cli.summary import print_summary

    session = Session(progress=True)
    run_ids = session.run_ids(runs)
    driven = session.drive(run_ids)
    tell_failures(driven)
    print_summary(session, run_ids, output_format)
    return exit_code(driven)
