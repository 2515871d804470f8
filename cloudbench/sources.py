"""Where runs are found again: collected runs, folders of logs, and experiments whose logs lie beside them.

Reads files and gives back what is known of each run; what that amounts to is worked out in `cloudbench.results`.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cloudbench.errors import UsageError
from cloudbench.loading import load_experiment, load_template
from cloudbench.parsers import FORMATS, ParsedLog, ParsedRun, merge_ranks, tf_cnn_benchmarks
from cloudbench.parsers.files import parse_file
from cloudbench.plan import Launcher, RunPlan, plan_experiment
from cloudbench.results.measurement import RunRecord
from cloudbench.results.notes import cloud_note, rehearsal_note
from cloudbench.run import Outcome, Run

EXPERIMENT_FILE = "experiment.yaml"
LOG_SUFFIXES = ("", ".log", ".out", ".txt")
"""What a log's name can end in."""

_EXCHANGING: tuple[Launcher, ...] = ("horovod", "tf-config", "parameter-server")
"""Launchers whose ranks were asked to train one model together, so that figures of single ranks add up to nothing."""


def folder_records(folder: Path) -> list[RunRecord]:
    """The runs whose logs a folder holds: an experiment's in its order, or one for each log or folder of logs.

    Raises:
        UsageError: no such folder, or it holds no log.
        SpecError: it holds an experiment file that is wrong.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", todo="name a run, or a folder with logs")
    return experiment_records(folder) if (folder / EXPERIMENT_FILE).exists() else log_records(folder)


def experiment_records(folder: Path) -> list[RunRecord]:
    """The runs of `experiment.yaml`, whose logs lie in `logs/<label>/` beside it, one file a rank or all in one.

    The label is the setup's name, with the swept parameters behind it where the experiment sweeps any. Logs of
    repeats lie one folder deeper, in `repeat-1` and so on. A run without logs has no result, and the others stand.

    Raises:
        UsageError: not one run has logs.
        SpecError: the experiment is wrong.
    """
    experiment = load_experiment(folder / EXPERIMENT_FILE)
    templates = {name: load_template(name, beside=folder) for name in experiment.templates}
    records, places = [], []
    for plan in plan_experiment(experiment, templates, owner="", submission=0):
        place = folder / "logs" / plan.label
        if experiment.repeats > 1:
            place /= f"repeat-{plan.repeat}"
        places.append(place)
        log = _parse_together(_logs(place), plan.format)
        record = _planned(plan, group=f"{folder}#{plan.group}")
        records.append(_with_log(record, log, plan, missing=f"no log in {place}"))
    if not any(map(_logs, places)):
        raise UsageError(
            f"{folder / EXPERIMENT_FILE}: no logs of its runs",
            why=f"looked in {_listed(map(str, places))}; found {_listed(_names(folder / 'logs'))}",
            todo=f"cloudbench run {folder / EXPERIMENT_FILE}",
        )
    return records


def log_records(folder: Path) -> list[RunRecord]:
    """A record for each run in each log of a folder; the logs in one of its folders are the ranks of one run.

    GPUs are those of which the log tells; how many nodes there were is not known.

    Raises:
        UsageError: there is no log.
    """
    records: list[RunRecord] = []
    for path in sorted(folder.iterdir(), key=_natural):
        if path.is_dir() and (logs := _logs(path)):
            records += _unplanned(path, merge_ranks([_parse(log) for log in logs]))
        elif _is_log(path):
            records += _unplanned(path, _parse(path))
    if not records:
        raise UsageError(
            f"{folder}: no logs",
            why=f"looked for {EXPERIMENT_FILE}, for files that end in {_listed(filter(None, LOG_SUFFIXES))} or in "
            f"nothing, and for folders with such files; found {_listed(_names(folder))}",
        )
    return records


def run_record(run: Run, folder: Path, *, uncollected: bool = False) -> RunRecord:
    """What is known of a run from its journal and the artifacts that were brought home so far.

    `folder` is the run's, with `attempt-<n>/node-<k>/` below it. `uncollected` where the provider says that the job
    has ended while the journal does not know it yet.
    """
    attempt = folder / f"attempt-{run.attempt}"
    nodes = sorted(attempt.glob("node-*"), key=_natural)
    paths = [path for node in nodes for path in sorted(node.glob("rank-*.log"))]
    missing = f"no rank-*.log in {attempt}"
    if run.plan.format not in FORMATS:  # another version of cloudbench made the plan
        paths, missing = [], f"unknown log format {run.plan.format!r}; known: {', '.join(FORMATS)}"
    log = _parse_together(paths, run.plan.format)
    facts = [_json(node / "facts.json") for node in nodes]
    record = msgspec.structs.replace(
        _planned(run.plan, group=run.plan.group),
        run=run.id,
        phase=run.phase,
        outcome=run.outcome,
        uncollected=uncollected,
        reason=run.status.reason if run.status and run.outcome is not Outcome.SUCCEEDED else None,
        duration_s=_duration_s([_json(node / "status.json") for node in nodes]),
        attempts=run.attempt,
        lost=run.lost,
        lost_logs=run.lost_files,
    )
    record = _with_log(record, log, run.plan, missing=missing)
    on_gpus = _on_gpus(record.parsed, facts)
    return msgspec.structs.replace(
        record,
        hardware=_hardware(facts, on_gpus=on_gpus),
        note=_note(run.plan, facts, on_gpus=on_gpus),
    )


def _planned(plan: RunPlan, *, group: str) -> RunRecord:
    return RunRecord(
        label=plan.label,
        group=group,
        repeat=plan.repeat,
        experiment=plan.experiment,
        template=plan.template,
        parameters=plan.parameters,
        nodes=plan.nodes,
        gpus_per_node=plan.gpus_per_node,
        ranks=plan.ranks,
        note=plan.setup.note,
    )


def _unplanned(path: Path, log: ParsedLog) -> Iterator[RunRecord]:
    """A record for each run of a log of which nothing else is known."""
    label = os.fsencode(path.name if path.is_dir() else path.stem).decode("utf-8", "replace")
    for number, parsed in enumerate(log.runs or (None,), start=1):
        yield RunRecord(
            label=f"{label} #{number}" if len(log.runs) > 1 else label,
            group=f"{path}#{number}",
            parsed=parsed,
            reason=log.reason,
            independent=_alone(log, parsed),
        )


def _with_log(record: RunRecord, log: ParsedLog | None, plan: RunPlan, *, missing: str) -> RunRecord:
    """The record with what its log holds, which must be a single run with figures to be of use."""
    if log is None:
        return msgspec.structs.replace(record, reason=record.reason or missing)
    measured = [run for run in log.runs if run.throughput is not None]
    if len(measured) > 1:
        return msgspec.structs.replace(
            record, reason=record.reason or f"the log holds {len(measured)} runs, and which of them counts is not known"
        )
    parsed = (measured or log.runs or (None,))[0]
    return msgspec.structs.replace(
        record,
        parsed=parsed,
        reason=record.reason or log.reason,
        independent=plan.launcher not in _EXCHANGING and _alone(log, parsed),
    )


def _alone(log: ParsedLog, parsed: ParsedRun | None) -> bool:
    """Whether the log shows that its processes trained each on its own."""
    return log.format == tf_cnn_benchmarks.NAME and parsed is not None and parsed.scope == "process"


def _parse_together(paths: Sequence[Path], format_: str | None = None) -> ParsedLog | None:
    """What the logs of one run's ranks hold, `None` where there is none."""
    return merge_ranks([_parse(path, format_) for path in paths]) if paths else None


def _parse(path: Path, format_: str | None = None) -> ParsedLog:
    try:
        return parse_file(path, format_)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read", why=error.strerror, todo="check the file") from error


def _on_gpus(parsed: ParsedRun | None, facts: Sequence[dict[str, Any]]) -> bool | None:
    """Whether the ranks computed on GPUs: by their log, else by what the machines have; `None` where neither tells."""
    if parsed is not None and parsed.gpus is not None:
        return parsed.gpus > 0
    return any(_gpu_names(node) for node in facts) if any(facts) else None


def _hardware(facts: Sequence[dict[str, Any]], *, on_gpus: bool | None) -> str | None:
    """Names of the nodes' GPUs, or of their CPUs where the ranks computed on these."""
    if on_gpus is None:
        return None
    named = (_gpu_names(node) if on_gpus else _cpu_names(node) for node in facts)
    return " + ".join(sorted(set(itertools.chain.from_iterable(named)))) or None


def _gpu_names(facts: dict[str, Any]) -> list[str]:
    gpus = facts.get("gpus")
    return [str(gpu["name"]) for gpu in gpus if "name" in gpu] if isinstance(gpus, list) else []


def _cpu_names(facts: dict[str, Any]) -> list[str]:
    model = facts.get("cpu", {}).get("model")
    return [model] if isinstance(model, str) else []


def _note(plan: RunPlan, facts: Sequence[dict[str, Any]], *, on_gpus: bool | None) -> str:
    """What a run was: its setup's own words or, where there are none, ours; and what a rehearsal really trained."""
    note = plan.setup.note
    if note is None:
        local = plan.setup.provider == "local"
        note = _local_note(plan, facts, on_gpus=on_gpus) if local else cloud_note(plan)
    return f"{note}; {rehearsal_note(plan, on_gpus=bool(on_gpus))}" if plan.on_stand_ins else note


def _local_note(plan: RunPlan, facts: Sequence[dict[str, Any]], *, on_gpus: bool | None) -> str:
    """Such as `local process, 4 CPU ranks`."""
    service = plan.setup.service or "process"
    computed_on = None
    if on_gpus is not None:
        cpu_ranks = "1 CPU rank" if plan.ranks == 1 else f"{plan.ranks} CPU ranks"
        computed_on = _hardware(facts, on_gpus=True) if on_gpus else cpu_ranks
    image = plan.image if service != "process" else None
    return ", ".join(filter(None, [f"local {service}", image, computed_on]))


def _duration_s(statuses: Sequence[dict[str, Any]]) -> float | None:
    """Seconds from the first node's start to the last one's end."""
    stamps = [status.get("stamps", {}) for status in statuses]
    starts, ends = ([stamp[name] for stamp in stamps if stamp.get(name) is not None] for name in ("start", "end"))
    return max(ends) - min(starts) if starts and ends else None


def _json(path: Path) -> dict[str, Any]:
    """What a node wrote, nothing where it wrote none or was killed while it did."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return {}


def _logs(folder: Path) -> list[Path]:
    return sorted(filter(_is_log, folder.iterdir()), key=_natural) if folder.is_dir() else []


def _is_log(path: Path) -> bool:
    return path.suffix in LOG_SUFFIXES and not path.name.startswith(".") and path.is_file()


def _natural(path: Path) -> list[tuple[int, str]]:
    """A key that sorts `test-10` behind `test-9`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _listed(words: Iterable[str]) -> str:
    listed = list(words)
    shown = ", ".join(listed[:8]) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")
    return shown or "nothing"
