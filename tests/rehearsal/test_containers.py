"""The `docker` of a stand-in node with a real engine: containers, and that none is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cloudbench.rehearsal.containers import engine, first_image
from cloudbench.rehearsal.machines import Execution, Machine, Machines

if TYPE_CHECKING:
    from docker import DockerClient

PATIENCE_S = 120.0


@pytest.fixture
def machines(tmp_path: Path, docker_engine: str) -> Iterator[Machines]:
    machines = Machines(tmp_path)
    yield machines
    machines.close()


def start(machine: Machine, command: str) -> Execution:
    out, err = machine.folder / "out", machine.folder / "err"
    return machine.run(command, cwd=machine.folder, environment={"GIVEN": "yes"}, stdout=out, stderr=err)


def containers(client: DockerClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.api.containers(all=True, filters={"label": "cloudbench.machine"})
    return found


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_a_command_runs_in_the_image(machines: Machines, docker_client: DockerClient, busybox_image: str) -> None:
    machine = machines.start("one")
    (machine.folder / "data").mkdir()
    (machine.folder / "data" / "file").write_text("contents\n")
    options = "--rm --init --name node --network host --shm-size 64m --gpus all -v $PWD/data:/data:ro -e GIVEN -w /data"
    script = "cat file; echo $GIVEN; ls $CLOUDBENCH_LIFELINE; echo problem >&2; test -e /bin/busybox && exit 5"
    execution = start(machine, f"docker run {options} --entrypoint sh {busybox_image} -c '{script}'")
    assert execution.wait(PATIENCE_S) == 5
    assert (machine.folder / "out").read_text() == f"contents\nyes\n{machine.folder.parent}/lifeline\n"
    assert (machine.folder / "err").read_text().splitlines()[1:] == ["problem"]
    until(lambda: not containers(docker_client))


def test_a_command_that_is_not_in_the_image(
    machines: Machines, docker_client: DockerClient, busybox_image: str
) -> None:
    machine = machines.start("one")
    assert start(machine, f"docker run --rm {busybox_image} nonsense").wait(PATIENCE_S) == 127
    assert (machine.folder / "err").read_text().startswith("docker: the engine refused: ")
    until(lambda: not containers(docker_client))


def test_signals_reach_the_container(machines: Machines, busybox_image: str) -> None:
    machine = machines.start("one")
    script = 'trap "exit 9" TERM; echo ready; while :; do sleep 0.1; done'
    execution = start(machine, f"exec docker run {busybox_image} sh -c '{script}'")
    until((machine.folder / "out").read_text)
    execution.end(PATIENCE_S)
    assert execution.poll() == 9


def test_machines_have_containers_of_the_same_name_and_each_ends_with_its_machine(
    machines: Machines, docker_client: DockerClient, busybox_image: str
) -> None:
    started = [machines.start(name) for name in ("one", "two")]
    for machine in started:
        start(machine, f"setsid docker run --name node {busybox_image} sh -c 'echo ready; sleep 600'")
        until((machine.folder / "out").read_text)
    assert len(containers(docker_client)) == 2
    started[0].end()
    assert [item["State"] for item in containers(docker_client)] == ["running"]
    machines.close()
    assert containers(docker_client) == []


def test_where_the_engine_is_does_not_show(machines: Machines) -> None:
    machine = machines.start("one")
    assert start(machine, "env").wait(PATIENCE_S) == 0
    assert "DOCKER_" not in (machine.folder / "out").read_text()


def test_an_image_that_the_engine_has_is_taken(docker_engine: str, busybox_image: str) -> None:
    with engine() as client:
        assert client is not None
        assert first_image(client, ("nobody/has-this:1", busybox_image)) == busybox_image
        assert first_image(client, ("nobody/has-this:1",)) is None


def test_an_engine_that_does_not_answer_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    with engine() as client:
        assert client is None
