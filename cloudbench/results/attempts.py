"""What it took to get a row: how many attempts, and what those cost that came to nothing. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from cloudbench.results.measurement import RunRecord


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts of a row's runs. `count` is `None` where only logs are left of them.

    `lost_usd` is `None` where that is so, or where the price or the time of an attempt is not known. `words` tell what
    a reader must know, `None` where each run came through at once.
    """

    count: int | None
    lost_usd: float | None
    words: str | None


def count_attempts(records: Sequence[RunRecord]) -> Attempts:
    """The attempts of these runs, taken together."""
    counts = [record.attempts for record in records if record.attempts is not None]
    if not counts:
        return Attempts(count=None, lost_usd=None, words=None)
    lost = [attempt for record in records for attempt in record.lost]
    known = [attempt.lost_usd for attempt in lost if attempt.lost_usd is not None]
    lost_usd = math.fsum(known) if len(known) == len(lost) else None
    words: list[str] = []
    if lost:
        words.append(f"{sum(counts)} attempt{'s' if sum(counts) > 1 else ''}")
        if len(counts) > 1:
            words[0] += f" of {len(counts)} runs"
        why = next((attempt.lost_usd_reason for attempt in lost if attempt.lost_usd is None), None)
        words.append(f"USD lost not known: {why}" if lost_usd is None else f"{lost_usd:.2f} USD lost")
    words += _lost_logs(records)
    return Attempts(count=sum(counts), lost_usd=lost_usd, words=", ".join(words) or None)


def _lost_logs(records: Sequence[RunRecord]) -> Iterator[str]:
    for record in records:
        if record.lost_logs:
            attempts = "attempt" if len(record.lost_logs) == 1 else "attempts"
            of_repeat = f" of repeat {record.repeat}" if len(records) > 1 else ""
            yield f"logs of {attempts} {', '.join(map(str, record.lost_logs))}{of_repeat} lost"
