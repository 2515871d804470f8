from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from cloudbench.errors import InfrastructureError, UsageError
from cloudbench.providers.local import LocalProvider, Machine
from cloudbench.run import Outcome
from tests.docker_engine import ENGINE_SCRIPT, OwnEngine
from tests.providers.conformance import (
    FOREVER,
    AttachedConformance,
    ProviderConformance,
    ended,
    read_log,
    release_all,
    start,
    started,
    until,
    wait_for_line,
)
from tests.providers.local.world import DockerWorld, LocalWorld

if TYPE_CHECKING:
    from docker import DockerClient


@pytest.fixture
def world(tmp_path: Path, docker_client: DockerClient, docker_engine: str, python_image: str) -> Iterator[DockerWorld]:
    world = DockerWorld(tmp_path / "workspaces", client=docker_client, host=docker_engine, image=python_image)
    yield world
    world.clean_up()


class TestDockerConformance(AttachedConformance, ProviderConformance):
    provider = LocalProvider


def test_a_node_is_reached_by_its_name_and_runs_as_this_user(world: DockerWorld) -> None:
    provider, request = started(world, 'hostname; id -u; echo "$HOME"; getent hosts "$MASTER_ADDR" >/dev/null; echo $?')
    assert ended(provider, request).outcome is Outcome.SUCCEEDED
    lines = read_log(provider, request, 1, "rank-1.log").decode().splitlines()
    assert lines == [f"{request.plan.id}-a1-node-1", str(os.getuid()), "/tmp", "0"]


def test_each_container_is_given_its_own_gpus(world: DockerWorld) -> None:
    provider = world.connect(machine=Machine(gpus=("GPU-a", "GPU-b", "GPU-c", "GPU-d")))
    plan = msgspec.structs.replace(world.plan("true", nodes=2), gpus_per_node=2)
    containers = provider.render(plan, 1).steps[-1].body["containers"]
    assert [container["device_requests"][0]["device_ids"] for container in containers] == [
        ["GPU-a", "GPU-b"],
        ["GPU-c", "GPU-d"],
    ]
    assert not [container for container in containers if "CLOUDBENCH_GPUS" in container["environment"]]


def test_gpus_that_the_engine_does_not_have_are_refused_in_words(world: DockerWorld) -> None:
    provider = world.connect(machine=Machine(gpus=("GPU-a",)))
    request = provider.render(world.plan("true", nodes=1), 1)
    handles = list(provider.provision(request))
    with pytest.raises(InfrastructureError, match="Docker engine refused"):
        provider.submit(request)
    assert release_all(provider, [*handles, request.job])
    assert not world.left(request.plan)


def test_a_network_or_container_of_that_name_that_is_not_ours_is_left_alone(world: DockerWorld) -> None:
    provider = world.connect()
    request = provider.render(world.plan("true", nodes=1), 1)
    name, labels = request.job.id, {"cloudbench.owner": "somebody-else", "cloudbench.run": request.plan.id}
    theirs = world.client.networks.create(name, labels={**labels, "cloudbench.attempt": "1"})
    with pytest.raises(UsageError, match="somebody else"):
        list(provider.provision(request))
    assert provider.release(request.steps[1].handle), "ours does not exist"
    theirs.remove()

    list(provider.provision(request))
    container = world.client.containers.create(world.image, "sleep 300", name=f"{name}-node-0", labels=labels)
    with pytest.raises(UsageError, match="somebody else"):
        provider.submit(request)
    assert provider.release(request.job), "ours does not exist"
    container.remove()


def test_a_container_that_was_made_and_not_started_is_started(world: DockerWorld) -> None:
    provider = world.connect()
    request = provider.render(world.plan("echo hello", nodes=1), 1)
    list(provider.provision(request))
    world.client.containers.create(**request.steps[-1].body["containers"][0])
    provider.submit(request)
    assert ended(provider, request).outcome is Outcome.SUCCEEDED


def test_an_image_that_nobody_has_is_an_error_before_anything_starts(world: DockerWorld) -> None:
    plan = msgspec.structs.replace(world.plan("true"), image="localhost:1/no/such-image")
    provider = world.connect()
    [error] = [item for item in provider.check(provider.render(plan, 1)) if item.severity == "error"]
    assert "localhost:1/no/such-image" in error.what
    assert error.exit_code == 2
    assert error.todo
    assert "docker build" in error.todo


def test_modules_are_looked_for_in_the_image(world: DockerWorld, busybox_image: str) -> None:
    provider = world.connect()
    plan = msgspec.structs.replace(world.plan("true"), requires=("json.decoder", "tensorflow"))
    [error] = [item for item in provider.check(provider.render(plan, 1)) if item.severity == "error"]
    assert error.what == "tensorflow is not installed"
    assert error.exit_code == 2

    plan = msgspec.structs.replace(plan, image=busybox_image)
    [error] = [item for item in provider.check(provider.render(plan, 1)) if item.severity == "error"]
    assert busybox_image in error.what
    assert error.why
    assert "python3" in error.why
    assert not world.client.containers.list(all=True, filters={"label": f"cloudbench.owner={world.owner}"})


def test_without_an_engine_the_error_says_what_to_start(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    world.service, world.host = "docker", f"unix://{tmp_path}/nobody.sock"
    provider = world.connect()
    [error] = [item for item in provider.check(provider.render(world.plan("true"), 1)) if item.severity == "error"]
    assert "Docker engine" in error.what
    assert error.todo
    assert "start" in error.todo


@pytest.fixture
def own_world(
    tmp_path: Path, private_docker_engine: OwnEngine, docker_client: DockerClient, python_image: str
) -> Iterator[DockerWorld]:
    """A world with an engine that may be killed."""
    import docker

    client = docker.DockerClient(base_url=private_docker_engine.host, timeout=600)
    client.images.load(b"".join(docker_client.images.get(python_image).save(named=True)))
    yield DockerWorld(tmp_path / "workspaces", client=client, host=private_docker_engine.host, image=python_image)
    client.close()


@pytest.mark.slow
@pytest.mark.parametrize("attached", [True, False])
def test_an_engine_that_dies_leaves_nothing_running_and_loses_no_line(
    own_world: DockerWorld, private_docker_engine: OwnEngine, tmp_path: Path, attached: bool
) -> None:
    provider = own_world.connect(attached=attached)
    request = start(provider, own_world.plan(FOREVER))
    wait_for_line(provider, request, b"line")

    os.kill(private_docker_engine.pid, signal.SIGKILL)
    status = ended(provider, request)

    assert status.outcome is Outcome.INFRASTRUCTURE
    assert status.reason
    assert "Docker engine" in status.reason
    until(lambda: not list(own_world.processes(request.plan)))
    provider.collect(request.job, tmp_path / "home")
    assert (tmp_path / "home" / "node-1" / "rank-1.log").read_bytes().startswith(b"line\n")
    handles = [step.handle for step in request.steps]
    for handle in reversed(handles):
        assert not provider.release(handle), "nobody can tell what is left"

    folder = private_docker_engine.host.removeprefix("unix://").removesuffix("/docker.sock")
    subprocess.run(["unshare", "--net", ENGINE_SCRIPT, "start", folder], check=True, stdout=subprocess.DEVNULL)
    until(lambda: release_all(own_world.connect(), handles))
    assert not own_world.left(request.plan)
