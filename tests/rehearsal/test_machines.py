"""Stand-in nodes: what they run, what they show it, and that nothing of them is left."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from cloudbench.errors import InfrastructureError, UsageError
from cloudbench.rehearsal.machines import Execution, Machine, Machines

PATIENCE_S = 120.0


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path / "machines", containers=False)
    yield machines
    machines.close()


def run(machine: Machine, command: str, environment: Mapping[str, str] | None = None) -> Execution:
    out, err = machine.folder / "out", machine.folder / "err"
    return machine.run(command, cwd=machine.folder, environment=environment or {}, stdout=out, stderr=err)


def output(machine: Machine, command: str, environment: Mapping[str, str] | None = None) -> str:
    assert run(machine, command, environment).wait(PATIENCE_S) == 0
    return (machine.folder / "out").read_text()


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return value


def pid_in(path: Path) -> int:
    """The process id that a command writes into a file."""
    return int(until(lambda: path.exists() and path.read_text().strip()))


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_each_machine_has_an_address_and_a_folder_of_its_own(machines: Machines) -> None:
    one, other = machines.start("one"), machines.start("other")
    assert one.address != other.address
    assert output(one, "pwd; echo $CLOUDBENCH_NODE_ADDRESS") == f"{one.folder}\n{one.address}\n"
    assert not (other.folder / "out").exists()


def test_temporary_files_lie_at_a_short_path_and_end_with_their_machine(machines: Machines) -> None:
    one, other = machines.start("one"), machines.start("other")
    found = output(one, 'touch "$TMPDIR/mine"; echo $TMPDIR', {"A": "b"}).strip()
    assert len(found) < 80
    assert (Path(found) / "mine").exists()
    assert output(other, "echo $TMPDIR").strip() != found
    assert (one.folder / "tmp").resolve() == Path(found).resolve()
    one.end()
    assert not Path(found).exists()


def test_a_machine_takes_the_address_that_it_is_given(machines: Machines) -> None:
    assert output(machines.start("one", address="127.9.9.9"), "echo $CLOUDBENCH_NODE_ADDRESS") == "127.9.9.9\n"


@pytest.mark.parametrize(("command", "code"), [("true", 0), ("exit 3", 3), ("kill -TERM $$", 143), ("nonsense", 127)])
def test_the_exit_code_is_that_of_a_shell(machines: Machines, command: str, code: int) -> None:
    execution = run(machines.start("one"), command)
    assert execution.wait(PATIENCE_S) == code
    assert execution.poll() == code


def test_a_command_that_runs_has_no_exit_code_yet(machines: Machines) -> None:
    execution = run(machines.start("one"), "sleep 600")
    assert execution.poll() is None
    assert execution.wait(0.01) is None


def test_what_is_printed_is_appended_to_the_files(machines: Machines) -> None:
    machine = machines.start("one")
    output(machine, "echo first; echo problem >&2")
    assert output(machine, "echo second") == "first\nsecond\n"
    assert (machine.folder / "err").read_text() == "problem\n"


def test_a_machine_knows_nothing_of_the_client(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("AZURE_CLIENT_SECRET", "AWS_SECRET_ACCESS_KEY", "CLOUDBENCH_AZURE_KEY", "CLOUDBENCH_GPUS", "DOCKER_HOST")
    for name in names:
        monkeypatch.setenv(name, "the-secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    printed = output(machines.start("one"), "env; cat bin/docker", {"AZ_BATCH_POOL_ID": "pool"}).split("#!")[0]
    assert "the-secret" not in printed
    assert {"LANG=C.UTF-8", "AZ_BATCH_POOL_ID=pool"} <= set(printed.splitlines())


def test_a_proxy_is_not_asked_for_what_runs_here(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "inside.example")
    printed = output(machines.start("one"), "echo $https_proxy $no_proxy")
    assert printed == "http://proxy:3128 inside.example,127.0.0.1,localhost\n"


def test_python_is_the_one_of_the_client_and_docker_is_ours(machines: Machines) -> None:
    machine = machines.start("one")
    found = output(machine, "command -v python3; command -v docker", {"PATH": "/usr/bin:/bin"}).split()
    assert Path(found[0]).samefile(sys.executable)
    assert found[1] == str(machine.folder / "bin" / "docker")


def test_a_mounted_folder_is_the_folder_itself(machines: Machines, tmp_path: Path) -> None:
    share, machine = tmp_path / "share", machines.start("one")
    share.mkdir()
    machine.mount(share, machine.folder / "mnt" / "share")
    output(machine, "echo written >mnt/share/file")
    assert (share / "file").read_text() == "written\n"
    with pytest.raises(ValueError, match="not below"):
        machine.mount(share, tmp_path / "elsewhere")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("sleep 600 & echo $! >pid", id="in the background"),
        pytest.param("nohup setsid sleep 600 & echo $! >pid", id="in a session of its own"),
        pytest.param("(setsid sh -c 'sleep 600 & echo $! >pid' &)", id="forked twice"),
        pytest.param("env -i sh -c 'echo $$ >pid; exec sleep 600' & sleep 600", id="without variables"),
        pytest.param("trap '' TERM; echo $$ >pid; while :; do sleep 1; done", id="deaf"),
    ],
)
def test_the_end_of_a_machine_is_the_end_of_what_it_started(machines: Machines, command: str) -> None:
    machine = machines.start("one")
    run(machine, command)
    pid = pid_in(machine.folder / "pid")
    assert lives(pid)
    machine.end()
    assert not lives(pid)


def test_what_starts_others_all_the_time_ends_too(machines: Machines) -> None:
    machine = machines.start("one")
    run(machine, "while :; do setsid sh -c 'echo >>began; sleep 600' & sleep 0.05; done")
    until(lambda: (machine.folder / "began").exists() and len((machine.folder / "began").read_text()) > 5)
    machine.end()
    mark = f"CLOUDBENCH_NODE_ADDRESS={machine.address}".encode()
    found = [path for path in Path("/proc").glob("[0-9]*/environ") if mark in readable(path).split(b"\0")]
    assert found == []


def readable(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_command_can_end_in_order_and_the_others_go_on(machines: Machines) -> None:
    machine = machines.start("one")
    other = run(machine, "echo $$ >other; exec sleep 600")
    execution = run(machine, "trap 'echo asked; exit 9' TERM; echo $$ >pid; while :; do sleep 0.1; done")
    pid_in(machine.folder / "pid")
    execution.end(PATIENCE_S)
    assert execution.poll() == 9
    assert (machine.folder / "out").read_text() == "asked\n"
    assert other.poll() is None


def test_what_does_not_end_in_order_is_killed(machines: Machines) -> None:
    machine = machines.start("one")
    execution = run(machine, "trap '' TERM; setsid sleep 600 & echo $! >pid; while :; do sleep 0.1; done")
    pid = pid_in(machine.folder / "pid")
    execution.end(0.2)
    assert execution.poll() == 137
    assert not lives(pid)


def test_a_command_that_has_ended_can_be_ended(machines: Machines) -> None:
    machine = machines.start("one")
    execution = run(machine, "setsid sleep 600 & echo $! >pid; exit 4")
    assert execution.wait(PATIENCE_S) == 4
    execution.end(0)
    assert execution.poll() == 4
    assert not lives(pid_in(machine.folder / "pid"))


def test_an_ended_machine_runs_nothing_more_and_its_name_is_free(machines: Machines) -> None:
    machine = machines.start("one")
    with pytest.raises(ValueError, match="one runs already"):
        machines.start("one")
    (machine.folder / "left").touch()
    machine.end()
    machine.end()
    with pytest.raises(InfrastructureError, match="one has ended"):
        run(machine, "true")
    assert not (machines.start("one").folder / "left").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "lifeline"])
def test_a_machine_has_the_name_of_a_folder(machines: Machines, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        machines.start(name)


def test_a_folder_that_is_no_machine_is_left_alone(machines: Machines, tmp_path: Path) -> None:
    kept = tmp_path / "machines" / "photos" / "one.jpg"
    kept.parent.mkdir()
    kept.touch()
    with pytest.raises(UsageError, match="photos: is there already"):
        machines.start("photos")
    assert kept.exists()


def test_a_command_that_cannot_start_is_told_as_such(machines: Machines) -> None:
    machine = machines.start("one")
    out = machine.folder / "out"
    with pytest.raises(InfrastructureError, match="cannot start"):
        machine.run("true", cwd=machine.folder / "missing", environment={}, stdout=out, stderr=out)


def test_closing_ends_every_machine_and_lets_go_of_the_lifeline(tmp_path: Path) -> None:
    machines = Machines(tmp_path, containers=False)
    started = [machines.start(name) for name in ("one", "two")]
    executions = [run(machine, "sleep 600") for machine in started]
    assert locked(tmp_path / "lifeline")
    machines.close()
    machines.close()
    assert [execution.poll() for execution in executions] == [137, 137]
    assert not locked(tmp_path / "lifeline")
    with pytest.raises(ValueError, match="has ended"):
        machines.start("three")


def test_two_rehearsals_do_not_share_a_folder(machines: Machines, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="another rehearsal"):
        Machines(tmp_path / "machines")


WATCH = """
import os, pathlib, time
from cloudbench.node.watch import Lifeline
lifeline = Lifeline(pathlib.Path(os.environ["CLOUDBENCH_LIFELINE"]))
pathlib.Path("pid").write_text(str(os.getpid()))
while not lifeline.is_lost(time.monotonic()):
    time.sleep(0.1)
pathlib.Path("noticed").touch()
"""

OWN = """
import pathlib, sys, time
from cloudbench.rehearsal.machines import Machines
root = pathlib.Path(sys.argv[1])
machine = Machines(root, containers=False).start("one")
(machine.folder / "watch.py").write_text(sys.argv[2])
out = machine.folder / "out"
machine.run("python3 watch.py", cwd=machine.folder, environment={}, stdout=out, stderr=out)
time.sleep(600)
"""


def test_a_node_program_ends_when_the_rehearsal_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", OWN, tmp_path, WATCH], env=environment) as owner:
        pid = pid_in(tmp_path / "one" / "pid")
        owner.send_signal(signal.SIGKILL)
    until(lambda: not lives(pid))
    assert (tmp_path / "one" / "noticed").exists()
