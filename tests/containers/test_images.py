"""The container images: every version is pinned, and the CPU image is really built, entered and trained in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from docker import DockerClient

CONTAINERS = Path(__file__).parents[2] / "containers"
DOCKERFILES = sorted(CONTAINERS.glob("*.Dockerfile"))
PINNED = re.compile(r"[\w.\-]+(\[[\w,\-]+\])?==\d[\w.]*")
# Two ranks sum what only both together can make, and tell what they saw.
ALLREDUCE = """
import horovod.tensorflow as hvd, tensorflow as tf
hvd.init()
total = hvd.allreduce(tf.constant([10.0 ** hvd.rank()]), op=hvd.Sum)
print(f"rank {hvd.rank()} of {hvd.size()}: {total.numpy()[0]:.0f}")
"""


def instructions(dockerfile: Path) -> list[str]:
    """The Dockerfile's instructions, continued lines joined, without comments."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.lstrip().startswith("#")]
    return [line for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line.strip()]


def test_there_is_an_image_for_cpus_and_one_for_gpus() -> None:
    assert [path.name for path in DOCKERFILES] == ["cpu.Dockerfile", "gpu.Dockerfile"]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
class TestEveryDockerfile:
    def test_pins_what_pip_installs_by_name(self, dockerfile: Path) -> None:
        commands = re.findall(r"pip install ([^&\n]+)", "\n".join(instructions(dockerfile)))
        packages = [word.strip("'\"") for command in commands for word in command.split()]
        named = [package for package in packages if not package.startswith(("/", "-"))]
        assert len(named) >= 2
        assert [package for package in named if not PINNED.fullmatch(package)] == []

    def test_installs_everything_else_under_constraints(self, dockerfile: Path) -> None:
        assert "PIP_CONSTRAINT=/build/constraints.txt" in dockerfile.read_text()

    def test_tags_every_base_image_and_takes_it_from_a_build_argument(self, dockerfile: Path) -> None:
        found = instructions(dockerfile)
        arguments = dict(re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", "\n".join(found), re.MULTILINE))
        stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", "\n".join(found), re.MULTILINE)
        from_outside = {source for source, _ in stages} - {name for _, name in stages}
        assert from_outside == {f"${{{name}}}" for name in arguments}
        for image in arguments.values():
            repository, _, tag = image.partition(":")
            assert tag
            assert tag != "latest"
            # The first part of a longer name would be a registry's host if it had a dot.
            assert "." not in repository.partition("/")[0]

    def test_ends_in_a_stage_without_compilers_and_without_root(self, dockerfile: Path) -> None:
        found = instructions(dockerfile)
        last_stage = found[max(index for index, line in enumerate(found) if line.startswith("FROM ")) :]
        assert not any(re.search(r"g\+\+|cmake|-dev\b", line) for line in last_stage)
        assert [line for line in last_stage if line.startswith("USER ")] == ["USER cloudbench"]


def test_every_constraint_is_an_exact_version() -> None:
    lines = (CONTAINERS / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert len(pins) > 40
    assert [line for line in pins if not PINNED.fullmatch(line)] == []


@pytest.fixture
def in_image(docker_client: DockerClient, cpu_image: str) -> Callable[..., str]:
    """What a command prints on standard output; its failure is an error with its last words."""

    def run(*command: str) -> str:
        output: bytes = docker_client.containers.run(cpu_image, list(command), user="4242:4242", remove=True)
        return output.decode()

    return run


class TestTheCpuImage:
    """Run as a user that the image does not know."""

    def test_runs_as_any_user_and_offers_a_home_to_write_to(self, in_image: Callable[..., str]) -> None:
        assert in_image("sh", "-c", "id -u && touch ~/file && python3 -c 'import cloudbench'") == "4242\n"

    def test_holds_pinned_packages_and_nothing_else(self, in_image: Callable[..., str]) -> None:
        wanted = set(re.findall(r"[\w.\-]+==[\w.]+", (CONTAINERS / "cpu.Dockerfile").read_text()))
        wanted |= set((CONTAINERS / "constraints.txt").read_text().splitlines())
        listing = json.loads(in_image("python3", "-m", "pip", "list", "--format=json"))
        found = {f"{package['name']}=={package['version']}" for package in listing}
        # Built here, brought by the interpreter, and pinned by scripts/build-horovod.
        unpinned = {re.sub(r"==.*", "", package) for package in normalised(found) - normalised(wanted)}
        assert unpinned == {"cloudbench", "pip", "horovod"}

    def test_holds_no_compiler(self, in_image: Callable[..., str]) -> None:
        assert in_image("sh", "-c", "command -v cc g++ cmake make || echo none") == "none\n"

    def test_two_ranks_exchange_numbers_over_gloo(self, in_image: Callable[..., str]) -> None:
        printed = in_image("horovodrun", "--gloo", "-np", "2", "python3", "-c", ALLREDUCE)
        assert sorted(re.findall(r"rank \d of \d: \d+", printed)) == ["rank 0 of 2: 11", "rank 1 of 2: 11"]

    def test_two_ranks_train_to_equal_weights(self, in_image: Callable[..., str]) -> None:
        program = "python3 -m cloudbench.workloads.tf_cnn_benchmarks --model=resnet20 --batch_size=4"
        flags = "--device=cpu --num_warmup_batches=1 --num_batches=3 --variable_update=horovod"
        printed = in_image("horovodrun", "--gloo", "-np", "2", "sh", "-c", f"{program} {flags}")
        weights = re.findall(r"weights sha256: ([0-9a-f]{64})", printed)
        assert len(weights) == 2
        assert len(set(weights)) == 1


def normalised(packages: set[str]) -> set[str]:
    """Package names as the index compares them: small letters, one kind of dash."""
    return {package.lower().replace("_", "-") for package in packages}
