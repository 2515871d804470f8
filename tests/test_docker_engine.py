"""The engine that tests run on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docker_engine import import_busybox, own_engine, require_engine_tools

if TYPE_CHECKING:
    from docker import DockerClient


def test_containers_run_as_any_user_and_write_to_tmp(docker_client: DockerClient, busybox_image: str) -> None:
    command = ["sh", "-c", "id -u > /tmp/file && cat /tmp/file"]
    assert docker_client.containers.run(busybox_image, command, user="4242", remove=True) == b"4242\n"


def test_containers_of_the_python_image_have_the_standard_library(
    docker_client: DockerClient, python_image: str
) -> None:
    command = ["python3", "-c", "import hmac, json, selectors, socket, sqlite3, ssl, zipfile; print('all there')"]
    assert docker_client.containers.run(python_image, command, user="4242", remove=True) == b"all there\n"


def processes_that_mention(text: str) -> list[int]:
    def command_line(process: Path) -> bytes:
        try:
            return (process / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return b""

    processes = [path for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [int(process.name) for process in processes if text.encode() in command_line(process)]


@pytest.mark.docker
@pytest.mark.parametrize("crashes", [False, True], ids=["stopped", "crashed"])
def test_an_engine_of_its_own_leaves_no_process_mount_or_file(crashes: bool) -> None:
    require_engine_tools()
    import docker

    with own_engine(isolated=True) as engine:
        folder = Path(engine.host.removeprefix("unix://")).parent
        client = docker.DockerClient(base_url=engine.host)
        client.containers.run(import_busybox(client), ["sh", "-c", "trap exit TERM; sleep 1000 & wait"], detach=True)
        client.close()
        assert len(processes_that_mention(str(folder))) >= 2
        if crashes:
            os.kill(engine.pid, 9)
    assert processes_that_mention(str(folder)) == []
    assert str(folder) not in Path("/proc/mounts").read_text()
    assert not folder.exists()
