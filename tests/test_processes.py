"""Processes are found by the variables that they started with, whatever they are doing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloudbench.processes import living
from tests.processes import restless_program


@contextmanager
def running(*command: str | Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def found(environment: dict[str, str]) -> list[int]:
    return [process.pid for process, shown in living() if environment.items() <= shown.items()]


def test_a_process_is_found_by_what_it_started_with() -> None:
    with running("/bin/sleep", "300", environment={"A": "1", "B": "2"}) as process:
        assert found({"A": "1", "B": "2"}) == [process.pid]
        assert found({"A": "1", "B": "3"}) == []


def test_one_that_does_nothing_but_become_another_program_is_found_each_time(tmp_path: Path) -> None:
    with running(restless_program(tmp_path), environment={"RESTLESS": "yes"}) as process:
        assert [found({"RESTLESS": "yes"}) for _ in range(60)] == [[process.pid]] * 60


def test_one_without_any_variable_is_told_too() -> None:
    with running("/bin/sleep", "300", environment={}) as process:
        assert process.pid in found({})


def test_what_has_ended_is_not_told() -> None:
    process = subprocess.Popen(["/bin/true"], env={"ENDED": "yes"})
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process.pid not in found({})
    process.wait()
