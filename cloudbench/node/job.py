"""The job file: what every node of a run is asked to do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1


class NodeError(Exception):
    """The node program was called in a way that cannot work; the text is for a person."""


class Job(NamedTuple):
    """One attempt of one run, the same on every node.

    `command` and `prepare` are text for `/bin/sh -c`: the first for each rank, the second once a node before
    any rank starts. Times are seconds; `deadline_s` counts from the start of the node program, `grace_s` lies
    between SIGTERM and SIGKILL.
    """

    run: str
    attempt: int
    launcher: str
    command: str
    prepare: str | None
    ranks_per_node: int
    gpus_per_node: int
    environment: Mapping[str, str]
    deadline_s: float
    peers_timeout_s: float
    grace_s: float


def read_job(text: str) -> Job:
    """Read the text of a job file.

    Raises:
        NodeError: the text is no JSON object, has another version, or a value is missing or of the wrong kind.
    """
    try:
        values = json.loads(text)
    except ValueError as error:
        raise NodeError(f"the job file is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise NodeError("the job file is not a JSON object")
    if values.get("version") != VERSION:
        raise NodeError(f"the job file has version {values.get('version')!r}, this program reads {VERSION}")
    environment = _value(values, "environment", dict)
    return Job(
        run=_value(values, "run", str),
        attempt=_value(values, "attempt", int),
        launcher=_value(values, "launcher", str),
        command=_value(values, "command", str),
        prepare=None if values.get("prepare") is None else _value(values, "prepare", str),
        ranks_per_node=_value(values, "ranks_per_node", int),
        gpus_per_node=_value(values, "gpus_per_node", int),
        environment={str(name): str(value) for name, value in environment.items()},
        deadline_s=float(_value(values, "deadline_s", (int, float))),
        peers_timeout_s=float(_value(values, "peers_timeout_s", (int, float))),
        grace_s=float(_value(values, "grace_s", (int, float))),
    )


def _value(values: dict[str, Any], key: str, kind: type | tuple[type, ...]) -> Any:
    value = values.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise NodeError(f"the job file's {key!r} is {value!r}, which is not usable")
    return value
