"""Processes are found by the variables that they started with, whatever they are doing, and killed to their end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from cloudbench.processes import kill_all, living
from tests.processes import large_program, restless_program


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


def test_what_takes_long_to_end_has_ended_when_it_was_killed() -> None:
    def find() -> list[psutil.Process]:
        return [process for process, shown in living() if shown.get("LARGE") == "yes"]

    with large_program({"LARGE": "yes"}) as process:
        assert kill_all(find, patience_s=60) == []
        assert process.poll() == -signal.SIGKILL


def test_a_process_that_has_the_number_of_an_earlier_one_is_killed() -> None:
    with running("/bin/sleep", "300", environment={"AGAIN": "yes"}) as process:
        (known,) = (each for each in psutil.process_iter() if each.pid == process.pid)
        known._ident = (process.pid, 0.0)  # type: ignore[attr-defined]  # as of one that began long before

        def find() -> list[psutil.Process]:
            return [each for each, shown in living() if shown.get("AGAIN") == "yes"]

        assert kill_all(find, patience_s=60) == []
        assert process.poll() == -signal.SIGKILL


def test_what_is_started_while_others_are_killed_is_killed_too(tmp_path: Path) -> None:
    started = iter(("first", "second", "third"))
    running = []

    def find() -> list[psutil.Process]:
        for name in started:
            running.append(subprocess.Popen(["/bin/sleep", "300"], env={"NAME": name}))
            break
        return [psutil.Process(process.pid) for process in running[-1:] if process.poll() is None]

    assert kill_all(find, patience_s=60) == []
    assert [process.wait() for process in running] == [-signal.SIGKILL] * 3


def test_what_does_not_die_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with running("/bin/sleep", "300", environment={}) as process:
        monkeypatch.setattr(psutil.Process, "kill", lambda self: None)  # as where the kernel does not let it go
        assert [left.pid for left in kill_all(lambda: [psutil.Process(process.pid)], patience_s=0.1)] == [process.pid]
