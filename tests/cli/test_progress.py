"""What a person at a terminal sees while a run goes on."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def on_a_terminal(environment: dict[str, str], *arguments: str) -> list[str]:
    """What the command prints on a terminal as standard error, one entry for each time a line was begun."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "cloudbench", *arguments],
        env={**environment, "TERM": "xterm", "COLUMNS": "150"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ):
        os.close(theirs)
        printed = b""
        try:
            while data := os.read(ours, 4096):
                printed += data
        except OSError:  # how a terminal tells that nobody is left to write
            pass
        os.close(ours)
    return re.split(r"[\r\n]+", _CONTROL.sub("", printed.decode()))


def test_steps_have_lines_of_their_own_beside_the_newest_line(
    environment: dict[str, str], steps_template: Path
) -> None:
    lines = on_a_terminal(
        environment, "submit", "--template", str(steps_template), "--set", "steps=8", "--set", "pause_s=0.2"
    )
    run = next(line.removesuffix(": provisioning") for line in lines if line.endswith(": provisioning"))
    steps = [line for line in lines if line.startswith(run)]
    assert steps == [
        f"{run}: {step}" for step in ("provisioning", "running", "succeeded", "bringing its files home", "released")
    ]
    newest = [line for line in lines if re.search(rf"{run} \d+m\d\ds  \d+ +images/sec", line)]
    assert newest, lines
