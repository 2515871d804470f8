"""Memory is measured in a process of its own, by the most it ever held."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIMIT_MIB = 200
# Linux counts what the process that forked it held as the child's own `ru_maxrss`; VmHWM begins with the program.
READ = """
import pathlib, resource, sys
from cloudbench.parsers import parse

log = parse({chunks})
assert log.runs[0].throughput == 200.0, log
if sys.platform == "darwin":
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20)
else:
    print(int(pathlib.Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) >> 10)
"""
LOG = 'b"10\\timages/sec: 200.0 +/- 0.1 (jitter = 0.2)\\t7.1\\ntotal images/sec: 200.00\\n"'


def most_memory_mib(chunks: str) -> int:
    read = subprocess.run(
        [sys.executable, "-c", READ.format(chunks=chunks)], capture_output=True, text=True, check=True
    )
    return int(read.stdout)


@pytest.mark.parametrize(
    "line",
    [
        'b"x" * (1 << 20) for _ in range(100)',
        'b"word " * 200_000 for _ in range(100)',
        'b"\\0" * (1 << 20) for _ in range(100)',
        'b"10%\\r" * 200_000 for _ in range(125)',
    ],
    ids=["one word", "words", "NUL", "progress bar"],
)
def test_a_line_of_100_mb(line):
    chunks = f'part for parts in ([{LOG}], ({line}), [b"\\n"]) for part in parts'
    assert most_memory_mib(f"({chunks})") < LIMIT_MIB


@pytest.mark.slow
@pytest.mark.parametrize(
    "noise",
    ['b"2024-12-07 13:54:54: I tensorflow/core: nothing of interest\\n" * 20_000', "bytes(range(256)) * 4_000"],
    ids=["lines", "binary"],
)
def test_a_gigabyte_of_noise(noise):
    chunks = f"part for parts in ([{LOG}], ({noise} for _ in range(1_000))) for part in parts"
    assert most_memory_mib(f"({chunks})") < LIMIT_MIB


def test_a_hundred_megabytes_of_step_lines():
    line = 'b"%d\\timages/sec: 200.0 +/- 0.1 (jitter = 0.2)\\t7.1\\n" % step'
    steps = f'(b"".join({line} for step in range(start, start + 20_000)) for start in range(0, 2_000_000, 20_000))'
    chunks = f'part for parts in ({steps}, [b"total images/sec: 200.00\\n"]) for part in parts'
    assert most_memory_mib(f"({chunks})") < LIMIT_MIB
