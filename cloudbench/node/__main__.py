"""The commands of the node program: run, facts, rsh."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from cloudbench.node import facts, remote_shell
from cloudbench.node.cluster import find_place
from cloudbench.node.coordinate import Cause
from cloudbench.node.job import NodeError, read_job
from cloudbench.node.outbox import Outbox, write_whole
from cloudbench.node.run import NodeRun
from cloudbench.node.status import Status


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status is 2 with one message where the call itself is wrong."""
    parser = argparse.ArgumentParser(prog="cloudbench-node")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="do this node's part of a job")
    run.add_argument("--job", type=Path, required=True)
    run.add_argument("--out", type=Path, required=True)
    tell = commands.add_parser("facts", help="tell the facts of this machine as JSON")
    tell.add_argument("--out", type=Path)
    rsh = commands.add_parser("rsh", help="run a command on another node of the run, for mpirun")
    rsh.add_argument("host")
    rsh.add_argument("remote", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    try:
        if options.command == "run":
            return _run(options.job, options.out)
        if options.command == "facts":
            return _facts(options.out)
        return remote_shell.ask(options.host, " ".join(options.remote))
    except NodeError as error:
        print(f"cloudbench-node: {error}", file=sys.stderr)
        return 2


def _run(job_path: Path, out: Path) -> int:
    try:
        job = read_job(job_path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NodeError(f"the job file cannot be read: {error}") from error
    place = find_place(os.environ)
    outbox = Outbox(out)
    outbox.lock()
    try:
        node = NodeRun(job, place, outbox)
    except NodeError as error:
        status = Status(time.time())
        status.end(Cause(time.monotonic(), "infrastructure", str(error)), time.time())
        outbox.write_json("status.json", status.to_json())
        raise
    return node.run()


def _facts(out: Path | None) -> int:
    text = json.dumps(facts.gather(), indent=1) + "\n"
    if out is None:
        sys.stdout.write(text)
    else:
        write_whole(out, text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
