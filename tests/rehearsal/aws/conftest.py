"""An account of AWS on this machine, driven by boto3, on a clock that tests turn; and moto without us, to compare."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

from cloudbench.rehearsal.aws import AwsStandIn, Scenario
from cloudbench.rehearsal.aws.cloud import Cloud
from cloudbench.rehearsal.clock import Clock
from cloudbench.rehearsal.machines import Machines
from cloudbench.rehearsal.server import HttpServer

PATIENCE_S = 120.0

# Delays that only a turned clock brings to an end: however slow this machine is, what is said to be on its way is.
SLOW = Scenario(change_s=100, delete_s=100, schedule_s=100, boot_s=300, pull_s=100, idle_s=300, explain_s=500)
START_S = 501.0
"""From a job's submission, or from its next attempt, until it runs."""
ENDED = ("SUCCEEDED", "FAILED")
SMALL = [{"type": "VCPU", "value": "4"}, {"type": "MEMORY", "value": "1024"}, {"type": "GPU", "value": "1"}]
STATE = {"state": "ENABLED"}
_numbers = count(1)


class Clients(ExitStack):
    """Clients of boto3 for one endpoint. They try nothing twice, so that a test sees each refusal."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._made: dict[str, Any] = {}

    def __call__(self, service: str) -> Any:
        if service not in self._made:
            client = boto3.client(
                service,
                endpoint_url=self._url,
                region_name="us-east-1",
                aws_access_key_id="rehearsal",
                aws_secret_access_key="rehearsal",  # noqa: S106
                config=Config(retries={"total_max_attempts": 1}, signature_version="s3v4" if service == "s3" else None),
            )
            self.callback(client.close)
            self._made[service] = client
        return self._made[service]


class Account:
    """A stand-in with its clock, its machines and clients."""

    def __init__(self, root: Path, scenario: Scenario | None, *, containers: bool = False, **more: Any) -> None:
        self._ends = ExitStack()
        self.clock = Clock()
        self.machines = Machines(root / "nodes", containers=containers)
        self._ends.callback(self.machines.close)
        self.stand_in = AwsStandIn(self.machines, self.clock, scenario=scenario or SLOW, **more)
        self._ends.callback(self.stand_in.close)
        self.url = self.stand_in.start()
        self.client = self._ends.enter_context(Clients(self.url))
        self.batch, self.ec2 = self.client("batch"), self.client("ec2")
        self.batch.meta.events.register("before-parse.batch", check_answer)

    def close(self) -> None:
        """End it all; a fault of the stand-in fails the test."""
        self._ends.close()
        assert self.stand_in.faults == []

    def environment(self, **resources: Any) -> str:
        """Make a compute environment and a queue of one name."""
        name = new_name()
        make_environment(self.client, name, **resources)
        self.clock.advance(200)
        make_queue(self.batch, name)
        self.clock.advance(200)
        return name

    def define(self, command: str, *, nodes: int = 1, **more: Any) -> str:
        """Register a job that runs this in a shell on each node."""
        name = new_name()
        self.batch.register_job_definition(jobDefinitionName=name, **definition(command, nodes=nodes, **more))
        return name

    def submit(self, queue: str, definition_name: str, **more: Any) -> str:
        """Submit it under a name of its own; the id."""
        more = {"jobName": new_name(), **more}
        return str(self.batch.submit_job(jobQueue=queue, jobDefinition=definition_name, **more)["jobId"])

    def job(self, job_id: str) -> Any:
        """How the job is described."""
        (found,) = self.batch.describe_jobs(jobs=[job_id])["jobs"]
        return found

    def ends(self, job_id: str) -> Any:
        """The job when it has ended."""
        until(lambda: self.job(job_id)["status"] in ENDED)
        return self.job(job_id)

    def leaves(self, job_id: str) -> None:
        """Let time pass until the instance of a job that has ended is gone."""
        name = self.job(job_id)["container"]["containerInstanceArn"].rpartition("/")[2]
        self.clock.advance(401)
        living = [{"Name": "instance-state-name", "Values": ["running", "shutting-down"]}]
        until(lambda: not self.ec2.describe_instances(InstanceIds=[f"i-{name}"], Filters=living)["Reservations"])

    def says(self, job_id: str, text: str) -> None:
        """Wait until the job's log has this line."""
        until(lambda: text in self.log(job_id))

    def log(self, job_id: str) -> list[str]:
        """What the job has printed, without what the rehearsal adds."""
        stream = self.job(job_id)["container"].get("logStreamName")
        if stream is None:
            return []
        try:
            found = self.client("logs").get_log_events(
                logGroupName="/aws/batch/job", logStreamName=stream, startFromHead=True
            )
        except ClientError:
            return []
        return [event["message"] for event in found["events"] if not event["message"].startswith("rehearsal: ")]

    def instances(self) -> list[Any]:
        """All instances that are described."""
        found = self.ec2.describe_instances()["Reservations"]
        return [instance for reservation in found for instance in reservation["Instances"]]

    def states(self) -> list[str]:
        """Their states."""
        return [instance["State"]["Name"] for instance in self.instances()]


def slow(**changes: Any) -> Scenario:
    """A slow scenario in which something goes otherwise."""
    return msgspec.structs.replace(SLOW, **changes)


def new_name() -> str:
    """A name that no other test has."""
    return f"thing-{next(_numbers)}"


def make_environment(client: Clients, name: str, **resources: Any) -> Any:
    """Make a compute environment in the default network."""
    subnet = client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    group = client("ec2").describe_security_groups()["SecurityGroups"][0]["GroupId"]
    wanted = {
        "type": "EC2",
        "minvCpus": 0,
        "maxvCpus": 64,
        "instanceTypes": ["p2.xlarge"],
        "subnets": [subnet],
        "securityGroupIds": [group],
        "instanceRole": "ecsInstanceRole",
        **resources,
    }
    return client("batch").create_compute_environment(
        computeEnvironmentName=name, type="MANAGED", computeResources=wanted
    )


def make_queue(batch: Any, name: str, **more: Any) -> Any:
    """Make a queue for the environment of its name."""
    order = [{"order": 1, "computeEnvironment": name}]
    return batch.create_job_queue(jobQueueName=name, priority=1, computeEnvironmentOrder=order, **more)


def definition(command: str, *, nodes: int = 1, needs: Any = SMALL, **more: Any) -> dict[str, Any]:
    """What a job that runs this in a shell on each node is registered with."""
    container = {"image": "none/such", "command": ["/bin/sh", "-c", command], "resourceRequirements": needs, **more}
    if nodes == 1:
        return {"type": "container", "containerProperties": container}
    ranges = [{"targetNodes": "0:", "container": container}]
    properties = {"numNodes": nodes, "mainNode": 0, "nodeRangeProperties": ranges}
    return {"type": "multinode", "nodeProperties": properties}


def check_answer(operation_model: Any, response_dict: Any, **_: Any) -> None:
    """Hold an answer against the service's own model."""
    if response_dict["status_code"] == 200 and response_dict["body"] and operation_model.output_shape:
        report = ParamValidator().validate(json.loads(response_dict["body"]), operation_model.output_shape)
        # The model demands it of every job; the documented example of one that waits has none.
        missing = 'Missing required parameter in jobs[0]: "startedAt"'
        assert [line for line in report.generate_report().splitlines() if line != missing] == []


def refusal(call: Callable[[], Any]) -> tuple[str, str]:
    """The error code and the message with which a call is refused."""
    with pytest.raises(ClientError) as refused:
        call()
    error = refused.value.response["Error"]
    return error["Code"], error["Message"]


def until(holds: Callable[[], bool]) -> None:
    """Wait for what other threads and processes bring about."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """One for the tests of a module, in which all goes well."""
    made = Account(tmp_path_factory.mktemp("aws"), None)
    yield made
    made.close()


@pytest.fixture
def make_account(tmp_path: Path) -> Iterator[Callable[..., Account]]:
    """Accounts of the test's own."""
    with ExitStack() as ends:

        def make(scenario: Scenario | None = None, **more: Any) -> Account:
            made = Account(tmp_path / new_name(), scenario, **more)
            ends.callback(made.close)
            return made

        yield make


@pytest.fixture(scope="module")
def moto() -> Iterator[Clients]:
    """moto alone."""
    cloud = Cloud()
    server = HttpServer(cloud.answer)
    with Clients(server.start()) as clients:
        cloud.backend("iam").create_instance_profile(name="ecsInstanceRole", path="/", role_names=[], tags=[])
        role = clients("iam").create_role(RoleName="batch", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        # moto demands what the service does not.
        given = {"CreateComputeEnvironment": {"serviceRole": role, "state": "ENABLED"}, "CreateJobQueue": STATE}
        for operation, more in given.items():
            clients("batch").meta.events.register(
                f"provide-client-params.batch.{operation}", lambda params, more=more, **_: {**more, **params}
            )
        yield clients
    server.close()
    cloud.close()
