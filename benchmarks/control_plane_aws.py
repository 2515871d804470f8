"""How often the control plane of AWS is asked for 1, 10 and 200 concurrent runs, on AWS Batch and on EC2.

    python benchmarks/control_plane_aws.py [--runs 1 10 200] [--service batch ec2]

Each run goes through the engine and the real SDK against the stand-in of AWS; its nodes run `true` in place of the node
program. The aim: one request a poll for every hundred runs, and a number of requests for each run that does not grow
with them. Requests to S3 are counted apart.
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
from cloudbench.providers.aws import AwsAccount, aws_provider
from cloudbench.providers.base import Provider, Request
from cloudbench.providers.secret import Secret
from cloudbench.rehearsal.aws import Scenario
from cloudbench.rehearsal.aws.rehearsal import AwsRehearsal
from cloudbench.run import Handle, Status
from cloudbench.spec import Experiment, JobTemplate, Parameter, Setup
from cloudbench.store import Store

POLL_INTERVAL_S = 2.0
POLLED = ("batch:DescribeJobs", "ec2:DescribeInstances")


class Observed:
    """A provider as it is, with any number of runs at once, nodes that do nothing, and its polls counted."""

    def __init__(self, provider: Provider, rehearsal: AwsRehearsal) -> None:
        self.capacity: int | None = None
        self.poll_interval_s = POLL_INTERVAL_S
        self.polls: list[int] = []
        self._provider = provider
        self._calls = rehearsal.aws.calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def render(self, plan: RunPlan, attempt: int) -> Request:
        """The request, with commands that do nothing."""
        return msgspec.convert(_idle(msgspec.to_builtins(self._provider.render(plan, attempt))), Request)

    def poll(self, jobs: Collection[Handle]) -> Mapping[Handle, Status]:
        """Poll, and note how many requests that took."""
        before = self._polled()
        statuses = self._provider.poll(jobs)
        self.polls.append(self._polled() - before)
        return statuses

    def _polled(self) -> int:
        return sum(self._calls[call] for call in POLLED)


def _idle(value: Any) -> Any:
    """The same with every container's command and every user data replaced by what does nothing."""
    if isinstance(value, dict):
        return {key: _IDLE[key] if _is_program(key, item) else _idle(item) for key, item in value.items()}
    return [_idle(item) for item in value] if isinstance(value, (list, tuple)) else value


_IDLE: dict[str, Any] = {"command": ["true"], "UserData": "#!/bin/sh\nshutdown -P now\n"}


def _is_program(key: str, value: Any) -> bool:
    """Whether it is a container's command, or the script of an instance; that of a launch template is left as it is."""
    return (key == "command" and isinstance(value, list)) or (key == "UserData" and value.startswith("#!"))


def measure(service: str, count: int) -> str:
    """Drive so many runs at once to their ends; a line of the table."""
    template = JobTemplate(
        name="idle",
        command="true",
        launcher="per-node",
        format="tf_cnn_benchmarks",
        parameters={"number": Parameter(default=0)},
    )
    setup = Setup(provider="aws", service=service, sku="g4dn.xlarge", nodes=2, image="idle")
    experiment = Experiment(name="idle", templates=("idle",), sweep={"number": tuple(range(count))}, setups=(setup,))
    plans = plan_experiment(experiment, {"idle": template}, owner="benchmark", submission=1)
    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(boot_s=5.0, pull_s=0.5, idle_s=0.5)
        rehearsal = AwsRehearsal(Path(folder) / "rehearsal", scenario=scenario, containers=False)
        store = Store(Path(folder) / "home")
        try:
            endpoints = msgspec.structs.asdict(rehearsal.start())
            secrets = {key: Secret(endpoints.pop(key)) for key in ("access_key", "secret_key")}
            provider = Observed(aws_provider(AwsAccount(**endpoints, **secrets), service=service), rehearsal)
            store.add(plans, at=time.time())
            runs = Engine(store, lambda plan: provider).drive([plan.id for plan in plans])
            assert provider.polls, {str(run.status) for run in runs}
            provider.close()
            calls = rehearsal.aws.calls
            of_s3 = sum(number for call, number in calls.items() if call.startswith("s3:"))
            others = calls.total() - of_s3 - sum(provider.polls)
        finally:
            store.close()
            rehearsal.close()
    each = f"{others / count:10.1f}{of_s3 / count:10.1f}"
    return f"{service:8}{count:5}{calls.total():10}{len(provider.polls):8}{max(provider.polls):17}{each}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 10, 200])
    parser.add_argument("--service", nargs="+", default=["batch", "ec2"])
    asked = parser.parse_args()
    print(f"{'':8}{'runs':>5}{'requests':>10}{'polls':>8}{'most for a poll':>17}{'per run':>10}{'to S3':>10}")
    for service in asked.service:
        for count in asked.runs:
            print(measure(service, count), flush=True)


if __name__ == "__main__":
    main()
