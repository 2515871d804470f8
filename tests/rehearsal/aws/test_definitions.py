from __future__ import annotations

import pytest

from cloudbench.rehearsal.aws.definitions import node_containers, overridden, requirements, with_parameters
from cloudbench.rehearsal.aws.wire import AwsError
from tests.rehearsal.aws.conftest import Account, Clients, definition, new_name, refusal


def test_a_definition_shows_its_nodes_and_is_numbered_on(account: Account) -> None:
    batch, name = account.batch, new_name()
    wanted = definition("true", nodes=2)
    for revision in (1, 2, 3):
        made = batch.register_job_definition(jobDefinitionName=name, **wanted)
        assert made["revision"] == revision
        batch.deregister_job_definition(jobDefinition=made["jobDefinitionArn"])
    found = batch.describe_job_definitions(jobDefinitionName=name)["jobDefinitions"]
    assert [item["nodeProperties"]["numNodes"] for item in found] == [2, 2, 2]
    assert {item["status"] for item in found} == {"INACTIVE"}
    assert batch.describe_job_definitions(jobDefinitionName=name, status="ACTIVE")["jobDefinitions"] == []


def test_moto_alone_does_not_show_the_nodes(moto: Clients) -> None:
    name = new_name()
    moto("batch").register_job_definition(jobDefinitionName=name, **definition("true", nodes=2))
    (found,) = moto("batch").describe_job_definitions(jobDefinitionName=name)["jobDefinitions"]
    assert "nodeProperties" not in found


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"timeout": {"attemptDurationSeconds": 30}}, "at least 60"),
        ({"retryStrategy": {"attempts": 11}}, "between 1 and 10"),
    ],
)
def test_what_the_service_does_not_have_is_refused(account: Account, changes: dict[str, object], said: str) -> None:
    call = {"jobDefinitionName": new_name(), **definition("true"), **changes}
    assert said in refusal(lambda: account.batch.register_job_definition(**call))[1]


def test_every_node_must_have_a_container() -> None:
    ranges = [{"targetNodes": "0:1", "container": {"image": "a"}}, {"targetNodes": "2", "container": {"image": "b"}}]
    properties = {"numNodes": 3, "mainNode": 0, "nodeRangeProperties": ranges}
    assert [container["image"] for container in node_containers(properties)] == ["a", "a", "b"]
    with pytest.raises(AwsError, match="each of the 4 nodes"):
        node_containers({**properties, "numNodes": 4})
    with pytest.raises(AwsError, match="mainNode"):
        node_containers({**properties, "mainNode": 3})


def test_a_submission_changes_variables_and_needs_by_name_and_the_rest_as_a_whole() -> None:
    container = {
        "command": ["a"],
        "environment": [{"name": "x", "value": "1"}, {"name": "y", "value": "2"}],
        "resourceRequirements": [{"type": "VCPU", "value": "4"}, {"type": "MEMORY", "value": "8"}],
    }
    changed = overridden(
        container,
        {
            "command": ["b"],
            "environment": [{"name": "y", "value": "3"}],
            "resourceRequirements": [{"type": "GPU", "value": "1"}],
        },
    )
    assert changed["command"] == ["b"]
    assert changed["environment"] == [{"name": "x", "value": "1"}, {"name": "y", "value": "3"}]
    needs = requirements(changed)
    assert (needs.vcpus, needs.memory_mib, needs.gpus) == (4, 8, 1)
    overrides = {"nodePropertyOverrides": [{"targetNodes": "1:", "containerOverrides": {"command": ["c"]}}]}
    ranges = [{"targetNodes": "0:", "container": container}]
    nodes = node_containers({"numNodes": 2, "nodeRangeProperties": ranges}, overrides)
    assert [node["command"] for node in nodes] == [["a"], ["c"]]


def test_a_command_has_the_values_of_its_parameters() -> None:
    assert with_parameters({"command": ["Ref::a", "x-Ref::ab"]}, {"a": "1", "ab": "2"})["command"] == ["1", "x-2"]
