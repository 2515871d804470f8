"""What the program prints: the banner, the step lines and the total, in the format of tf_cnn_benchmarks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

RULE = "-" * 64


def say(line: str) -> None:
    """Print one line at once, whatever standard output is: a log must not lose what was printed."""
    print(line, flush=True)


def banner(
    *,
    tensorflow: str,
    model: str,
    dataset: str,
    mode: str,
    global_batch: int,
    device_batch: int,
    num_batches: int,
    num_epochs: float,
    devices: Sequence[str],
    data_format: str,
    precision: str,
    source: str,
    optimizer: str,
    variables: str,
    all_reduce: str | None,
    several_processes: bool,
) -> str:
    """The lines above the double rule. `all_reduce` is printed where the update has a choice of it."""
    lines = [
        f"TensorFlow:  {tensorflow}",
        f"Model:       {model}",
        f"Dataset:     {dataset}",
        f"Mode:        {mode}",
        "SingleSess:  False",
        f"Batch size:  {global_batch} global",
        f"             {device_batch} per device",
        f"Num batches: {num_batches}",
        f"Num epochs:  {num_epochs:.2f}",
        f"Devices:     {list(devices)}",
        "NUMA bind:   False",
        f"Data format: {data_format}",
        f"Precision:   {precision}",
        f"Input:       {source}",
        f"Optimizer:   {optimizer}",
        f"Variables:   {variables}",
    ]
    if variables in ("replicated", "collective_all_reduce"):
        lines.append(f"AllReduce:   {all_reduce}")
    if several_processes:
        lines.append("Sync:        True")
    return "\n".join([*lines, "=========="])


def header(accuracy: bool) -> str:
    """The head of the step lines."""
    return "Step\tImg/sec\ttotal_loss" + ("\ttop_1_accuracy\ttop_5_accuracy" if accuracy else "")


def step_line(step: int, images: int, step_seconds: Sequence[float], values: Sequence[float]) -> str:
    """The line of one step: the speed of this process over all timed steps so far, then the loss (and accuracies)."""
    mean, uncertainty, jitter = speed(images, step_seconds)
    shown = "".join(f"\t{value:.3f}" for value in values)
    return f"{step}\timages/sec: {mean:.1f} +/- {uncertainty:.1f} (jitter = {jitter:.1f}){shown}"


def evaluation_line(step: int, images: int, step_seconds: Sequence[float], values: Sequence[float]) -> str:
    """The line of one step of `--eval`, which shows no values."""
    return f"{step}\t{speed(images, step_seconds)[0]:.1f} examples/sec"


def accuracy(means: Sequence[float], examples: int) -> str:
    """The result of `--eval`: the mean top-1 and top-5 accuracy of this process."""
    top_1, top_5 = means
    return f"Accuracy @ 1 = {top_1:.4f} Accuracy @ 5 = {top_5:.4f} [{examples} examples]"


def speed(images: int, step_seconds: Sequence[float]) -> tuple[float, float, float]:
    """Images per second of steps of `images` each: mean, standard error of the mean, and jitter.

    The mean is that of the time, not of the speeds. The jitter is 1.4826 times the median absolute deviation of the
    speeds, which estimates their standard deviation without minding outliers.
    """
    speeds = [images / seconds for seconds in step_seconds]
    median = statistics.median(speeds)
    jitter = 1.4826 * statistics.median([abs(each - median) for each in speeds])
    uncertainty = statistics.pstdev(speeds) / len(speeds) ** 0.5
    return images * len(step_seconds) / sum(step_seconds), uncertainty, jitter


def total(images_per_second: float) -> str:
    """The closing lines: the throughput of the whole job, which every process prints."""
    return f"{RULE}\ntotal images/sec: {images_per_second:.2f}\n{RULE}"
