"""Starting processes and leaving none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudbench.node.supervise import COOKIE, Children, Exit, kill_all_with
from tests.node.conftest import wait_until
from tests.processes import large_program, restless_program


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    made = Children(0.2, tmp_path / "scratch")
    yield made
    made.close()


def start(children: Children, tmp_path: Path, command: str) -> int:
    """Start a shell command that writes its process id, and return that."""
    path = tmp_path / "pid"
    with (tmp_path / "log").open("ab") as output:
        children.start("rank", "rank-0", ("/bin/sh", "-c", f"{command} & echo $! > {path}; wait"), {}, output.fileno())
    wait_until(lambda: path.exists() and path.read_text(), "the process id")
    return int(path.read_text())


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def end(children: Children) -> Exit:
    (ended,) = wait_until(children.reap, "the end of the process")
    return ended[1]


@pytest.mark.parametrize(
    ("how", "text", "code"),
    [
        (Exit(0, None), "exited with code 0", 0),
        (Exit(3, None), "exited with code 3", 3),
        (Exit(255, None), "exited with code 255", 255),
        (Exit(None, 9), "was killed by signal 9 (SIGKILL)", 137),
        (Exit(134, None), "exited with code 134, which is how a shell reports signal 6 (SIGABRT)", 134),
    ],
)
def test_end_of_a_process_in_words(how: Exit, text: str, code: int) -> None:
    assert (str(how), how.shell_code) == (text, code)


def test_exit_code_and_signal_are_told_apart(children: Children, tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as output:
        children.start("rank", "rank-0", ("/bin/sh", "-c", "exit 3"), {}, output.fileno())
        assert end(children) == Exit(3, None)
        children.start("rank", "rank-0", ("/bin/sh", "-c", "kill -SEGV $$"), {}, output.fileno())
        assert end(children) == Exit(None, signal.SIGSEGV)


def test_child_gets_its_environment_and_nothing_else(children: Children, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab") as output:
        children.start("rank", "rank-0", ("/usr/bin/env",), {"A": "1"}, output.fileno())
    assert end(children) == Exit(0, None)
    assert {line.split("=")[0] for line in log.read_text().splitlines()} == {"A", COOKIE}


def test_stop_reaches_the_whole_group_and_kills_what_does_not_listen(children: Children, tmp_path: Path) -> None:
    pid = start(children, tmp_path, "trap '' TERM; sleep 300")
    now = time.monotonic()
    children.stop(now)
    children.tick(now)
    assert is_running(pid)
    wait_until(lambda: children.tick(time.monotonic()) or not is_running(pid), "the end of the group")


def test_close_finds_what_left_the_group(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    children = Children(0.2, scratch)
    pid = start(children, tmp_path, "setsid sleep 300")
    assert is_running(pid)
    children.close()
    assert not is_running(pid)
    assert not scratch.exists()


def test_what_is_becoming_another_program_is_found_too(tmp_path: Path) -> None:
    restless = restless_program(tmp_path)
    for attempt in range(40):
        process = subprocess.Popen([restless], env={"ATTEMPT": str(attempt)}, start_new_session=True)
        try:
            kill_all_with(f"ATTEMPT={attempt}")
            assert process.poll() == -signal.SIGKILL
        finally:
            process.kill()
            process.wait()


def test_what_takes_long_to_end_has_ended() -> None:
    with large_program({COOKIE: "of-a-large-one"}) as process:
        kill_all_with(f"{COOKIE}=of-a-large-one")
        assert process.poll() == -signal.SIGKILL


def test_what_somebody_else_killed_and_takes_long_to_end_has_ended_too() -> None:
    with large_program({COOKIE: "of-another-large-one"}) as process:
        process.kill()
        kill_all_with(f"{COOKIE}=of-another-large-one")
        assert process.poll() == -signal.SIGKILL


def test_a_process_without_an_environment_does_not_hold_up_the_end(tmp_path: Path) -> None:
    process = subprocess.Popen(["/bin/sleep", "300"], env={})
    try:
        kill_all_with(f"{COOKIE}=of-nobody")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_processes_of_others_are_left_alone(children: Children, tmp_path: Path) -> None:
    pid = start(children, tmp_path, "sleep 300")
    kill_all_with(f"{COOKIE}=of-somebody-else")
    assert is_running(pid)
    assert os.getpgid(pid) != os.getpgid(0)
