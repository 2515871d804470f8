"""Logs written for the tests, line by line as the programs print them."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def banner(
    *,
    batch_size: int = 64,
    processes: int = 1,
    devices: Sequence[str] = ("/gpu:0",),
    variable_update: str = "replicated",
    mode: str = "training",
) -> str:
    whole = batch_size * processes * (1 if devices[0].startswith("horovod/") else len(devices))
    return (
        f"TensorFlow:  2.18\nModel:       resnet50\nDataset:     imagenet (synthetic)\nMode:        {mode}\n"
        f"SingleSess:  False\nBatch size:  {whole} global\n             {batch_size} per device\n"
        f"Num batches: 30\nDevices:     {list(devices)}\nData format: NCHW\nOptimizer:   sgd\n"
        f"Variables:   {variable_update}\n==========\nGenerating training model\n"
    )


HEADER = "Running warm up\nDone warm up\nStep\tImg/sec\ttotal_loss\n"


def step(number: int, rate: float, loss: str = "7.845") -> str:
    return f"{number}\timages/sec: {rate:.1f} +/- 0.3 (jitter = 0.5)\t{loss}\n"


def total(rate: float) -> str:
    return f"{'-' * 64}\ntotal images/sec: {rate:.2f}\n{'-' * 64}\n"


def one_process(rate: float = 200.0, *, steps: int = 3) -> str:
    """A whole log of one process on one GPU."""
    lines = "".join(step(10 * number, rate) for number in range(1, steps + 1))
    return banner() + HEADER + lines + total(rate)


def horovod_ranks(ranks: int = 4, rate: float = 52.5, *, prefix: Callable[[int], str] = lambda rank: "") -> str:
    """A whole Horovod run whose ranks share one log, each line behind `prefix(rank)`."""
    devices = [f"horovod/gpu:{rank}" for rank in range(ranks)]
    written = ""
    for part in (
        banner(processes=ranks, devices=devices, variable_update="horovod"),
        HEADER,
        *(step(number, rate) for number in (1, 10, 20)),
    ):
        for rank in range(ranks):
            written += "".join(prefix(rank) + line for line in part.splitlines(keepends=True))
    for rank in range(ranks):  # a rank's last step comes behind the totals of quicker ones
        for part in (step(30, rate), total(rate * ranks)):
            written += "".join(prefix(rank) + line for line in part.splitlines(keepends=True))
    return written


def horovod_synthetic(
    gpus: int = 2, rate: float = 100.0, *, iterations: range = range(10), summary: bool = True
) -> str:
    lines = f"Model: ResNet50\nBatch size: 32\nNumber of GPUs: {gpus}\nRunning warmup...\nRunning benchmark...\n"
    lines += "".join(f"Iter #{number}: {rate:.1f} img/sec per GPU\n" for number in iterations)
    if summary:
        lines += f"Img/sec per GPU: {rate:.1f} +-2.2\nTotal img/sec on {gpus} GPU(s): {rate * gpus:.1f} +-4.3\n"
    return lines
