"""The one module here that opens a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cloudbench.parsers.reading import parse
from cloudbench.parsers.values import ParsedLog

_READ_BYTES = 1 << 16
"""More would be fetched from the system and given back for every small log, which takes longer than reading it."""


def parse_file(path: Path | str, format_name: str | None = None, *, observations: bool = False) -> ParsedLog:
    """`parse` of a file; the result carries its path.

    Raises:
        OSError: the file cannot be read.
        UsageError: `format_name` is unknown.
    """
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - Path.open costs a tenth of parsing a small log

        def pieces() -> Iterator[bytes]:
            while piece := file.read(_READ_BYTES):
                yield piece

        return parse(pieces(), format_name, observations=observations, path=str(path))
