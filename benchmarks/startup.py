"""How long `cloudbench --help` takes beside `python -c "import click"`, and what it imports.

    python benchmarks/startup.py [--rounds 20]

The two are run in turn, so that a slow moment of the machine meets both. The figure is the ratio of the medians; the
aim is at most 2.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "import click": [sys.executable, "-c", "import click"],
    "cloudbench --help": [sys.executable, "-m", "cloudbench", "--help"],
    "cloudbench submit --help": [sys.executable, "-m", "cloudbench", "submit", "--help"],
    "cloudbench parse --help": [sys.executable, "-m", "cloudbench", "parse", "--help"],
}


def main() -> None:
    """Time the commands and print their medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds + 1):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - started)
    baseline = statistics.median(seconds["import click"][1:])  # the first round fills the caches
    print(f"{'command':28}{'median ms':>10}{'ratio':>8}")
    for name, values in seconds.items():
        median = statistics.median(values[1:])
        print(f"{name:28}{median * 1000:10.1f}{median / baseline:8.2f}")


if __name__ == "__main__":
    main()
