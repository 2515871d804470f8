"""Stand-ins of Azure as the conformance suite sees them when runs are on virtual machines."""

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
from typing import Any

import msgspec
import psutil

from cloudbench.plan import RunPlan
from cloudbench.providers.azure.account import AzureAccount, Secret
from cloudbench.providers.azure.vm import AzureVmProvider
from cloudbench.providers.azure.vm_resources import Resources
from cloudbench.rehearsal.azure import AzureRehearsal, Endpoints
from cloudbench.rehearsal.azure_batch.scenario import Scenario
from cloudbench.rehearsal.clock import Clock
from tests.providers.azure.plans import azure_plan

QUICK = Scenario(allocation_s=0.2, boot_s=0.1, delete_s=0.2)
"""All goes well, and soon."""

# What the command line does, in as many lines.
_CLIENT = """
import sys, time
import msgspec
from cloudbench.plan import RunPlan
from cloudbench.providers.azure.vm import AzureVmProvider
from tests.providers.azure.vm_world import account_of
from cloudbench.rehearsal.azure import Endpoints

plan = msgspec.json.decode(sys.argv[1], type=RunPlan)
provider = AzureVmProvider(account_of(msgspec.json.decode(sys.stdin.readline(), type=Endpoints)))
request = provider.render(plan, 1)
for handle in provider.provision(request):
    pass
provider.submit(request)
print("submitted", flush=True)
while True:
    provider.poll([request.job])
    time.sleep(provider.poll_interval_s)
"""


def account_of(endpoints: Endpoints) -> AzureAccount:
    """The account that the stand-ins take."""
    return AzureAccount(
        storage_account=endpoints.storage_account,
        storage_key=Secret(endpoints.storage_key),
        files_endpoint=endpoints.files_endpoint,
        share=endpoints.share,
        subscription=endpoints.subscription,
        region=endpoints.region,
        resources_endpoint=endpoints.resources_endpoint,
        resources_token=Secret(endpoints.resources_token),
    )


class AzureVmWorld:
    """Azure's virtual machines and the share on this machine."""

    def __init__(self, folder: Path, scenario: Scenario = QUICK) -> None:
        self.owner = f"conformance-{secrets.token_hex(4)}"
        self.clock = Clock()
        self.rehearsal = AzureRehearsal(folder, scenario=scenario, containers=False, clock=self.clock)
        self.endpoints = self.rehearsal.start()
        self.account = account_of(self.endpoints)
        self.resources = Resources(self.account)
        self._providers: list[AzureVmProvider] = []

    def connect(self, **changes: Any) -> AzureVmProvider:
        provider = AzureVmProvider(msgspec.structs.replace(self.account, **changes))
        self._providers.append(provider)
        return provider

    def plan(
        self, command: str, *, nodes: int = 2, timeout_s: float = 120.0, owner: str | None = None, **changes: Any
    ) -> RunPlan:
        owner = owner or self.owner
        return azure_plan(command, nodes=nodes, timeout_s=timeout_s, owner=owner, service="vm", **changes)

    def start_client(self, plan: RunPlan, *, attached: bool) -> subprocess.Popen[str]:
        client = subprocess.Popen(
            [sys.executable, "-c", _CLIENT, msgspec.json.encode(plan).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert client.stdin
        assert client.stdout
        with client.stdin, client.stdout:
            client.stdin.write(msgspec.json.encode(self.endpoints).decode() + "\n")
            client.stdin.flush()
            assert client.stdout.readline() == "submitted\n"
        return client

    def living(self, plan: RunPlan) -> list[str]:
        return [f"process {process.pid} {process.name()}" for process in self.processes(plan)]

    def left(self, plan: RunPlan) -> list[str]:
        groups = [group["name"] for group in self.resources.groups() if plan.id in group["name"]]
        return [*self.living(plan), *groups, *(str(path) for path in self.folder(plan).parent.glob(f"{plan.id}*"))]

    def processes(self, plan: RunPlan) -> Iterator[psutil.Process]:
        """Those that are marked as the run's."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                marked = process.environ().get("CLOUDBENCH_RUN_ID") == plan.id
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    def kill_node(self, plan: RunPlan, node: int) -> None:
        log = (self.folder(plan) / f"node-{node}" / "node.log").read_text()
        match = re.search(r", pid (\d+)$", log, re.MULTILINE)
        assert match
        os.kill(int(match[1]), signal.SIGKILL)

    def secret(self, plan: RunPlan) -> str:
        return (self.folder(plan) / "secret").read_text()

    def exposed(self, plan: RunPlan) -> Iterable[str]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = [process.cmdline(), process.environ()]
                if any(plan.id in word for word in (*words[0], *words[1].values())):
                    yield json.dumps(words)

    def folder(self, plan: RunPlan) -> Path:
        """The attempt's folder on the share, where it really lies."""
        return self.rehearsal.files.folder(self.endpoints.share) / "runs" / f"{plan.id}-a1"

    def close(self) -> None:
        """End everything; what a stand-in did wrong fails the test."""
        for provider in self._providers:
            provider.close()
        self.resources.close()
        faults = [*self.rehearsal.resources.faults, *self.rehearsal.files.faults]
        self.rehearsal.close()
        assert not faults, faults
