from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudbench.providers.local import LocalProvider, find_machine
from cloudbench.providers.local.processes import ProcessService
from cloudbench.providers.local.workspace import Workspace
from cloudbench.run import Outcome
from tests.processes import of_run
from tests.providers.conformance import (
    AttachedConformance,
    ProviderConformance,
    ended,
    read_log,
    started,
    until,
    wait_for_line,
)
from tests.providers.local.world import LocalWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    world = LocalWorld(tmp_path / "workspaces")
    yield world
    world.clean_up()


class TestProcessConformance(AttachedConformance, ProviderConformance):
    provider = LocalProvider


def test_ranks_run_with_the_python_of_the_client_and_without_its_own_variables(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDBENCH_LEAKED", "yes")
    monkeypatch.setenv("SOMETHING_ELSE", "kept")
    command = 'command -v python; echo "[$CLOUDBENCH_LEAKED][$SOMETHING_ELSE][$CUDA_VISIBLE_DEVICES]"; pwd'
    provider, request = started(world, command, nodes=1)
    assert ended(provider, request).outcome is Outcome.SUCCEEDED
    python, variables, folder = read_log(provider, request, 0, "rank-0.log").decode().splitlines()
    assert Path(python).samefile(sys.executable)
    assert variables.startswith("[][kept][")
    assert folder == str(world.folder(request.plan) / "work-0")


def test_a_program_that_this_client_started_lives_until_it_ends_whatever_it_shows(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.write_text("#!/bin/sh\nexec env -i sleep 300\n")
    hidden.chmod(0o755)
    plan = LocalWorld(tmp_path).plan("true")
    workspace = Workspace(root=tmp_path, run=plan.id, attempt=1)
    workspace.make(plan, service="process")
    service = ProcessService(python=str(hidden), machine=find_machine(), attached=False)
    [step] = service.steps(plan, workspace)
    service.start(step, workspace, [0])
    until(lambda: not of_run(plan.id))
    assert service.alive([workspace]) == {workspace: {0}}
    [pid] = service._children
    os.kill(pid, signal.SIGKILL)
    until(lambda: service.alive([workspace]) == {workspace: set()})
    assert workspace.remove()


@pytest.mark.slow
def test_a_stopped_job_that_does_not_end_is_killed(world: LocalWorld) -> None:
    """Also where the node program itself hangs, which is what would kill its ranks."""
    provider, request = started(world, "trap '' TERM; echo deaf; while :; do sleep 1; done", nodes=1)
    wait_for_line(provider, request, b"deaf")
    os.kill(world.node_pid(request.plan, 0), signal.SIGSTOP)

    provider.stop(request.job)

    status = ended(provider, request)
    assert status.outcome is Outcome.CANCELLED
    assert not world.living(request.plan)


def test_what_a_rank_started_in_a_session_of_its_own_is_released_too(world: LocalWorld) -> None:
    provider, request = started(world, "setsid sleep 300 & echo begun; sleep 300", nodes=1)
    wait_for_line(provider, request, b"begun")
    until(lambda: [name for name in world.living(request.plan) if name.endswith(" sleep")][1:])
    assert provider.release(request.job)
    assert not world.living(request.plan)


def test_temporary_files_of_what_was_killed_are_released_with_its_workspace(world: LocalWorld) -> None:
    provider, request = started(world, 'touch "$TMPDIR/left"; trap "" TERM; echo $TMPDIR; sleep 300', nodes=1)
    wait_for_line(provider, request, b"cloudbench-")
    folder = Path((world.folder(request.plan) / "node-0" / "rank-0.log").read_text().strip())
    assert (folder / "left").exists()

    for handle in (request.job, request.steps[0].handle):
        assert provider.release(handle)

    assert not folder.exists()


def test_a_file_system_that_forgets_its_workspaces_leaves_no_processes(world: LocalWorld) -> None:
    provider, request = started(world, "echo begun; sleep 300")
    wait_for_line(provider, request, b"begun")
    temporary = (world.folder(request.plan) / "tmp").readlink()
    while world.folder(request.plan).exists():  # what the nodes write meanwhile is in the way
        shutil.rmtree(world.folder(request.plan), ignore_errors=True)
    assert ended(provider, request).outcome is Outcome.INFRASTRUCTURE
    assert provider.release(request.job)
    assert not world.living(request.plan)
    shutil.rmtree(temporary)  # which nothing tells of any more
