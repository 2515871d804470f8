"""How fast `cloudbench parse` reads folders of logs, and how much memory the worst logs take.

    python benchmarks/parsing.py [--rounds 3] [--logs 4000] [--size 25000]

Every shape of log is written to a folder of its own and read by one `cloudbench parse FOLDER --format json` on one
core; start-up and the walk through the folder count. Wall-clock time suffers from whatever else the machine does, the
processor time of the process much less; both are given, the best of the rounds each. The aim is 100 MB/s. Then a
gigabyte of noise and a line of 100 MB are piped in; the aim is a peak below 200 MiB. POSIX only; needs 100 MB of disk.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

PARSE = [sys.executable, "-m", "cloudbench", "parse", "--format", "json"]
MIB = 1 << 20

BANNER = """TensorFlow:  2.18
Model:       resnet50
Dataset:     imagenet (synthetic)
Mode:        training
Batch size:  {whole} global
             64 per device
Devices:     {devices}
Variables:   {update}
==========
Step\tImg/sec\ttotal_loss
"""
NOISE = (
    "2024-12-07 13:54:54.649649: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1635] "
    "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 15111 MB memory\n"
)
TOTAL = "-" * 64 + "\ntotal images/sec: 208.72\n" + "-" * 64 + "\n"


def step_lines(size: int, *, ranks: int = 1, prefix: Callable[[int], str] = lambda rank: "") -> str:
    """About `size` characters of step lines, every rank's behind its prefix."""
    lines, length, number = [], 0, 1
    while length < size:
        for rank in range(ranks):
            lines.append(f"{prefix(rank)}{number}\timages/sec: 208.{number % 10} +/- 0.3 (jitter = 0.5)\t7.{rank}45\n")
            length += len(lines[-1])
        number += 10
    return "".join(lines)


def one_process(size: int) -> str:
    """Nearly nothing but step lines."""
    banner = BANNER.format(whole=64, devices=["/gpu:0"], update="replicated")
    return banner + step_lines(size - len(banner) - len(TOTAL)) + TOTAL


def mostly_noise(size: int) -> str:
    """What TensorFlow says on a GPU machine, and a few steps at the end."""
    end = BANNER.format(whole=64, devices=["/gpu:0"], update="replicated") + step_lines(700) + TOTAL
    return NOISE * ((size - len(end)) // len(NOISE)) + end


def interleaved(size: int) -> str:
    """Four ranks of Horovod without tags."""
    banner = BANNER.format(whole=256, devices=[f"horovod/gpu:{rank}" for rank in range(4)], update="horovod") * 4
    return banner + step_lines(size - len(banner) - 4 * len(TOTAL), ranks=4) + TOTAL.replace("208.72", "834.88") * 4


def tagged(size: int) -> str:
    """Eight ranks of Horovod, each line behind Open MPI's tag and time."""
    banner = BANNER.format(whole=512, devices=[f"horovod/gpu:{rank}" for rank in range(8)], update="horovod")
    return banner + step_lines(size - len(banner), ranks=8, prefix="Mon Oct 15 23:15:16 2018[1,{}]<stdout>:".format)


def container(size: int) -> str:
    """One process, each line behind a container's time."""
    return step_lines(size - len(TOTAL), prefix=lambda rank: "2019-03-02T10:25:35.038567112Z ") + TOTAL


def horovod_synthetic(size: int) -> str:
    """Nearly nothing but iterations."""
    iterations = (f"Iter #{number}: 148{number % 10}.0 img/sec per GPU\n" for number in range(size // 34))
    return "".join(iterations) + "Img/sec per GPU: 1484.5 +-2.2\nTotal img/sec on 2 GPU(s): 2969.0 +-4.3\n"


SHAPES = (one_process, mostly_noise, interleaved, tagged, container, horovod_synthetic)


def gigabyte_of_noise() -> Iterator[bytes]:
    """10^9 bytes of log lines without a figure, then a result."""
    noise = NOISE.encode() * 6000
    for _ in range(10**9 // len(noise)):
        yield noise
    yield one_process(2000).encode()


def long_line() -> Iterator[bytes]:
    """A result, then 10^8 bytes without a line end."""
    yield one_process(2000).encode()
    for _ in range(100):
        yield b"x" * 10**6


def main() -> None:
    """Write the logs, read them, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--logs", type=int, default=4000)
    parser.add_argument("--size", type=int, default=25_000)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # the processes that are started inherit it
    print(f"{'shape':20}{'MB':>8}{'MB/s':>8}{'MB/s of processor':>20}{'peak MiB':>10}")
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            report(shape.__name__, *write(Path(folder), shape(arguments.size), arguments.logs), arguments.rounds)
    for pieces in (gigabyte_of_noise, long_line):
        size = sum(map(len, pieces()))
        report(pieces.__name__, "-", size, 1, pieces)


def write(folder: Path, log: str, count: int) -> tuple[str, int]:
    """Write the log `count` times; gives the folder and the bytes in it."""
    data = log.encode()
    for number in range(count):
        (folder / f"{number:05}.log").write_bytes(data)
    return str(folder), count * len(data)


def report(name: str, target: str, size: int, rounds: int, pieces: Callable[[], Iterable[bytes]] | None = None) -> None:
    """Read the target, the best of some rounds, and print a row."""
    timings = [timed([*PARSE, target], pieces) for _ in range(rounds)]
    wall_s, processor_s, peak_mib = (min(figures) for figures in zip(*timings, strict=True))
    megabytes = size / 1e6
    print(
        f"{name:20}{megabytes:8.0f}{megabytes / wall_s:8.0f}{megabytes / processor_s:20.0f}{peak_mib:10.0f}", flush=True
    )


def timed(command: list[str], pieces: Callable[[], Iterable[bytes]] | None) -> tuple[float, float, float]:
    """Wall-clock seconds, processor seconds and peak memory in MiB of a command."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    feed(process.stdin, pieces() if pieces else ())
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, command
    peak = usage.ru_maxrss / (MIB if sys.platform == "darwin" else 1024)
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, peak


def feed(stdin: IO[bytes], pieces: Iterable[bytes]) -> None:
    """Write all pieces to a process and close its input."""
    with stdin:
        for piece in pieces:
            stdin.write(piece)


if __name__ == "__main__":
    main()
