from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cloudbench.errors import CloudbenchError, UsageError
from cloudbench.plan import RunPlan
from cloudbench.providers.base import Problem
from cloudbench.providers.local import Machine, local_provider
from tests.providers.conformance import started, wait_for_line
from tests.providers.local.world import LocalWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    world = LocalWorld(tmp_path / "workspaces")
    yield world
    world.clean_up()


def problems(world: LocalWorld, plan: RunPlan, *, gpus: int = 0) -> list[Problem]:
    provider = world.connect(machine=Machine(gpus=tuple(f"GPU-{index}" for index in range(gpus))))
    return list(provider.check(provider.render(plan, 1)))


def errors(found: list[Problem]) -> list[tuple[str, int]]:
    return [(problem.what, problem.exit_code) for problem in found if problem.severity == "error"]


def test_an_unknown_service_is_refused_with_a_near_match(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"dokcer.*did you mean 'docker'"):
        local_provider(tmp_path, service="dokcer", attached=True)


@pytest.mark.parametrize(
    ("key", "value"), [("sku", "NC6"), ("storage", "nfs"), ("pool", "mine"), ("priority", "low-priority")]
)
def test_what_only_a_cloud_has_is_refused(world: LocalWorld, key: str, value: str) -> None:
    plan = world.plan("true")
    plan = msgspec.structs.replace(plan, setup=msgspec.structs.replace(plan.setup, **{key: value}))
    [(what, exit_code)] = errors(problems(world, plan))
    assert f"{key} {value}" in what
    assert exit_code == 2


def test_a_process_has_no_image(world: LocalWorld) -> None:
    plan = world.plan("true")
    plan = msgspec.structs.replace(plan, setup=msgspec.structs.replace(plan.setup, image="cloudbench-cpu"))
    [(what, exit_code)] = errors(problems(world, plan))
    assert "cloudbench-cpu" in what
    assert exit_code == 2


def test_without_a_gpu_ranks_train_on_the_cpu(world: LocalWorld) -> None:
    found = problems(world, world.plan("true"))
    assert not errors(found)
    assert any("CPU" in problem.what for problem in found)


def test_too_few_gpus_are_an_error_and_enough_are_not(world: LocalWorld) -> None:
    [(what, exit_code)] = errors(problems(world, world.plan("true", nodes=3), gpus=2))
    assert "3 GPUs" in what
    assert exit_code == 4
    enough = problems(world, world.plan("true", nodes=2), gpus=2)
    assert not errors(enough)
    assert not any("CPU" in problem.what for problem in enough)


def test_a_module_that_is_missing_is_an_error(world: LocalWorld) -> None:
    plan = msgspec.structs.replace(world.plan("true"), requires=("not_there_at_all",))
    [(what, exit_code)] = errors(problems(world, plan))
    assert "not_there_at_all" in what
    assert exit_code == 2


def test_each_node_gets_its_gpus_and_sees_no_others(world: LocalWorld) -> None:
    provider = world.connect(machine=Machine(gpus=("GPU-a", "GPU-b", "GPU-c")))
    nodes = provider.render(world.plan("true", nodes=2), 1).steps[-1].body["nodes"]
    assert [node["environment"]["CLOUDBENCH_GPUS"] for node in nodes] == ["GPU-a", "GPU-b"]


def test_another_run_on_this_machine_is_warned_of(world: LocalWorld) -> None:
    provider, request = started(world, "echo here; sleep 300", nodes=1)
    wait_for_line(provider, request, b"here")
    warnings = [problem.what for problem in problems(world, world.plan("true"))]
    assert any(request.plan.id in what for what in warnings)
    assert not any(request.plan.id in problem.what for problem in problems(world, request.plan))


def test_a_folder_that_cannot_be_made_is_an_error_in_words(world: LocalWorld) -> None:
    world.root.write_text("a file, where the folder of all workspaces should be")
    provider = world.connect()
    request = provider.render(world.plan("true"), 1)
    with pytest.raises(CloudbenchError, match="cannot be made"):
        list(provider.provision(request))
    assert provider.release(request.steps[0].handle)


def test_containers_without_their_python_package_are_a_usage_error(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['docker'] = None\n"  # as where cloudbench was installed without that extra
        "from cloudbench.cli import main\n"
        "sys.argv[1:] = ['submit', '--service', 'docker']\n"
        "main()\n"
    )
    environment = {**os.environ, "CLOUDBENCH_HOME": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "pip install 'cloudbench[docker]'" in ended.stderr
    assert "Traceback" not in ended.stderr
