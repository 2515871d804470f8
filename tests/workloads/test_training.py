"""Every network trains, in every precision and mode."""

import math

import pytest

from cloudbench.workloads.models import MODELS
from tests.workloads.program import Outcome, train

pytestmark = pytest.mark.tensorflow

LARGE = [name for name, model in MODELS.items() if "imagenet" in model.datasets and name != "trivial"]


def assert_learned(done: Outcome) -> None:
    """Losses are numbers and the weights were changed by them."""
    assert done.exit_code == 0, done.errors
    assert done.total > 0
    assert len(done.losses) > 0
    assert all(math.isfinite(loss) for loss in done.losses)
    assert done.digest


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in MODELS]
)
def test_every_network_takes_steps(name: str) -> None:
    done = train(f"--model={name}", "--batch_size=2", "--num_batches=2", "--num_warmup_batches=0")
    assert_learned(done)
    classes = (MODELS[name].datasets[0] == "imagenet" and 1001) or 10
    assert done.losses[0] < 3 * math.log(classes)
    assert done.losses[0] != done.losses[1]


def test_the_loss_falls_where_the_images_stay_the_same() -> None:
    done = train("--num_batches=20", "--weight_decay=0")
    assert done.losses[-1] < 0.5 * done.losses[0]


def test_weight_decay_adds_to_the_loss_and_changes_the_weights() -> None:
    flags = ("--num_warmup_batches=0", "--num_batches=2")
    without, with_decay = train(*flags, "--weight_decay=0"), train(*flags, "--weight_decay=0.01")
    assert with_decay.losses[0] > without.losses[0]
    assert with_decay.digest != without.digest


@pytest.mark.parametrize(("flag", "precision"), [("--use_bf16", "bfloat16"), ("--use_fp16", "float16")])
def test_lower_precision_trains_nearly_alike(flag: str, precision: str) -> None:
    full, low = train(), train(flag)
    assert f"Precision:   {precision}" in low.output
    assert_learned(low)
    assert low.losses[0] == pytest.approx(full.losses[0], rel=0.3)
    assert low.digest != full.digest


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--xla", "--xla_compile"])
def test_xla_trains_nearly_alike(flag: str) -> None:
    compiled = train(flag)
    assert_learned(compiled)
    # XLA adds up in another order, and a step of learning on a tiny batch makes the most of it.
    assert compiled.losses[0] == pytest.approx(train().losses[0], rel=0.25)


def test_forward_only_changes_no_weights() -> None:
    done = train("--forward_only")
    assert done.exit_code == 0, done.errors
    assert "Mode:        forward only" in done.output
    assert "weights sha256" not in done.output
    assert len(set(done.losses)) == 1


def test_evaluation_prints_accuracies() -> None:
    done = train("--eval")
    assert done.exit_code == 0, done.errors
    assert "Mode:        evaluation" in done.output
    assert "examples/sec" in done.output
    assert "[12 examples]" in done.output


def test_training_accuracy_is_printed_on_request() -> None:
    done = train("--print_training_accuracy", "--num_batches=20", "--weight_decay=0")
    assert "Step\tImg/sec\ttotal_loss\ttop_1_accuracy\ttop_5_accuracy" in done.output
    last = next(line for line in done.output.splitlines() if line.startswith("20\t"))
    assert last.endswith("\t1.000\t1.000")


def test_a_loss_that_is_no_number_does_not_end_the_training() -> None:
    done = train("--learning_rate=1e30", "--num_batches=5")
    assert done.total > 0
    assert math.isnan(done.losses[-1])
