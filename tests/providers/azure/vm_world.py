"""Virtual machines of Azure as the conformance suite sees them: from behind, not through the provider."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from cloudbench.plan import RunPlan
from cloudbench.providers.azure.vm import AzureVmProvider
from cloudbench.providers.azure.vm_resources import Resources
from cloudbench.rehearsal.azure_batch.scenario import Scenario
from tests.processes import named, of_run
from tests.providers.azure.world import QUICK, AzureWorld


class AzureVmWorld(AzureWorld):
    """Azure's virtual machines and the share on this machine."""

    service = "vm"

    def __init__(self, folder: Path, scenario: Scenario = QUICK, *, containers: bool = False) -> None:
        super().__init__(folder, scenario, containers=containers)
        self.resources = self._clients.enter_context(closing(Resources(self.account())))

    def connect(self, **changes: Any) -> AzureVmProvider:
        return self._clients.enter_context(closing(AzureVmProvider(self.account(**changes))))

    def living(self, plan: RunPlan) -> list[str]:
        # A machine whose node has ended waits for its release, or for the time at which Azure takes it away.
        return named(of_run(plan.id))

    def left(self, plan: RunPlan) -> list[str]:
        groups = [group["name"] for group in self.resources.groups() if plan.id in group["name"]]
        return [*self.living(plan), *(f"group {group}" for group in groups), *self.folders(plan)]
