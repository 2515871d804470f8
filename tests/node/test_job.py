"""Job files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cloudbench.node.job import NodeError, read_job

VALUES: dict[str, Any] = {
    "version": 1,
    "run": "r",
    "attempt": 1,
    "launcher": "single",
    "command": "true",
    "prepare": None,
    "ranks_per_node": 1,
    "gpus_per_node": 0,
    "environment": {"A": "1"},
    "deadline_s": 10,
    "peers_timeout_s": 1.5,
    "grace_s": 1,
}


def test_job_is_read() -> None:
    job = read_job(json.dumps(VALUES))
    assert (job.run, job.prepare, job.environment, job.deadline_s) == ("r", None, {"A": "1"}, 10.0)


@pytest.mark.parametrize("key", sorted(set(VALUES) - {"prepare", "version"}))
@pytest.mark.parametrize("value", [None, True, []])
def test_unusable_value_is_named(key: str, value: Any) -> None:
    with pytest.raises(NodeError, match=key):
        read_job(json.dumps({**VALUES, key: value}))


def test_other_version_is_refused() -> None:
    with pytest.raises(NodeError, match="has version 2, this program reads 1"):
        read_job(json.dumps({**VALUES, "version": 2}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_what_is_no_job_is_refused(text: str) -> None:
    with pytest.raises(NodeError, match="the job file is not"):
        read_job(text)
