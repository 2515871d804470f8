"""The stand-in of AWS as the conformance suite sees it: from behind, not through the provider."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import boto3
import msgspec

from cloudbench.plan import RunPlan
from cloudbench.providers.aws import AwsAccount, aws_provider
from cloudbench.providers.aws.batch import AwsBatchProvider
from cloudbench.providers.aws.ec2 import AwsEc2Provider
from cloudbench.providers.secret import Secret
from cloudbench.rehearsal.aws import AwsStandIn, Scenario
from cloudbench.rehearsal.clock import Clock
from cloudbench.rehearsal.machines import Machines
from tests.processes import named, of_run, told_by
from tests.providers.aws.plans import aws_plan
from tests.providers.conformance import kill_once_told

QUICK = Scenario(change_s=0.2, delete_s=0.2, schedule_s=0.1, boot_s=0.2, pull_s=0.1, idle_s=0.2, explain_s=0.2)
"""All goes well, and soon."""
BUCKET = "cloudbench"
KEY = "rehearsal", "the secret key of the rehearsal"

# What the command line does, in as many lines.
_CLIENT = """
import sys, time
import msgspec
from cloudbench.plan import RunPlan
from cloudbench.providers.aws import aws_provider
from tests.providers.aws.world import account_at

plan = msgspec.json.decode(sys.argv[1], type=RunPlan)
provider = aws_provider(account_at(sys.argv[2]), service=plan.setup.service)
request = provider.render(plan, 1)
for handle in provider.provision(request):
    pass
provider.submit(request)
print("submitted", flush=True)
while True:
    provider.poll([request.job])
    time.sleep(provider.poll_interval_s)
"""


def account_at(endpoint: str) -> AwsAccount:
    """The account that the stand-in takes."""
    return AwsAccount(
        account_id="123456789012",
        region="us-east-1",
        bucket=BUCKET,
        endpoint=endpoint,
        access_key=Secret(KEY[0]),
        secret_key=Secret(KEY[1]),
    )


class AwsWorld:
    """AWS on this machine, and one of its services."""

    def __init__(self, folder: Path, service: str, scenario: Scenario = QUICK, *, containers: bool = False) -> None:
        self.owner = f"conformance-{secrets.token_hex(4)}"
        self.service = service
        self.folder = folder
        self.machines = Machines(folder / "nodes", containers=containers)
        self.clock = Clock()
        self.stand_in = AwsStandIn(self.machines, self.clock, scenario=scenario, file_systems=folder / "efs", key=KEY)
        self.endpoint = self.stand_in.start()
        self.stand_in.make_bucket(BUCKET)
        self._providers: list[AwsBatchProvider | AwsEc2Provider] = []
        self._clients: list[Any] = []

    def connect(self, **changes: Any) -> Any:
        provider = aws_provider(msgspec.structs.replace(account_at(self.endpoint), **changes), service=self.service)
        assert isinstance(provider, (AwsBatchProvider, AwsEc2Provider))
        self._providers.append(provider)
        return provider

    def client(self, service: str) -> Any:
        """A client of AWS that is not the provider's."""
        client = boto3.client(
            service,
            region_name="us-east-1",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY[0],
            aws_secret_access_key=KEY[1],
        )
        self._clients.append(client)
        return client

    def plan(
        self, command: str, *, nodes: int = 2, timeout_s: float = 600.0, owner: str | None = None, **changes: Any
    ) -> RunPlan:
        changes = {"service": self.service, **changes}
        return aws_plan(command, nodes=nodes, timeout_s=timeout_s, owner=owner or self.owner, **changes)

    def start_client(self, plan: RunPlan, *, attached: bool) -> subprocess.Popen[str]:
        client = subprocess.Popen(
            [sys.executable, "-c", _CLIENT, msgspec.json.encode(plan).decode(), self.endpoint],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert client.stdout
        with client.stdout:
            assert client.stdout.readline() == "submitted\n"
        return client

    def living(self, plan: RunPlan) -> list[str]:
        running = named(of_run(plan.id))
        return [*running, *(f"instance {instance['InstanceId']}" for instance in self.instances(plan))]

    def left(self, plan: RunPlan) -> list[str]:
        objects = self.client("s3").list_objects_v2(Bucket=BUCKET, Prefix=f"runs/{plan.id}").get("Contents", ())
        return [*self.living(plan), *(item["Key"] for item in objects), *self.things()]

    def things(self) -> Iterator[str]:
        """Everything but files and instances, which only runs of this world have made."""
        batch, ec2 = self.client("batch"), self.client("ec2")
        yield from (item["jobQueueName"] for item in batch.describe_job_queues()["jobQueues"])
        environments = batch.describe_compute_environments()["computeEnvironments"]
        yield from (item["computeEnvironmentName"] for item in environments)
        yield from (
            item["jobDefinitionName"] for item in batch.describe_job_definitions(status="ACTIVE")["jobDefinitions"]
        )
        yield from (item["LaunchTemplateName"] for item in ec2.describe_launch_templates()["LaunchTemplates"])
        yield from (item["GroupName"] for item in ec2.describe_placement_groups()["PlacementGroups"])

    def instances(self, plan: RunPlan | None = None) -> list[dict[str, Any]]:
        """The instances that cost something, of EC2 those of one run."""
        filters = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
        if plan is not None and self.service == "ec2":
            filters.append({"Name": "tag:cloudbench-run", "Values": [plan.id]})
        found = self.client("ec2").describe_instances(Filters=filters)["Reservations"]
        return [instance for reservation in found for instance in reservation["Instances"]]

    def kill_node(self, plan: RunPlan, node: int) -> None:
        def log() -> str:
            with contextlib.suppress(self.client("s3").exceptions.NoSuchKey):
                return self.read(plan, f"node-{node}/node.log")
            return ""

        kill_once_told(log)

    def secret(self, plan: RunPlan) -> str:
        return self.read(plan, "secret")

    def exposed(self, plan: RunPlan) -> Iterable[str]:
        yield from told_by(of_run(plan.id))

    def read(self, plan: RunPlan, file: str) -> str:
        """A file of the attempt, from the bucket."""
        found = self.client("s3").get_object(Bucket=BUCKET, Key=f"runs/{plan.id}-a1/{file}")
        with found["Body"] as body:
            return str(body.read().decode())

    def close(self) -> None:
        """End everything; what the stand-in did wrong fails the test."""
        for client in [*self._providers, *self._clients]:
            client.close()
        faults = self.stand_in.faults
        self.stand_in.close()
        self.machines.close()
        assert not faults, faults
