"""One run whose ranks, or nodes, each wrote a log of their own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest

import msgspec

from cloudbench.parsers.checks import independent, ranks_disagree, throughput_of
from cloudbench.parsers.values import ParsedLog, ParsedRun, Scope


def merge_ranks(logs: Sequence[ParsedLog]) -> ParsedLog:
    """What `parse` would give had all ranks written to one log.

    A job's total, which every rank prints, stays that total and is never summed. Ranks that each trained alone keep
    `process` scope. Logs of another format than the first with a result, and those of none, take no part.
    """
    chosen = next((log.format for log in logs if log.status == "ok"), None) or next(
        (log.format for log in logs if log.format), None
    )
    taken = [log for log in logs if log.format == chosen]
    if not chosen or len(taken) == 1:
        return taken[0] if taken else ParsedLog(format=None, status="no-result", reason="there is no log")
    runs = tuple(
        _merged([run for run in ranks if run is not None]) for ranks in zip_longest(*(log.runs for log in taken))
    )
    ok = any(run.throughput is not None for run in runs)
    reasons = dict.fromkeys(log.reason for log in taken if log.reason)
    return ParsedLog(
        format=chosen, status="ok" if ok else "no-result", reason=None if ok else "; ".join(reasons), runs=runs
    )


def _merged(ranks: Sequence[ParsedRun]) -> ParsedRun:
    if len(ranks) == 1:
        return ranks[0]
    first = next((rank for rank in ranks if rank.printed), ranks[0])
    printed = tuple(chain.from_iterable(rank.printed for rank in ranks))
    weights = tuple(chain.from_iterable(rank.weights for rank in ranks))
    alone = first.scope == "process" or all(rank.processes == 1 for rank in ranks)
    scope: Scope = "process" if alone else first.scope
    count = sum if alone else max
    processes = count([rank.processes or 1 for rank in ranks])
    known_gpus = [rank.gpus for rank in ranks if rank.gpus is not None]
    warnings = list(dict.fromkeys(chain.from_iterable(rank.warnings for rank in ranks)))
    if alone:
        warnings.append(independent(processes))
    else:
        processes = max(processes, len(ranks))
        warnings += ranks_disagree(printed if scope == "job" else (), weights)
    missing = [rank.reason for rank in ranks if not rank.printed]
    if printed and missing:
        warnings.append(f"{len(missing)} of {len(ranks)} logs give no figure: {missing[0]}")
    observed = [rank.observations for rank in ranks if rank.observations is not msgspec.UNSET]
    return msgspec.structs.replace(
        first,
        throughput=throughput_of(printed),
        scope=scope,
        printed=printed,
        processes=processes,
        gpus=count(known_gpus) if known_gpus else None,
        steps=max((rank.steps for rank in ranks if rank.steps is not None), default=None),
        warnings=tuple(dict.fromkeys(warnings)),
        reason=None if printed else first.reason,
        weights=weights,
        observations=tuple(chain.from_iterable(observed)) if observed else msgspec.UNSET,
    )
