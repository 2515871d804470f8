"""Every rung of the input ladder feeds a training, and those that make the same images train alike."""

from pathlib import Path

import pytest

from cloudbench.workloads.flags import INPUTS
from tests.workloads.program import Outcome, train, train_together
from tests.workloads.test_make_tfrecords import make

pytestmark = [pytest.mark.tensorflow, pytest.mark.xdist_group("inputs")]  # a training of each is made once

MADE_BY_PYTHON = ("queue", "dataset", "zmq")


@pytest.fixture(scope="module")
def by_input(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """A training from each kind of input that leaves the weights as they are, so that a loss tells the images."""
    folder = make(tmp_path_factory.mktemp("records"), "--data_name=cifar10", "--images=64")
    still = ("--learning_rate=0", "--weight_decay=0")
    found = {name: train(f"--input={name}", *still) for name in INPUTS if name != "files"}
    return {**found, "files": train(f"--data_dir={folder}", *still)}


@pytest.mark.parametrize("name", INPUTS)
def test_a_training_runs_from_every_input(name: str, by_input: dict[str, Outcome]) -> None:
    done = by_input[name]
    assert done.total > 0
    assert f"Input:       {name}\n" in done.output
    assert ("(synthetic)" in done.output) is (name != "files")


def test_images_made_by_python_are_the_same_on_every_way_in(by_input: dict[str, Outcome]) -> None:
    first, *others = (by_input[name].losses for name in MADE_BY_PYTHON)
    assert others == [pytest.approx(first, abs=0.002)] * 2


def test_images_differ_from_step_to_step_unless_they_are_constant(by_input: dict[str, Outcome]) -> None:
    for name in INPUTS:
        assert len(set(by_input[name].losses)) == (1 if name == "constant" else 3)


def test_one_input_feeds_several_devices() -> None:
    done = train("--input=dataset", "--num_gpus=2", "--variable_update=replicated")
    assert done.total > 0


def test_each_worker_reads_its_own_part_of_the_files(tmp_path: Path) -> None:
    folder = make(tmp_path, "--data_name=cifar10", "--images=64", "--files=2")
    workers, _ = train_together("collective_all_reduce", f"--data_dir={folder}")
    assert workers[0].digest == workers[1].digest
    assert workers[0].losses != workers[1].losses
