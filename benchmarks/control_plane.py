"""How often the control plane of Azure Batch is asked for 1, 10 and 200 concurrent runs.

    python benchmarks/control_plane.py [--runs 1 10 200]

Each run goes through the engine and the real SDK against the stand-in of Batch; its nodes run `true` in place of the
node program. The aim: three requests a poll, however many runs it is for, and a number of requests for each run that
does not grow with them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cloudbench.engine import Engine
from cloudbench.plan import RunPlan, plan_experiment
from cloudbench.providers.azure.account import AzureAccount, Secret
from cloudbench.providers.azure.batch import AzureBatchProvider
from cloudbench.providers.base import Request
from cloudbench.rehearsal.azure import AzureRehearsal
from cloudbench.rehearsal.azure_batch.scenario import Scenario
from cloudbench.run import Handle, Outcome, Status
from cloudbench.spec import Experiment, JobTemplate, Parameter, Setup
from cloudbench.store import Store

POLL_INTERVAL_S = 2.0


class Observed(AzureBatchProvider):
    """The provider as it is, with any number of runs at once, nodes that do nothing, and its polls counted."""

    capacity = None
    poll_interval_s = POLL_INTERVAL_S

    def __init__(self, account: AzureAccount, rehearsal: AzureRehearsal) -> None:
        super().__init__(account)
        self.capacity, self.poll_interval_s = None, POLL_INTERVAL_S
        self.polls: list[int] = []
        self._calls = rehearsal.batch.calls

    def render(self, plan: RunPlan, attempt: int) -> Request:
        """The request, with commands that do nothing."""
        return msgspec.convert(_idle(msgspec.to_builtins(super().render(plan, attempt))), Request)

    def poll(self, jobs: Collection[Handle]) -> Mapping[Handle, Status]:
        """Poll, and note how many requests the listings took."""
        before = self._listings()
        statuses = super().poll(jobs)
        self.polls.append(self._listings() - before)
        return statuses

    def _listings(self) -> int:
        return sum(
            count for call, count in self._calls.items() if call in ("GET /jobs", "GET /pools", "GET /nodecounts")
        )


def _idle(value: Any) -> Any:
    """The same with every command line replaced by `true`."""
    if isinstance(value, dict):
        return {key: "true" if key.endswith("ommandLine") else _idle(item) for key, item in value.items()}
    return [_idle(item) for item in value] if isinstance(value, (list, tuple)) else value


def measure(count: int) -> str:
    """Drive so many runs at once to their ends; a line of the table."""
    template = JobTemplate(
        name="idle",
        command="true",
        launcher="per-node",
        format="tf_cnn_benchmarks",
        parameters={"number": Parameter(default=0)},
    )
    experiment = Experiment(
        name="idle",
        templates=("idle",),
        sweep={"number": tuple(range(count))},
        setups=(Setup(provider="azure", sku="NC4as_T4_v3", nodes=2, storage="local"),),
    )
    plans = plan_experiment(experiment, {"idle": template}, owner="benchmark", submission=1)
    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(allocation_s=5.0, boot_s=0.5, start_s=0.5, leave_s=0.5, delete_s=1.0)
        rehearsal = AzureRehearsal(Path(folder) / "rehearsal", scenario=scenario, containers=False)
        store = Store(Path(folder) / "home")
        try:
            endpoints = msgspec.to_builtins(rehearsal.start())
            known = {key: value for key, value in endpoints.items() if key in AzureAccount.__struct_fields__}
            keys = {key: Secret(value) for key, value in known.items() if key.endswith(("_key", "_token"))}
            provider = Observed(AzureAccount(**{**known, **keys}), rehearsal)
            store.add(plans, at=time.time())
            runs = Engine(store, lambda plan: provider).drive([plan.id for plan in plans])
            assert all(run.outcome is Outcome.SUCCEEDED for run in runs), {str(run.status) for run in runs}
            provider.close()
            requests = rehearsal.batch.calls.total()
            listings = sum(provider.polls)
        finally:
            store.close()
            rehearsal.close()
    each = (requests - listings) / count
    return f"{count:5}{requests:10}{len(provider.polls):8}{max(provider.polls):17}{each:24.1f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 10, 200])
    print(f"{'runs':>5}{'requests':>10}{'polls':>8}{'most for a poll':>17}{'besides, for each run':>24}")
    for count in parser.parse_args().runs:
        print(measure(count), flush=True)


if __name__ == "__main__":
    main()
