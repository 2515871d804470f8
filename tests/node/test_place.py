"""Who this node is."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudbench.node.job import NodeError
from cloudbench.node.place import Place, find_place


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    secret = tmp_path / "secret"
    secret.write_text("sesame\n")
    return {
        "CLOUDBENCH_NODE_INDEX": "1",
        "CLOUDBENCH_NODE_COUNT": "2",
        "CLOUDBENCH_NODE_ADDRESS": "10.0.0.1",
        "CLOUDBENCH_MAIN_ADDRESS": "main.example",
        "CLOUDBENCH_MAIN_PORT": "4000",
        "CLOUDBENCH_SECRET_FILE": str(secret),
    }


def test_plain_variables_tell_the_place(variables: dict[str, str]) -> None:
    place = find_place(variables)
    assert (place.node, place.nodes, place.address) == (1, 2, "10.0.0.1")
    assert (place.main_address, place.main_port, place.secret) == ("main.example", 4000, b"sesame")
    assert (place.gpus, place.lifeline) == (None, None)


@pytest.mark.parametrize(("text", "gpus"), [("", ()), ("0", ("0",)), ("2, 3", ("2", "3"))])
def test_gpus_are_none_at_all_or_those_named(variables: dict[str, str], text: str, gpus: tuple[str, ...]) -> None:
    assert find_place({**variables, "CLOUDBENCH_GPUS": text}).gpus == gpus


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CLOUDBENCH_NODE_COUNT", None, "CLOUDBENCH_NODE_COUNT is not set"),
        ("CLOUDBENCH_MAIN_PORT", "http", "not usable"),
        ("CLOUDBENCH_SECRET_FILE", "/nowhere", "not usable"),
        ("CLOUDBENCH_SECRET_FILE", "/dev/null", "the secret file is empty"),
        ("CLOUDBENCH_NODE_INDEX", "2", "is 2, with 2 nodes"),
        ("CLOUDBENCH_NODE_INDEX", None, "nothing tells which node this is"),
    ],
)
def test_what_is_wrong_is_named(variables: dict[str, str], name: str, value: str | None, message: str) -> None:
    changed = {key: text for key, text in {**variables, name: value}.items() if text is not None}
    with pytest.raises(NodeError, match=message):
        find_place(changed)


def test_place_survives_the_way_through_the_environment(variables: dict[str, str]) -> None:
    secret = {"CLOUDBENCH_SECRET_FILE": variables["CLOUDBENCH_SECRET_FILE"]}
    place = find_place(
        {**variables, "CLOUDBENCH_GPUS": "", "CLOUDBENCH_LIFELINE": "/life", "CLOUDBENCH_PUSHED": "/there"}
    )
    assert (place.lifeline, place.pushed) == (Path("/life"), Path("/there"))
    assert find_place({**place.to_environment(), **secret}) == place
    assert "sesame" not in " ".join(place.to_environment().values())


HOSTS = "127.0.0.6,127.0.0.4,127.0.0.5"


def azure(secret: str, *, main: bool, **more: str) -> Place:
    """The place under the variables of a multi-instance task of three nodes."""
    return find_place(
        {
            "AZ_BATCH_TASK_ID": "node",
            "AZ_BATCH_HOST_LIST": HOSTS,
            "AZ_BATCH_MASTER_NODE": "127.0.0.4:6000",
            "AZ_BATCH_IS_CURRENT_NODE_MASTER": str(main).lower(),
            "CLOUDBENCH_SECRET_FILE": secret,
            **more,
        }
    )


def test_primary_node_of_azure_batch_is_node_0_and_the_others_follow_in_their_order(variables: dict[str, str]) -> None:
    secret = variables["CLOUDBENCH_SECRET_FILE"]
    primary = azure(secret, main=True)
    others = [azure(secret, main=False, CLOUDBENCH_NODE_ADDRESS=f"127.0.0.{k}") for k in (6, 5)]
    assert [(place.node, place.nodes, place.address) for place in (primary, *others)] == [
        (0, 3, "127.0.0.4"),
        (1, 3, "127.0.0.6"),
        (2, 3, "127.0.0.5"),
    ]
    assert {(place.main_address, place.main_port) for place in (primary, *others)} == {("127.0.0.4", 29400)}


def test_own_address_is_the_one_that_this_machine_has(variables: dict[str, str]) -> None:
    hosts = "198.51.100.1,198.51.100.2,127.0.0.5"  # the first two are of a network that nobody has
    place = azure(
        variables["CLOUDBENCH_SECRET_FILE"],
        main=False,
        AZ_BATCH_HOST_LIST=hosts,
        AZ_BATCH_MASTER_NODE="198.51.100.1:6000",
    )
    assert (place.node, place.address) == (2, "127.0.0.5")


@pytest.mark.parametrize("hosts", [None, "", "10.0.0.4"])
def test_task_of_one_node_is_alone(variables: dict[str, str], hosts: str | None) -> None:
    environment = {
        "AZ_BATCH_TASK_ID": "node",
        "CLOUDBENCH_SECRET_FILE": variables["CLOUDBENCH_SECRET_FILE"],
        **({} if hosts is None else {"AZ_BATCH_HOST_LIST": hosts}),
    }
    place = find_place(environment)
    assert (place.node, place.nodes, place.address, place.main_address) == (0, 1, "127.0.0.1", "127.0.0.1")
    assert find_place({**environment, "CLOUDBENCH_NODE_ADDRESS": "127.9.9.9"}).address == "127.9.9.9"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("AZ_BATCH_MASTER_NODE", "127.0.0.9:6000", "127.0.0.9', which is none of the hosts"),
        ("AZ_BATCH_HOST_LIST", "127.0.0.4,198.51.100.2", "none of the hosts .* is an address of this machine"),
        ("CLOUDBENCH_NODE_ADDRESS", "10.9.9.9", "none of the hosts .* is an address of this machine"),
    ],
)
def test_hosts_that_do_not_fit_are_named(variables: dict[str, str], variable: str, value: str, message: str) -> None:
    with pytest.raises(NodeError, match=message):
        azure(variables["CLOUDBENCH_SECRET_FILE"], main=False, **{variable: value})


def aws(secret: str, index: int, **more: str) -> Place:
    """The place under the variables of a multi-node job of three nodes whose main node has index 1."""
    main = {} if index == 1 else {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS": "127.0.0.4"}
    return find_place(
        {
            "AWS_BATCH_JOB_ID": "a1b2#0",
            "AWS_BATCH_JOB_NODE_INDEX": str(index),
            "AWS_BATCH_JOB_MAIN_NODE_INDEX": "1",
            "AWS_BATCH_JOB_NUM_NODES": "3",
            "CLOUDBENCH_SECRET_FILE": secret,
            **main,
            **more,
        }
    )


def test_main_node_of_aws_batch_is_node_0_and_the_others_follow_in_their_order(variables: dict[str, str]) -> None:
    secret = variables["CLOUDBENCH_SECRET_FILE"]
    places = [aws(secret, index, CLOUDBENCH_NODE_ADDRESS=f"127.0.0.{index + 3}") for index in (1, 0, 2)]
    assert [(place.node, place.nodes, place.address) for place in places] == [
        (0, 3, "127.0.0.4"),
        (1, 3, "127.0.0.3"),
        (2, 3, "127.0.0.5"),
    ]
    assert {(place.main_address, place.main_port) for place in places} == {("127.0.0.4", 29400)}


def test_node_of_aws_batch_has_the_address_from_which_it_reaches_the_main_node(variables: dict[str, str]) -> None:
    assert aws(variables["CLOUDBENCH_SECRET_FILE"], 2).address == "127.0.0.1"


def test_job_of_aws_batch_with_one_node_is_alone(variables: dict[str, str]) -> None:
    place = find_place({"AWS_BATCH_JOB_ID": "a1b2", "CLOUDBENCH_SECRET_FILE": variables["CLOUDBENCH_SECRET_FILE"]})
    assert (place.node, place.nodes, place.address, place.main_address) == (0, 1, "127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("AWS_BATCH_JOB_NODE_INDEX", "7", "is 7 and the main node 1, with 3 nodes"),
        ("AWS_BATCH_JOB_NUM_NODES", "many", "AWS_BATCH_ variable is not usable"),
    ],
)
def test_aws_variables_that_do_not_fit_are_named(
    variables: dict[str, str], variable: str, value: str, message: str
) -> None:
    with pytest.raises(NodeError, match=message):
        aws(variables["CLOUDBENCH_SECRET_FILE"], 2, **{variable: value})


def test_aws_batch_without_a_main_address_is_named(variables: dict[str, str]) -> None:
    environment = {
        "AWS_BATCH_JOB_ID": "a1b2#0",
        "AWS_BATCH_JOB_NODE_INDEX": "0",
        "AWS_BATCH_JOB_MAIN_NODE_INDEX": "1",
        "AWS_BATCH_JOB_NUM_NODES": "2",
        "CLOUDBENCH_SECRET_FILE": variables["CLOUDBENCH_SECRET_FILE"],
    }
    with pytest.raises(NodeError, match="AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS is not set"):
        find_place(environment)
