"""The command line as a person meets it: a process, with a home of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Cloudbench = Callable[..., "subprocess.CompletedProcess[str]"]

STEPS = r"""
name: steps
format: tf_cnn_benchmarks
launcher: "{{ 'per-node' if nodes > 1 else 'single' }}"
command: |
  for step in $(seq 1 {{ steps }}); do
    printf '%s\timages/sec: 10.0 +/- 0.0 (jitter = 0.0)\t7.000\n' $step
    sleep {{ pause_s }}
  done
  if [ {{ exit_code }} != 0 ]; then echo "went wrong: "{{ words }}; exit {{ exit_code }}; fi
  echo "total images/sec: 10.00"
parameters:
  steps: {default: 2}
  pause_s: {default: 0.0}
  exit_code: {default: 0}
  words: {default: "as asked"}
"""


@pytest.fixture
def steps_template(tmp_path: Path) -> Path:
    """A template that prints steps, slowly where asked, and ends with the exit code that it was asked for."""
    path = tmp_path / "steps.yaml"
    path.write_text(STEPS)
    return path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """This process's environment, with a home that nobody else uses."""
    return {**os.environ, "CLOUDBENCH_HOME": str(tmp_path / "home")}


@pytest.fixture
def cloudbench(environment: dict[str, str], tmp_path: Path) -> Cloudbench:
    """Run the command line to its end."""

    def run(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "cloudbench", *arguments]
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240, **options
        )

    return run


@pytest.fixture
def started(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Start the command line, and make sure that it is gone when the test is over."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "cloudbench", *arguments],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()
