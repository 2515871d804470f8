"""This machine as the conformance suite sees it: through `ps` and the Docker client, not through the provider."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil

from cloudbench.plan import RunPlan
from cloudbench.processes import living
from cloudbench.providers.local import LocalProvider, Machine, local_provider
from cloudbench.spec import Setup
from tests.processes import named, told_by

if TYPE_CHECKING:
    from docker import DockerClient

# What the command line does, in as many lines.
_CLIENT = """
import sys, time
from pathlib import Path
import msgspec
from cloudbench.plan import RunPlan
from cloudbench.providers.local import local_provider

plan = msgspec.json.decode(sys.argv[1], type=RunPlan)
root, attached, host = Path(sys.argv[2]), sys.argv[3] == "True", sys.argv[4] or None
provider = local_provider(root, service=plan.setup.service, attached=attached, docker_host=host)
request = provider.render(plan, 1)
for handle in provider.provision(request):
    pass
provider.submit(request)
print("submitted", flush=True)
while True:
    provider.poll([request.job])
    time.sleep(provider.poll_interval_s)
"""


class LocalWorld:
    """The service `process` on this machine, with its workspaces below `root`."""

    service = "process"

    def __init__(self, root: Path) -> None:
        self.root = root
        self.owner = f"conformance-{secrets.token_hex(4)}"
        self.image: str | None = None
        self.host: str | None = None
        self._plans: list[RunPlan] = []

    def connect(self, *, attached: bool = True, machine: Machine | None = None) -> LocalProvider:
        return local_provider(
            self.root, service=self.service, attached=attached, machine=machine, docker_host=self.host
        )

    def plan(self, command: str, *, nodes: int = 2, timeout_s: float = 120.0, owner: str | None = None) -> RunPlan:
        run = f"conformance-{secrets.token_hex(4)}"
        plan = RunPlan(
            id=run,
            group=run,
            experiment="conformance",
            submission=1,
            owner=owner or self.owner,
            label=command,
            repeat=1,
            template="shell",
            parameters={},
            setup=Setup(provider="local", service=self.service, nodes=nodes),
            nodes=nodes,
            gpus_per_node=1,
            launcher="per-node",
            ranks_per_node=1,
            command=command,
            prepare=None,
            requires=(),
            environment={},
            image=self.image,
            format="tf_cnn_benchmarks",
            timeout_s=timeout_s,
        )
        self._plans.append(plan)
        return plan

    def start_client(self, plan: RunPlan, *, attached: bool) -> subprocess.Popen[str]:
        arguments = [msgspec.json.encode(plan).decode(), str(self.root), str(attached), self.host or ""]
        client = subprocess.Popen(
            [sys.executable, "-c", _CLIENT, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert client.stdout
        with client.stdout:
            assert client.stdout.readline() == "submitted\n"
        return client

    def living(self, plan: RunPlan) -> list[str]:
        return named(self.processes(plan))

    def left(self, plan: RunPlan) -> list[str]:
        return [*self.living(plan), *(str(path) for path in self.root.glob(f"{plan.id}*"))]

    def processes(self, plan: RunPlan) -> Iterator[psutil.Process]:
        """Those that are marked as the run's, or have its name in their command line."""
        for process, environment in living():
            with contextlib.suppress(psutil.Error):
                # The client has the plan in its command line; it is no part of the run.
                if environment.get("CLOUDBENCH_RUN_ID") == plan.id or (
                    plan.id in " ".join(process.cmdline()) and _CLIENT not in process.cmdline()
                ):
                    yield process

    def kill_node(self, plan: RunPlan, node: int) -> None:
        os.kill(self.node_pid(plan, node), signal.SIGKILL)

    def node_pid(self, plan: RunPlan, node: int) -> int:
        """The node program's process id, where it runs."""
        match = re.search(r", pid (\d+)$", (self.folder(plan) / f"node-{node}" / "node.log").read_text(), re.MULTILINE)
        assert match
        return int(match[1])

    def secret(self, plan: RunPlan) -> str:
        path = self.folder(plan) / "secret"
        assert path.stat().st_mode & 0o077 == 0
        return path.read_text()

    def exposed(self, plan: RunPlan) -> Iterable[str]:
        yield from told_by(self.processes(plan))

    def folder(self, plan: RunPlan) -> Path:
        return self.root / f"{plan.id}-a1"

    def clean_up(self) -> None:
        """Release everything, also of runs whose test failed, and see that nothing is left."""
        provider = self.connect(machine=Machine())
        for plan in self._plans:
            for step in reversed(provider.render(plan, 1).steps):
                provider.release(step.handle)
            assert not self.left(plan)


class DockerWorld(LocalWorld):
    """The service `docker` with one engine."""

    service = "docker"

    def __init__(self, root: Path, *, client: DockerClient, host: str, image: str) -> None:
        super().__init__(root)
        self.client, self.host, self.image = client, host, image

    def living(self, plan: RunPlan) -> list[str]:
        containers = self.client.api.containers(all=True, filters={"name": plan.id})
        return [*super().living(plan), *(f"container {item['Names']} {item['State']}" for item in containers)]

    def left(self, plan: RunPlan) -> list[str]:
        return [*super().left(plan), *(f"network {item['Name']}" for item in self.client.api.networks(names=[plan.id]))]

    def kill_node(self, plan: RunPlan, node: int) -> None:
        container = self.client.containers.get(f"{plan.id}-a1-node-{node}")
        container.exec_run(["sh", "-c", f"kill -KILL {self.node_pid(plan, node)}"])

    def exposed(self, plan: RunPlan) -> Iterable[str]:
        yield from super().exposed(plan)
        for item in self.client.api.containers(all=True, filters={"name": plan.id}):
            yield json.dumps(self.client.api.inspect_container(item["Id"]))
