"""The printed lines are those of tf_cnn_benchmarks; the figures in them are what it defines."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudbench.workloads import report

BANNER = """\
TensorFlow:  2.18
Model:       resnet20
Dataset:     cifar10 (synthetic)
Mode:        training
SingleSess:  False
Batch size:  64 global
             32 per device
Num batches: 100
Num epochs:  0.13
Devices:     ['/cpu:0', '/cpu:1']
NUMA bind:   False
Data format: NHWC
Precision:   float32
Input:       constant
Optimizer:   sgd
Variables:   replicated
AllReduce:   None
=========="""


def test_the_banner() -> None:
    text = report.banner(
        tensorflow="2.18",
        model="resnet20",
        dataset="cifar10 (synthetic)",
        mode="training",
        global_batch=64,
        device_batch=32,
        num_batches=100,
        num_epochs=0.128,
        devices=["/cpu:0", "/cpu:1"],
        data_format="NHWC",
        precision="float32",
        source="constant",
        optimizer="sgd",
        variables="replicated",
        all_reduce=None,
        several_processes=False,
    )
    assert text == BANNER


def test_a_step_line() -> None:
    line = report.step_line(10, 100, [1.0, 2.0, 1.0, 2.0], [7.8756, 0.25])
    assert line == "10\timages/sec: 66.7 +/- 12.5 (jitter = 37.1)\t7.876\t0.250"


def test_a_loss_that_is_no_number_is_shown_as_such() -> None:
    assert report.step_line(1, 1, [1.0], [math.nan]).endswith("\tnan")


def test_the_total_stands_between_rules() -> None:
    assert report.total(224.956) == f"{'-' * 64}\ntotal images/sec: 224.96\n{'-' * 64}"


def test_the_header_names_accuracies_where_they_are_printed() -> None:
    assert report.header(accuracy=False) == "Step\tImg/sec\ttotal_loss"
    assert report.header(accuracy=True) == "Step\tImg/sec\ttotal_loss\ttop_1_accuracy\ttop_5_accuracy"


@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=50), st.integers(1, 4096))
def test_the_mean_is_images_over_time_and_lies_among_the_speeds(seconds: list[float], images: int) -> None:
    mean, uncertainty, jitter = report.speed(images, seconds)
    assert mean == pytest.approx(images * len(seconds) / sum(seconds))
    assert images / max(seconds) * 0.999 <= mean <= images / min(seconds) * 1.001
    assert uncertainty >= 0
    assert jitter >= 0


@given(st.floats(0.001, 100), st.integers(1, 50))
def test_equal_steps_have_no_jitter(step_seconds: float, steps: int) -> None:
    _, uncertainty, jitter = report.speed(8, [step_seconds] * steps)
    assert uncertainty == pytest.approx(0, abs=1e-6)
    assert jitter == pytest.approx(0, abs=1e-6)


def test_one_outlier_moves_the_mean_but_not_the_jitter() -> None:
    steady = [1.0, 1.01, 1.02] * 7
    with_outlier = [*steady, 100.0]
    assert report.speed(10, with_outlier)[0] < report.speed(10, steady)[0] / 3
    assert report.speed(10, with_outlier)[2] < 2 * report.speed(10, steady)[2]


def test_the_uncertainty_is_the_standard_error_of_the_speeds() -> None:
    seconds = [0.5, 1.0, 2.0]
    speeds = [4 / each for each in seconds]
    assert report.speed(4, seconds)[1] == pytest.approx(statistics.pstdev(speeds) / math.sqrt(3))
