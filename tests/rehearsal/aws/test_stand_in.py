from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.rehearsal.aws.conftest import START_S, Account, new_name, until

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

# A job and an instance whose processes can be told by the name of their sleep.
_REHEARSAL = """
import os, sys, threading, traceback
from pathlib import Path
from tests.rehearsal.aws.conftest import Account
from tests.rehearsal.aws.test_ec2 import run

try:
    account = Account(Path(sys.argv[1]), None)
    command = f"exec bash -c 'exec -a {sys.argv[2]} sleep 600'"
    run(account, command)
    account.submit(account.environment(), account.define(command))
    account.clock.advance(501)
    print("runs", flush=True)
    threading.Event().wait()
except BaseException:
    traceback.print_exc()
    os._exit(1)
"""


def named(name: str) -> list[psutil.Process]:
    """The processes of that name."""
    living = psutil.process_iter(["cmdline"])
    return [process for process in living if (process.info["cmdline"] or [""])[0] == name]


def test_nothing_outlives_a_rehearsal_that_is_killed(tmp_path: Path) -> None:
    name = f"{new_name()}-of-{os.getpid()}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _REHEARSAL, str(tmp_path), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as rehearsal:
        try:
            assert rehearsal.stdout
            assert rehearsal.stdout.readline() == "runs\n"
            until(lambda: len(named(name)) == 2)
        finally:
            rehearsal.kill()
    until(lambda: named(name) == [])


def test_closing_ends_all_that_runs(make_account: Callable[..., Account]) -> None:
    account, name = make_account(), f"{new_name()}-of-{os.getpid()}"
    definition = account.define(f"exec bash -c 'exec -a {name} sleep 600'", nodes=2)
    account.submit(account.environment(), definition)
    account.clock.advance(START_S)
    until(lambda: len(named(name)) == 2)
    account.close()
    assert named(name) == []


def test_a_job_is_a_container_where_the_engine_has_its_image(
    make_account: Callable[..., Account], tmp_path: Path, docker_client: DockerClient, busybox_image: str
) -> None:
    account = make_account(containers=True)
    script = "echo 1 > /data/file; exec sleep 600"
    more = {
        "image": busybox_image,
        "volumes": [{"name": "data", "host": {"sourcePath": "/data"}}],
        "mountPoints": [{"sourceVolume": "data", "containerPath": "/data"}],
        "linuxParameters": {"sharedMemorySize": 64},
    }
    job = account.submit(account.environment(), account.define(script, **more))
    account.clock.advance(START_S)

    def containers() -> list[Container]:
        found = docker_client.containers.list(all=True, ignore_removed=True)
        return [container for container in found if str(tmp_path) in str(container.attrs["HostConfig"]["Binds"])]

    until(lambda: list(tmp_path.glob("*/nodes/*/disk/data/file")) != [])
    (container,) = containers()
    assert container.attrs["HostConfig"]["ShmSize"] == 64 * 1024 * 1024
    account.batch.terminate_job(jobId=job, reason="enough")
    account.clock.advance(31)
    assert account.ends(job)["status"] == "FAILED"
    assert containers() == []
