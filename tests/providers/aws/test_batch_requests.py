"""What is sent to AWS Batch: held against AWS's own description of its requests."""

from __future__ import annotations

import base64
import json
from typing import Any

import botocore.session
import msgspec
import pytest
from botocore import xform_name
from botocore.validate import ParamValidator

from cloudbench.errors import SpecError
from cloudbench.plan import RunPlan
from cloudbench.providers.aws.account import AwsAccount
from cloudbench.providers.aws.batch_requests import A_WEEK_LATER, image_of, memory_mib, render
from cloudbench.providers.aws.requests import FILES_ADDRESS, SECURITY_GROUPS, SUBNETS, fill, size_of
from cloudbench.providers.base import Request
from tests.providers.aws.plans import ACCOUNT, aws_plan

NETWORK = {SUBNETS: ["subnet-1", "subnet-2"], SECURITY_GROUPS: ["sg-1"]}
WITH_EFS = msgspec.structs.replace(ACCOUNT, file_system="fs-1")


def faults(call: str, body: dict[str, Any]) -> str:
    """What AWS's model says against a request."""
    for service in ("batch", "ec2"):
        model = botocore.session.get_session().get_service_model(service)
        names = {xform_name(name): name for name in model.operation_names}
        if call in names:
            return str(
                ParamValidator().validate(body, model.operation_model(names[call]).input_shape).generate_report()
            )
    raise AssertionError(f"AWS has no {call}")


def sent(request: Request) -> dict[str, dict[str, Any]]:
    """Every call with its body, as it is sent."""
    values = {**NETWORK, FILES_ADDRESS: "https://bench.example/files.json?signed"}
    return {call: fill(body, values) for step in request.steps[1:] for call, body in step.body.items()}


@pytest.mark.parametrize(
    "plan",
    [
        aws_plan(nodes=1, sku="p3.8xlarge", gpus_per_node=4),
        aws_plan(nodes=1, sku="g5.xlarge", priority="low-priority"),
        aws_plan(nodes=2, sku="p2.xlarge"),
        aws_plan(nodes=4, sku="p4d.24xlarge", gpus_per_node=8),
        aws_plan(nodes=2, sku="g4dn.12xlarge", storage="efs"),
    ],
    ids=lambda plan: f"{plan.nodes}-{plan.setup.sku}",
)
def test_requests_are_what_aws_takes(plan: RunPlan) -> None:
    for call, body in sent(render(plan, 1, WITH_EFS)).items():
        assert faults(call, body) == "", call


def test_a_plan_gives_the_same_requests_every_time() -> None:
    plan = aws_plan(nodes=2)
    assert msgspec.json.encode(render(plan, 1, ACCOUNT)) == msgspec.json.encode(render(plan, 1, ACCOUNT))


def test_one_node_is_a_container_job_without_a_placement_group() -> None:
    request = render(aws_plan(nodes=1), 1, ACCOUNT)
    kinds = [step.handle.kind for step in request.steps]
    assert kinds == ["files", "launch-template", "compute-environment", "job-queue", "job-definition", "job"]
    definition = sent(request)["register_job_definition"]
    assert definition["type"] == "container"
    assert "nodeProperties" not in definition


def test_several_nodes_are_a_multi_node_job_near_each_other() -> None:
    request = render(aws_plan(nodes=3), 1, ACCOUNT)
    bodies = sent(request)
    properties = bodies["register_job_definition"]["nodeProperties"]
    assert (properties["numNodes"], properties["mainNode"]) == (3, 0)
    assert [item["targetNodes"] for item in properties["nodeRangeProperties"]] == ["0:2"]
    group = bodies["create_placement_group"]
    assert group["Strategy"] == "cluster"
    assert bodies["create_compute_environment"]["computeResources"]["placementGroup"] == group["GroupName"]
    overrides = bodies["submit_job"]["nodeOverrides"]["nodePropertyOverrides"]
    assert [item["targetNodes"] for item in overrides] == ["0:2"]


def test_an_environment_has_no_machine_while_no_job_runs_and_names_its_image_type() -> None:
    resources = sent(render(aws_plan(sku="g5.xlarge"), 1, ACCOUNT))["create_compute_environment"]["computeResources"]
    assert (resources["minvCpus"], resources["desiredvCpus"]) == (0, 0)
    assert resources["ec2Configuration"] == [{"imageType": "ECS_AL2023_NVIDIA"}]
    assert resources["instanceTypes"] == ["g5.xlarge"]


def test_older_gpus_have_the_image_with_the_older_driver() -> None:
    for sku in ("p2.xlarge", "p3dn.24xlarge"):
        environment = sent(render(aws_plan(sku=sku), 1, ACCOUNT))["create_compute_environment"]
        assert environment["computeResources"]["ec2Configuration"] == [{"imageType": "ECS_AL2_NVIDIA"}]


def test_low_priority_is_spot() -> None:
    environment = sent(render(aws_plan(nodes=1, priority="low-priority"), 1, ACCOUNT))["create_compute_environment"]
    assert environment["computeResources"]["type"] == "SPOT"


def test_several_nodes_on_spot_are_refused_with_the_reason_and_the_way_out() -> None:
    with pytest.raises(SpecError, match="not supported on Spot") as refused:
        render(aws_plan(nodes=2, priority="low-priority"), 1, ACCOUNT)
    assert "--service ec2" in str(refused.value.todo)


def test_a_job_leaves_the_machine_memory_of_its_own() -> None:
    for sku, most in (
        ("p2.xlarge", 0.96 * 61 * 1024),
        ("g4dn.xlarge", 15 * 1024),
        ("p4d.24xlarge", 0.96 * 1152 * 1024),
    ):
        assert 0.9 * most < memory_mib(size_of(aws_plan(sku=sku))) <= most


def test_a_job_ends_by_itself_and_is_not_tried_again_by_batch() -> None:
    job = sent(render(aws_plan(timeout_s=600.0), 1, ACCOUNT))["submit_job"]
    assert job["timeout"] == {"attemptDurationSeconds": 900}
    assert job["retryStrategy"] == {"attempts": 1}
    assert sent(render(aws_plan(timeout_s=1.0), 1, ACCOUNT))["submit_job"]["timeout"]["attemptDurationSeconds"] >= 60


def test_a_job_that_cannot_be_placed_is_given_up_by_the_queue() -> None:
    actions = sent(render(aws_plan(), 1, ACCOUNT))["create_job_queue"]["jobStateTimeLimitActions"]
    assert {action["action"] for action in actions} == {"CANCEL"}
    assert len({action["reason"] for action in actions}) == 3


def test_runs_that_want_the_same_share_where_machines_come_from_and_owners_do_not() -> None:
    def names(plan: RunPlan, account: AwsAccount = ACCOUNT) -> set[str]:
        kinds = ("launch-template", "compute-environment", "job-queue")
        return {step.handle.id for step in render(plan, 1, account).steps if step.handle.kind in kinds}

    first = names(aws_plan(command="a"))
    assert first == names(aws_plan(command="b", timeout_s=5.0))
    assert len(first) == 1
    elsewhere = msgspec.structs.replace(ACCOUNT, subnets=("subnet-9",))
    others = [
        names(aws_plan(owner="somebody-else")),
        names(aws_plan(sku="p2.8xlarge")),
        names(aws_plan(nodes=1)),
        names(aws_plan(), elsewhere),
    ]
    assert all(first.isdisjoint(other) for other in others)


def test_nvme_disks_become_one_file_system_where_the_size_has_them() -> None:
    def script(sku: str, **more: Any) -> str:
        data = sent(render(aws_plan(sku=sku, **more), 1, WITH_EFS))["create_launch_template"]["LaunchTemplateData"]
        return base64.b64decode(data.get("UserData", "")).decode()

    assert "mdadm" in script("p3dn.24xlarge")
    assert "mdadm" not in script("p2.xlarge")
    assert "chmod 1777 /mnt/cloudbench" in script("p2.xlarge"), "whoever the container is may write"
    assert script("p3dn.24xlarge", storage="efs") == ""


def test_the_fast_network_is_asked_for_by_several_nodes_of_a_size_that_has_it() -> None:
    def card(**asked: Any) -> list[dict[str, Any]]:
        data = sent(render(aws_plan(**asked), 1, ACCOUNT))["create_launch_template"]["LaunchTemplateData"]
        return data.get("NetworkInterfaces", [])

    assert [one["InterfaceType"] for one in card(nodes=2, sku="p3dn.24xlarge")] == ["efa"]
    assert card(nodes=1, sku="p3dn.24xlarge") == []
    assert card(nodes=2, sku="p2.xlarge") == []


def test_efs_is_mounted_by_the_job_definition() -> None:
    container = sent(render(aws_plan(nodes=1, storage="efs"), 1, WITH_EFS))["register_job_definition"]
    assert container["containerProperties"]["volumes"][0]["efsVolumeConfiguration"]["fileSystemId"] == "fs-1"


@pytest.mark.parametrize(("storage", "told"), [("floppy", "storage floppy"), ("efs", "no file system is set")])
def test_a_storage_that_is_not_there_is_refused(storage: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        render(aws_plan(storage=storage), 1, ACCOUNT)


def test_everything_says_whose_it_is_and_what_is_shared_until_when() -> None:
    plan = aws_plan(nodes=2)
    mark = f'"{plan.owner}"'
    for step in render(plan, 1, ACCOUNT).steps:
        assert mark in json.dumps(step.body), step.handle.kind
        if step.handle.kind not in ("files", "job"):
            assert A_WEEK_LATER in json.dumps(step.body)


def test_no_image_is_needed_in_a_rehearsal_only() -> None:
    assert image_of(aws_plan()) == "cloudbench-cpu"
    assert image_of(aws_plan(rehearsal=False)) is None
    assert image_of(aws_plan(rehearsal=False, image="mine")) == "mine"
