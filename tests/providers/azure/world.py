"""Stand-ins of Azure as the conformance suite sees them: from behind, not through the provider."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from cloudbench.plan import RunPlan
from cloudbench.providers.azure.account import AzureAccount, Secret
from cloudbench.providers.azure.batch import AzureBatchProvider
from cloudbench.rehearsal.azure import AzureEndpoints, AzureRehearsal
from cloudbench.rehearsal.azure_batch.scenario import Scenario
from tests.processes import named, of_run, told_by
from tests.providers.azure.plans import azure_plan
from tests.providers.conformance import kill_once_told

QUICK = Scenario(allocation_s=0.2, boot_s=0.1, start_s=0.1, leave_s=0.1, delete_s=0.2)
"""All goes well, and soon."""

# What the command line does, in as many lines.
_CLIENT = """
import sys, time
import msgspec
from cloudbench.plan import RunPlan
from cloudbench.providers.azure import azure_provider
from tests.providers.azure.world import account_of
from cloudbench.rehearsal.azure import AzureEndpoints

plan = msgspec.json.decode(sys.argv[1], type=RunPlan)
account = account_of(msgspec.json.decode(sys.stdin.readline(), type=AzureEndpoints))
provider = azure_provider(account, service=plan.setup.service)
request = provider.render(plan, 1)
for handle in provider.provision(request):
    pass
provider.submit(request)
print("submitted", flush=True)
while True:
    provider.poll([request.job])
    time.sleep(provider.poll_interval_s)
"""


def account_of(endpoints: AzureEndpoints) -> AzureAccount:
    """The account that the stand-ins take."""
    return AzureAccount(
        batch_account=endpoints.batch_account,
        batch_endpoint=endpoints.batch_endpoint,
        batch_key=Secret(endpoints.batch_key),
        storage_account=endpoints.storage_account,
        storage_key=Secret(endpoints.storage_key),
        files_endpoint=endpoints.files_endpoint,
        share=endpoints.share,
        subscription=endpoints.subscription,
        region=endpoints.region,
        resources_endpoint=endpoints.resources_endpoint,
        resources_token=Secret(endpoints.resources_token),
    )


class AzureWorld:
    """One of Azure's services and the share on this machine."""

    service: ClassVar[str]

    def __init__(self, folder: Path, scenario: Scenario = QUICK, *, containers: bool = False) -> None:
        self.owner = f"conformance-{secrets.token_hex(4)}"
        self.rehearsal = AzureRehearsal(folder, scenario=scenario, containers=containers)
        self.endpoints = self.rehearsal.start()
        self._clients = ExitStack()

    def account(self, **changes: Any) -> AzureAccount:
        """The account of the stand-ins, with other settings."""
        return msgspec.structs.replace(account_of(self.endpoints), **changes)

    def plan(
        self, command: str, *, nodes: int = 2, timeout_s: float = 600.0, owner: str | None = None, **changes: Any
    ) -> RunPlan:
        owner = owner or self.owner
        return azure_plan(command, nodes=nodes, timeout_s=timeout_s, owner=owner, service=self.service, **changes)

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

    def kill_node(self, plan: RunPlan, node: int) -> None:
        log = self.folder(plan) / f"node-{node}" / "node.log"
        kill_once_told(lambda: log.read_text() if log.exists() else "")

    def secret(self, plan: RunPlan) -> str:
        return (self.folder(plan) / "secret").read_text()

    def exposed(self, plan: RunPlan) -> Iterable[str]:
        yield from told_by(of_run(plan.id))

    def folder(self, plan: RunPlan) -> Path:
        """The attempt's folder on the share, where it really lies."""
        return self.rehearsal.files.folder(self.endpoints.share) / "runs" / f"{plan.id}-a1"

    def folders(self, plan: RunPlan) -> list[str]:
        """What of the run is on the share."""
        return [str(path) for path in self.folder(plan).parent.glob(f"{plan.id}*")]

    def close(self) -> None:
        """End everything; what a stand-in did wrong fails the test."""
        self._clients.close()
        stand_ins = (self.rehearsal.batch, self.rehearsal.files, self.rehearsal.resources)
        faults = [fault for stand_in in stand_ins for fault in stand_in.faults]
        self.rehearsal.close()
        assert not faults, faults


class AzureBatchWorld(AzureWorld):
    """Azure Batch and its share on this machine."""

    service = "batch"

    def connect(self, **changes: Any) -> AzureBatchProvider:
        return self._clients.enter_context(closing(AzureBatchProvider(self.account(**changes))))

    def living(self, plan: RunPlan) -> list[str]:
        provider = self.connect()
        pools = [pool for pool in provider._client.list_pools() if self._is_of(plan, pool.as_dict())]
        running = named(of_run(plan.id))
        return [*running, *(f"pool {pool.id}" for pool in pools)]

    def left(self, plan: RunPlan) -> list[str]:
        jobs = [job.id for job in self.connect()._client.list_jobs() if self._is_of(plan, job.as_dict())]
        return [*self.living(plan), *(f"job {job}" for job in jobs), *self.folders(plan)]

    def _is_of(self, plan: RunPlan, thing: dict[str, Any]) -> bool:
        return {"name": "cloudbench_run", "value": plan.id} in (thing.get("metadata") or ())
