"""`cloudbench parse`: logs that are already there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudbench.cli import options

if TYPE_CHECKING:
    from cloudbench.parsers import ParsedLog


@click.command(
    epilog="""\b
Examples:
  cloudbench parse training.log
  cloudbench parse logs/ --format json | jq 'select(.status == "no-result") | .reason'
  kubectl logs job/train | cloudbench parse -"""
)
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path())
@options.output_format("table", "json")
def parse(files: tuple[str, ...], output_format: str) -> int:
    """Read the throughput in logs; a folder stands for all its files, `-` for standard input.

    With --format json, one object a file and line. Files that cannot be read are told at the end, with exit code 2.
    """
    unreadable: list[OSError] = []
    logs = _parsed(files, unreadable.append)
    if output_format == "json":
        _print_objects(logs)
    else:
        _print_table(logs)
    for error in unreadable:
        click.echo(f"cloudbench: {_text(error.filename)}: cannot be read: {error.strerror}", err=True)
    return 2 if unreadable else 0


def _print_objects(logs: Iterable[ParsedLog]) -> None:
    import msgspec

    encoder = msgspec.json.Encoder()
    for log in logs:
        sys.stdout.buffer.write(encoder.encode(log) + b"\n")
    sys.stdout.buffer.flush()


def _print_table(logs: Iterable[ParsedLog]) -> None:
    header: str | None = f"{'THROUGHPUT':>12}  {'UNIT':14}  {'SCOPE':8}  {'PRINTED':>7}  FILE"
    for log in logs:
        if header:
            click.echo(header)
            header = None
        for line in _lines(log):
            click.echo(line)


def _lines(log: ParsedLog) -> Iterator[str]:
    results = [run for run in log.runs if run.throughput is not None]
    for run in results:
        yield f"{run.throughput:12.2f}  {run.unit:14}  {run.scope:8}  {len(run.printed):7}  {log.path}"
        yield from (f"{'':12}  warning: {warning}" for warning in run.warnings)
    if not results:
        yield f"{'-':>12}  no result: {log.reason}  {log.path}"


def _parsed(files: Iterable[str], unreadable: Callable[[OSError], None]) -> Iterator[ParsedLog]:
    import msgspec

    from cloudbench.parsers import parse as parse_log
    from cloudbench.parsers.files import parse_file

    for name in files:
        if name == "-":
            yield parse_log(iter(lambda: sys.stdin.buffer.read(1 << 20), b""), path="-")
            continue
        for path in _files(name, unreadable):
            try:
                log = parse_file(path)
            except OSError as error:
                error.filename = path  # a read that fails does not know it
                unreadable(error)
                continue
            yield msgspec.structs.replace(log, path=_text(path))


def _text(path: str) -> str:
    """The path as it can be printed, whatever its bytes are."""
    return os.fsencode(path).decode("utf-8", "replace")


def _files(name: str, unreadable: Callable[[OSError], None]) -> Iterator[str]:
    """The file, or every regular file below the folder that is not hidden, in a stable order."""
    if not Path(name).is_dir():
        yield name
        return
    for folder, folders, names in os.walk(name, onerror=unreadable):
        folders[:] = sorted(entry for entry in folders if not entry.startswith("."))
        paths = (f"{folder}{os.sep}{entry}" for entry in sorted(names) if not entry.startswith("."))
        yield from filter(os.path.isfile, paths)
