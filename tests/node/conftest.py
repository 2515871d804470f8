"""Real node programs, several on this machine: node k has the address 127.0.1.k + 1."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudbench.node.bundle import bundle
from cloudbench.node.network import ReservedPorts

PATIENCE_S = 120.0
# For ranks that would end before the facts of their node are told.
WAIT_FOR_FACTS = "until [ -s $CLOUDBENCH_LOG_FOLDER/facts.json ]; do sleep 0.05; done"


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of `condition`, polled; fails the test after two minutes."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited in vain for: {what}")


def told_by_process(pid: int) -> bytes:
    """The command line and the environment of a process; nothing where it has ended."""
    told = b""
    for name in ("cmdline", "environ"):
        with contextlib.suppress(OSError):
            told += Path(f"/proc/{pid}/{name}").read_bytes()
    return told


class NodePrograms:
    """The node programs of one run, as a provider would start them."""

    def __init__(self, pyz: Path, folder: Path, nodes: int, command: str, **job: Any) -> None:
        self.folder, self.nodes, self.run_id = folder, nodes, f"test-{secrets.token_hex(6)}"
        self.environment = {"CLOUDBENCH_GPUS": ""}
        self.interpreter = sys.executable
        self.programs: dict[int, subprocess.Popen[bytes]] = {}
        self.secret = secrets.token_hex(16)
        self._pyz = pyz
        folder.mkdir(parents=True, exist_ok=True)
        self._ports = ReservedPorts(1)
        self._ports.release()
        (self.main_port,) = self._ports.numbers
        values = {
            "version": 1,
            "run": self.run_id,
            "attempt": 1,
            "launcher": "per-node",
            "command": command,
            "prepare": None,
            "ranks_per_node": 1,
            "gpus_per_node": 0,
            "environment": {},
            "deadline_s": 120.0,
            "peers_timeout_s": 60.0,
            "grace_s": 0.5,
        }
        (folder / "job.json").write_text(json.dumps({**values, **job}))

    def start(self, *nodes: int, secret: str | None = None) -> NodePrograms:
        """Start these nodes, or all; with another secret than the others where one is given."""
        for node in nodes or range(self.nodes):
            path = self.folder / f"secret-{node}"
            path.write_text(secret or self.secret)
            path.chmod(0o600)
            environment = {
                **os.environ,
                "CLOUDBENCH_NODE_INDEX": str(node),
                "CLOUDBENCH_NODE_COUNT": str(self.nodes),
                "CLOUDBENCH_NODE_ADDRESS": f"127.0.1.{node + 1}",
                "CLOUDBENCH_MAIN_ADDRESS": "127.0.1.1",
                "CLOUDBENCH_MAIN_PORT": str(self.main_port),
                "CLOUDBENCH_SECRET_FILE": str(path),
                **self.environment,
            }
            command = [self.interpreter, str(self._pyz), "run"]
            command += ["--job", str(self.folder / "job.json"), "--out", str(self.out(node))]
            self.programs[node] = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
        return self

    def wait(self) -> dict[int, int]:
        """The exit code of each node program."""
        return {node: program.wait(PATIENCE_S) for node, program in self.programs.items()}

    def out(self, node: int) -> Path:
        return self.folder / f"node-{node}"

    def status(self, node: int) -> dict[str, Any]:
        """The node's status; empty where there is none yet."""
        path = self.out(node) / "status.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def text(self, node: int, name: str) -> str:
        path = self.out(node) / name
        return path.read_text() if path.exists() else ""

    def wait_for_text(self, node: int, name: str, text: str) -> None:
        wait_until(lambda: text in self.text(node, name), f"{text!r} in {name} of node {node}")

    def processes(self) -> list[int]:
        """The processes that carry the cookie of this run."""
        wanted, found = f"CLOUDBENCH_RUN_ID={self.run_id}".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def close(self) -> None:
        for program in self.programs.values():
            program.kill()
            program.wait()
            if program.stderr is not None:
                program.stderr.close()


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle as a file."""
    path = tmp_path_factory.mktemp("bundle") / "cloudbench-node.pyz"
    path.write_bytes(bundle())
    return path


@pytest.fixture
def node_programs(pyz: Path, tmp_path: Path) -> Iterator[Callable[..., NodePrograms]]:
    """Make the node programs of a run; nothing of them outlives the test."""
    made: list[NodePrograms] = []

    def make(nodes: int, command: str, **job: Any) -> NodePrograms:
        made.append(NodePrograms(pyz, tmp_path / f"run-{len(made)}", nodes, command, **job))
        return made[-1]

    yield make
    for programs in made:
        programs.close()
        wait_until(lambda programs=programs: not programs.processes(), "the end of every process")
