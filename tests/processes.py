"""What tests look for among the processes of this machine, each of which may end at any moment."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from cloudbench.processes import living


def of_run(run: str) -> list[psutil.Process]:
    """The living processes that are marked as a run's."""
    return [process for process, environment in living() if environment.get("CLOUDBENCH_RUN_ID") == run]


def restless_program(folder: Path) -> Path:
    """One that does nothing but become itself again: at about every tenth look it shows no environment."""
    program = folder / "restless"
    program.write_text(f"#!/bin/sh\nexec {program}\n")
    program.chmod(0o755)
    return program


@contextmanager
def large_program(environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """One with so much memory that it takes a while to end, in which it shows no environment and is no zombie yet."""
    code = "held = b'x' * (512 << 20); print(flush=True); input()"
    command = [sys.executable, "-S", "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, start_new_session=True, stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


def named(processes: Iterable[psutil.Process]) -> list[str]:
    """Those that live on, in words."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found.append(f"process {process.pid} {process.name()}")
    return found


def told_by(processes: Iterable[psutil.Process]) -> Iterator[str]:
    """The command lines and environments of processes, as far as they live long enough to be read."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            yield json.dumps([process.cmdline(), process.environ()])
