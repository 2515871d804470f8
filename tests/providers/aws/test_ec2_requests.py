"""What is sent to EC2: held against AWS's own description of its requests."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import msgspec
import pytest

from cloudbench.errors import SpecError
from cloudbench.plan import RunPlan
from cloudbench.providers.aws.ec2_requests import IMAGE, NAME, render, user_data
from cloudbench.providers.aws.requests import FILES_ADDRESS, SECURITY_GROUPS, SUBNETS, fill
from tests.providers.aws.plans import ACCOUNT, aws_plan
from tests.providers.aws.test_batch_requests import faults

VALUES = {
    IMAGE: "ami-1",
    SUBNETS: "subnet-1",
    SECURITY_GROUPS: ["sg-1"],
    FILES_ADDRESS: "https://bench.example/f?signed",
}


def ec2_plan(**changes: Any) -> RunPlan:
    return aws_plan(**{"service": "ec2", **changes})


def instances(plan: RunPlan) -> dict[str, Any]:
    """The request for instances, as it is sent."""
    body = render(plan, 1, ACCOUNT).steps[-1].body["run_instances"]
    found: dict[str, Any] = fill(body, VALUES)
    return found


@pytest.mark.parametrize(
    "plan",
    [
        ec2_plan(nodes=1, sku="p3.8xlarge"),
        ec2_plan(nodes=2, sku="g4dn.12xlarge", priority="low-priority"),
        ec2_plan(nodes=2, sku="p2.xlarge", image="me/training:1"),
    ],
    ids=lambda plan: f"{plan.nodes}-{plan.setup.sku}",
)
def test_requests_are_what_aws_takes(plan: RunPlan) -> None:
    assert faults("run_instances", instances(plan)) == ""
    for step in render(plan, 1, ACCOUNT).steps[1:-1]:
        for call, body in step.body.items():
            assert faults(call, body) == ""


def test_all_instances_come_by_one_request_that_can_be_sent_again() -> None:
    request = instances(ec2_plan(nodes=4, id="run"))
    assert (request["MinCount"], request["MaxCount"], request["ClientToken"]) == (4, 4, "run-a1")
    tags = {tag["Key"]: tag["Value"] for tag in request["TagSpecifications"][0]["Tags"]}
    assert (tags[NAME], tags["cloudbench-run"], tags["cloudbench-nodes"]) == ("run-a1", "run", "4")


def test_instances_end_themselves_first_thing_and_take_their_disks_along() -> None:
    request = instances(ec2_plan(timeout_s=600.0))
    assert request["InstanceInitiatedShutdownBehavior"] == "terminate"
    lines = request["UserData"].splitlines()
    assert lines[:2] == ["#!/bin/sh", "shutdown -P +40"]
    assert lines[-1] == "shutdown -P now"
    assert request["BlockDeviceMappings"][0]["Ebs"]["DeleteOnTermination"] is True


def test_spot_instances_are_asked_for_once() -> None:
    options = instances(ec2_plan(priority="low-priority"))["InstanceMarketOptions"]
    assert options["SpotOptions"]["SpotInstanceType"] == "one-time"
    assert "InstanceMarketOptions" not in instances(ec2_plan())


def test_several_nodes_are_near_each_other_and_one_needs_no_group() -> None:
    assert instances(ec2_plan(nodes=2, id="run"))["Placement"] == {"GroupName": "run-a1"}
    assert "Placement" not in instances(ec2_plan(nodes=1))
    assert [step.handle.kind for step in render(ec2_plan(nodes=1), 1, ACCOUNT).steps] == ["files", "instances"]


def test_a_network_is_named_where_one_is_set_or_where_the_fast_network_needs_it() -> None:
    assert {"SubnetId", "SecurityGroupIds", "NetworkInterfaces"}.isdisjoint(instances(ec2_plan()))
    [card] = instances(ec2_plan(nodes=2, sku="g4dn.12xlarge"))["NetworkInterfaces"]
    assert (card["InterfaceType"], card["SubnetId"], card["Groups"]) == ("efa", "subnet-1", ["sg-1"])
    account = msgspec.structs.replace(ACCOUNT, subnets=("subnet-8", "subnet-9"), security_groups=("sg-9",))
    request = render(ec2_plan(), 1, account).steps[-1].body["run_instances"]
    assert (request["SubnetId"], request["SecurityGroupIds"]) == ("subnet-8", ["sg-9"])


def test_what_an_instance_is_told_is_shell_and_python() -> None:
    script = user_data(ec2_plan(image="it's/mine"), ACCOUNT, "local")
    shell = shutil.which("sh")
    assert shell
    assert subprocess.run([shell, "-n"], input=script, text=True, check=False).returncode == 0
    assert len(script) < 16 * 1024


def test_an_ami_of_ones_own_is_taken_as_it_is() -> None:
    account = msgspec.structs.replace(ACCOUNT, image="ami-9")
    assert render(ec2_plan(), 1, account).steps[-1].body["run_instances"]["ImageId"] == "ami-9"


def test_efs_is_mounted_by_the_instance() -> None:
    account = msgspec.structs.replace(ACCOUNT, file_system="fs-1")
    assert "fs-1.efs.us-east-1.amazonaws.com:/" in user_data(ec2_plan(), account, "efs")


@pytest.mark.parametrize(("storage", "told"), [("floppy", "storage floppy"), ("efs", "no file system is set")])
def test_a_storage_that_is_not_there_is_refused(storage: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        render(ec2_plan(storage=storage), 1, ACCOUNT)
