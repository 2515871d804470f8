"""From the bytes of a log to its runs: finds out the format, then lets that format's reader do the work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from cloudbench.errors import UsageError, did_you_mean
from cloudbench.parsers import horovod_synthetic, tf_cnn_benchmarks
from cloudbench.parsers.reader import Evidence, Reader
from cloudbench.parsers.text import blocks
from cloudbench.parsers.values import ParsedLog, ParsedRun

FORMATS: Final[Mapping[str, type[Reader]]] = {
    module.NAME: module.Reader for module in (tf_cnn_benchmarks, horovod_synthetic)
}
"""A reader for every format, in the order in which they are tried. A new format's module is added here."""

_TRACEBACK = b"Traceback (most recent call last)"
_ERROR = re.compile(rb"\n(?:[^\n]*[>|:\]] ?)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?::[^\n]*)?)(?=\n)")
_ERROR_LENGTH = 160


def parse(
    chunks: Iterable[bytes], format_name: str | None = None, *, observations: bool = False, path: str | None = None
) -> ParsedLog:
    """The runs in a log that comes as `chunks` of any size.

    Any bytes are accepted. Memory is bounded whatever the size of the log, except that `observations` keeps one
    `Observation` for every line with a figure.

    Args:
        chunks: the log; read once, in order.
        format_name: one of `FORMATS`; found out from the log where None.
        observations: fill `ParsedRun.observations`, which is unset otherwise.
        path: copied to the result, not opened.

    Raises:
        UsageError: `format_name` is unknown.
    """
    if format_name is not None and format_name not in FORMATS:
        raise UsageError(
            f"unknown log format {format_name!r}{did_you_mean(format_name, FORMATS)}",
            todo=f"use one of {', '.join(FORMATS)}",
        )
    readers = {name: FORMATS[name](observations=observations) for name in ([format_name] if format_name else FORMATS)}
    error = None
    for block in blocks(chunks):
        for name, reader in readers.items():
            reader.feed(block)
            if reader.evidence is Evidence.FIGURES and len(readers) > 1:
                readers = {name: reader}
                break
        if _TRACEBACK in block:
            error = _last_error(block) or error
    best = max(readers, key=lambda name: readers[name].evidence)
    known = format_name is not None or readers[best].evidence > Evidence.NONE
    runs = readers[best].finish() if known else ()
    if not observations:
        runs = tuple(msgspec.structs.replace(run, observations=msgspec.UNSET) for run in runs)
    return _log(best if known else None, runs, error, path)


def _log(name: str | None, runs: tuple[ParsedRun, ...], error: str | None, path: str | None) -> ParsedLog:
    if any(run.throughput is not None for run in runs):
        return ParsedLog(format=name, status="ok", runs=runs, path=path)
    reasons = [run.reason for run in runs if run.reason]
    if not reasons:
        reasons = ["the log has no figure" if name else f"no known format: the log is none of {', '.join(FORMATS)}"]
    if error:
        reasons.append(f"it has a traceback: {error}")
    return ParsedLog(format=name, status="no-result", reason="; ".join(dict.fromkeys(reasons)), runs=runs, path=path)


def _last_error(block: bytes) -> str | None:
    start = block.rfind(_TRACEBACK)
    found = _ERROR.search(block, start)
    return found[1][:_ERROR_LENGTH].decode(errors="replace") if found else None
