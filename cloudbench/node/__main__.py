"""The commands of the node program: start, wait, run, push, facts, rsh."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cloudbench.node import facts, remote_shell
from cloudbench.node.coordinate import Cause
from cloudbench.node.job import NodeError, read_job
from cloudbench.node.outbox import Outbox, write_whole
from cloudbench.node.place import find_place
from cloudbench.node.push import push
from cloudbench.node.run import NodeRun
from cloudbench.node.start import Order, start, wait
from cloudbench.node.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status is 2 with one message where the call itself is wrong."""
    options = _parser().parse_args(arguments)
    try:
        return _COMMANDS[options.command](options)
    except NodeError as error:
        print(f"cloudbench-node: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cloudbench-node")
    commands = parser.add_subparsers(dest="command", required=True)
    begin = commands.add_parser("start", help="start this node in the background, and return")
    begin.add_argument("--files", type=Path, required=True, help="where job.json, secret and push.json lie")
    begin.add_argument("--out", type=Path, required=True)
    begin.add_argument("--image", help="run in a container of this image")
    begin.add_argument("--mount", action="append", default=[], metavar="SRC:DST", help="into the container")
    begin.add_argument("--gpus", choices=("all", "none"), default="all")
    begin.add_argument("--foreground", action="store_true")
    end = commands.add_parser("wait", help="wait for the end of the node that was started")
    end.add_argument("--out", type=Path, required=True)
    end.add_argument("--tell", action="store_true", help="print what the ranks print")
    run = commands.add_parser("run", help="do this node's part of a job")
    run.add_argument("--job", type=Path, required=True)
    run.add_argument("--out", type=Path, required=True)
    send = commands.add_parser("push", help="send a node's files to the share while they grow")
    send.add_argument("--folder", type=Path, required=True)
    send.add_argument("--push", type=Path, required=True, help="push.json")
    send.add_argument("--node", type=int, required=True)
    tell = commands.add_parser("facts", help="tell the facts of this machine as JSON")
    tell.add_argument("--out", type=Path)
    rsh = commands.add_parser("rsh", help="run a command on another node of the run, for mpirun")
    rsh.add_argument("host")
    rsh.add_argument("remote", nargs=argparse.REMAINDER)
    return parser


def _start(options: argparse.Namespace) -> int:
    order = Order(options.files, options.out, options.image, tuple(options.mount), options.gpus)
    return start(order, foreground=options.foreground)


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


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "start": _start,
    "wait": lambda options: wait(options.out, tell=options.tell),
    "run": lambda options: _run(options.job, options.out),
    "push": lambda options: push(options.folder, options.push, options.node),
    "facts": lambda options: _facts(options.out),
    "rsh": lambda options: remote_shell.ask(options.host, " ".join(options.remote)),
}


if __name__ == "__main__":
    sys.exit(main())
