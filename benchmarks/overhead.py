"""What a two-node run costs over the same training started by hand, as a ratio of wall-clock times.

    python benchmarks/overhead.py [--rounds 5] [--num-batches 200]

By hand: two worker processes with TF_CONFIG-style flags on free ports, started by this script and waited for. With
cloudbench: `submit --nodes 2` with the same flags, which plans, journals, starts two nodes, watches, collects, parses
and prints. They are run in turn; the figure is the median of the ratios round by round. Needs `cloudbench[workloads]`.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

FLAGS = {"model": "resnet20", "batch_size": "32", "variable_update": "collective_all_reduce", "num_intra_threads": "1"}


def main() -> None:
    """Run both in turn and print the ratio of each round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--num-batches", type=int, default=200)
    arguments = parser.parse_args()
    flags = {**FLAGS, "num_batches": str(arguments.num_batches)}
    ratios = []
    for number in range(1, arguments.rounds + 1):
        by_hand_s, with_cloudbench_s = timed(by_hand, flags), timed(with_cloudbench, flags)
        ratios.append(with_cloudbench_s / by_hand_s)
        print(f"round {number}: by hand {by_hand_s:.2f} s, cloudbench {with_cloudbench_s:.2f} s, {ratios[-1]:.3f}")
    print(f"median ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


def timed(action, flags: dict[str, str]) -> float:
    """Seconds that the action takes."""
    started = time.perf_counter()
    action(flags)
    return time.perf_counter() - started


def by_hand(flags: dict[str, str]) -> None:
    """Two workers, as a person would start them."""
    hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(2))
    command = [
        sys.executable,
        "-m",
        "cloudbench.workloads.tf_cnn_benchmarks",
        "--num_gpus=1",
        f"--worker_hosts={hosts}",
    ]
    command += [f"--{name}={value}" for name, value in flags.items()]
    workers = [
        subprocess.Popen([*command, "--job_name=worker", f"--task_index={index}"], stdout=subprocess.DEVNULL)
        for index in range(2)
    ]
    exit_codes = [worker.wait() for worker in workers]
    if any(exit_codes):
        sys.exit("the training that was started by hand failed")


def with_cloudbench(flags: dict[str, str]) -> None:
    """The same by `cloudbench submit`, in a store of its own."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "cloudbench", "submit", "--nodes", "2"]
        for name, value in flags.items():
            command += ["--set", f"{name}={value}"]
        environment = {**os.environ, "CLOUDBENCH_HOME": home}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    main()
