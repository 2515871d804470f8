"""`cloudbench summary`: setups side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudbench.cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudbench.cli.session import Session
    from cloudbench.results.measurement import RunRecord


@click.command(
    epilog="""\b
Examples:
  cloudbench summary
  cloudbench summary examples/dsvm-vs-batchai
  cloudbench summary batch-size --format md -o summary.md"""
)
@click.argument("names", nargs=-1, metavar="[RUN|EXPERIMENT|FOLDER]…", shell_complete=options.complete_run)
@options.output_format("table", "md", "csv", "json")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Write there, `-` to print.",
)
def summary(names: tuple[str, ...], output_format: str, output: Path | None) -> int:
    """Put runs side by side: a row a setup, repeats taken together.

    Names are run ids, experiments or their files (the newest submission of each) and folders with logs. Without any
    it is what was submitted last.
    """
    from cloudbench.cli.session import Session

    session = Session(detach=True)
    _write(_records(session, names), output_format, None if output == Path("-") else output)
    return 0


def print_summary(session: Session, run_ids: Sequence[str], output_format: str) -> None:
    """Print the rows of these runs."""
    _write(_runs(session, run_ids), output_format, None)


def _records(session: Session, names: Sequence[str]) -> list[RunRecord]:
    from cloudbench.errors import UsageError
    from cloudbench.loading import load_experiment
    from cloudbench.sources import folder_records

    if not names:
        newest = session.store.run_ids()[-1:]
        if not newest:
            raise UsageError("there are no runs yet", todo="cloudbench submit, or name a folder with logs")
        plan = session.store.load(newest[0]).plan
        return _runs(session, session.store.run_ids(plan.experiment, submission=plan.submission))
    records: list[RunRecord] = []
    for name in names:
        if submitted := _submitted(session, name):
            records += _runs(session, submitted)
        elif Path(name).is_dir():
            records += folder_records(Path(name))
        elif name.endswith((".yaml", ".yml")):
            experiment = load_experiment(Path(name)).name
            if not (submitted := _submitted(session, experiment)):
                raise UsageError(f"{name}: {experiment} was never submitted", todo=f"cloudbench run {name}")
            records += _runs(session, submitted)
        elif Path(name).is_file():
            raise UsageError(
                f"{name}: is a file", todo=f"cloudbench parse {name}, or name the experiment or the folder"
            )
        else:
            records += _runs(session, session.store.find_all(name))
    return records


def _submitted(session: Session, experiment: str) -> list[str]:
    """The runs of the experiment's newest submission, none where it was never submitted."""
    newest = session.store.next_submission(experiment) - 1
    return session.store.run_ids(experiment, submission=newest) if newest else []


def _runs(session: Session, run_ids: Sequence[str]) -> list[RunRecord]:
    from cloudbench.errors import CloudbenchError
    from cloudbench.sources import run_record

    runs = [session.store.load(run_id) for run_id in run_ids]
    try:
        live = session.engine.poll(runs)
    except CloudbenchError as error:
        click.echo(f"warning: what is running cannot be asked: {error.what}", err=True)
        live = {}
    return [
        run_record(run, session.store.folder(run.id), uncollected=run.id in live and live[run.id].ended) for run in runs
    ]


def _write(records: Sequence[RunRecord], output_format: str, output: Path | None) -> None:
    import os
    import shutil
    import sys

    from cloudbench.errors import UsageError
    from cloudbench.reports import render
    from cloudbench.results.summary import summarize

    # A table that is read by a program or kept in a file must not depend on the width of the terminal,
    # unless the width is asked for.
    on_terminal = output is None and sys.stdout.isatty()
    asked = output is None and os.environ.get("COLUMNS", "").isdecimal()
    width = shutil.get_terminal_size().columns if on_terminal or asked else 160
    rendered = render(summarize(records), output_format, width=width, colour=on_terminal)  # type: ignore[arg-type]
    if output is None:
        sys.stdout.buffer.write(rendered)
        sys.stdout.buffer.flush()
        return
    try:
        output.write_bytes(rendered)
    except OSError as error:
        raise UsageError(f"{output}: cannot be written", why=error.strerror, todo="choose another -o FILE") from error
