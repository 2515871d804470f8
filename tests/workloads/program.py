"""Starts the training program as a person would, and reads what it printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

from cloudbench.node.network import ReservedPorts

PROGRAM = (sys.executable, "-m", "cloudbench.workloads.tf_cnn_benchmarks")
# One thread in an operation makes sums repeatable to the bit.
SMALL = (
    "--model=resnet20",
    "--batch_size=4",
    "--num_warmup_batches=1",
    "--num_batches=3",
    "--display_every=1",
    "--device=cpu",
    "--num_intra_threads=1",
)
PATIENCE_S = 550


class Outcome(NamedTuple):
    exit_code: int
    output: str
    errors: str

    @property
    def digest(self) -> str:
        return self._only(r"^weights sha256: ([0-9a-f]{64})$")

    @property
    def total(self) -> float:
        return float(self._only(r"^total images/sec: ([0-9.]+)$"))

    @property
    def own_speed(self) -> float:
        return [float(text) for text in re.findall(r"^\d+\timages/sec: (\S+)", self.output, re.MULTILINE)][-1]

    @property
    def losses(self) -> list[float]:
        return [float(text) for text in re.findall(r"^\d+\timages/sec: .*\)\t(\S+)", self.output, re.MULTILINE)]

    def _only(self, pattern: str) -> str:
        assert self.exit_code == 0, self.errors
        (found,) = re.findall(pattern, self.output, re.MULTILINE)
        return str(found)


def train(*flags: str) -> Outcome:
    """One process of the small training with these flags more."""
    return finish(start(*SMALL, *flags))


def start(*flags: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )


def finish(process: subprocess.Popen[str]) -> Outcome:
    try:
        output, errors = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
    return Outcome(process.returncode, output, errors)


def train_together(update: str, *flags: str, workers: int = 2, servers: int = 0) -> tuple[list[Outcome], list[Outcome]]:
    """Workers and parameter servers of one job on this machine; their outcomes."""
    ports = ReservedPorts(workers + servers)  # for as long as it lives, nobody else's
    ports.release()
    hosts = [f"127.0.0.1:{port}" for port in ports.numbers]
    common = [*SMALL, f"--variable_update={update}", f"--worker_hosts={','.join(hosts[:workers])}", *flags]
    if servers:
        common.append(f"--ps_hosts={','.join(hosts[workers:])}")
    started = [start(*common, "--job_name=worker", f"--task_index={index}") for index in range(workers)]
    started += [start(*common, "--job_name=ps", f"--task_index={index}") for index in range(servers)]
    outcomes = [finish(process) for process in started]
    return outcomes[:workers], outcomes[workers:]


def train_with_horovod(ranks: int, *flags: str) -> list[Outcome]:
    """Ranks under horovodrun on this machine, one file of output for each."""
    runner = [sys.executable, "-m", "horovod.runner.launch", "-np", str(ranks), "--gloo", *PROGRAM]
    done = subprocess.run(
        [*runner, *SMALL, "--variable_update=horovod", *flags], capture_output=True, text=True, timeout=PATIENCE_S
    )
    return [Outcome(done.returncode, lines_of(rank, done.stdout), done.stderr) for rank in range(ranks)]


def lines_of(rank: int, output: str) -> str:
    prefix = f"[{rank}]<stdout>:"
    return "".join(line.removeprefix(prefix) for line in output.splitlines(keepends=True) if line.startswith(prefix))
