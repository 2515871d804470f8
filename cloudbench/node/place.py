"""Which node this is among its peers, as plain variables or the cloud's own tell it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cloudbench.node.job import NodeError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAIN_PORT = 29400  # where node 0 listens on a cloud


class Place(NamedTuple):
    """Who this node is among its peers.

    `gpus` are the device ids this node may use: None for all that are found. `main_address` and `main_port` are
    where node 0 listens. `lifeline` is a file that the client holds locked as long as it lives. `pushed` is a file
    that is there once everything that this node wrote is on the share; None where nothing is pushed.
    """

    node: int
    nodes: int
    address: str
    main_address: str
    main_port: int
    secret: bytes
    gpus: tuple[str, ...] | None
    lifeline: Path | None
    pushed: Path | None = None

    def to_environment(self) -> dict[str, str]:
        """The variables from which the node program finds this place again; where the secret lies is not in it."""
        environment = {
            "CLOUDBENCH_NODE_INDEX": str(self.node),
            "CLOUDBENCH_NODE_COUNT": str(self.nodes),
            "CLOUDBENCH_NODE_ADDRESS": self.address,
            "CLOUDBENCH_MAIN_ADDRESS": self.main_address,
            "CLOUDBENCH_MAIN_PORT": str(self.main_port),
        }
        if self.gpus is not None:
            environment["CLOUDBENCH_GPUS"] = ",".join(self.gpus)
        if self.lifeline is not None:
            environment["CLOUDBENCH_LIFELINE"] = str(self.lifeline)
        if self.pushed is not None:
            environment["CLOUDBENCH_PUSHED"] = str(self.pushed)
        return environment


def find_place(environment: Mapping[str, str]) -> Place:
    """Find out who this node is.

    Raises:
        NodeError: nothing tells, or what tells is incomplete.
    """
    for detect in (place_from_variables, place_from_azure_batch, place_from_aws_batch):
        place = detect(environment)
        if place is not None:
            return place
    raise NodeError("nothing tells which node this is: CLOUDBENCH_NODE_INDEX is not set")


def place_from_variables(environment: Mapping[str, str]) -> Place | None:
    """The place that the plain CLOUDBENCH_* variables tell; None where they are not set.

    Raises:
        NodeError: a variable is missing or has no usable value.
    """
    if "CLOUDBENCH_NODE_INDEX" not in environment:
        return None
    try:
        node, nodes = int(environment["CLOUDBENCH_NODE_INDEX"]), int(environment["CLOUDBENCH_NODE_COUNT"])
        address, main_address = environment["CLOUDBENCH_NODE_ADDRESS"], environment["CLOUDBENCH_MAIN_ADDRESS"]
        main_port = int(environment["CLOUDBENCH_MAIN_PORT"])
    except KeyError as error:
        raise NodeError(f"the variable {error.args[0]} is not set") from error
    except ValueError as error:
        raise NodeError(f"a CLOUDBENCH_ variable is not usable: {error}") from error
    if not 0 <= node < nodes:
        raise NodeError(f"CLOUDBENCH_NODE_INDEX is {node}, with {nodes} nodes")
    return _place(environment, node, nodes, address, main_address, main_port)


def place_from_azure_batch(environment: Mapping[str, str]) -> Place | None:
    """The place of a node that runs a task of Azure Batch; None where none does.

    Node 0 is the primary node of a multi-instance task, whose address `AZ_BATCH_MASTER_NODE` tells; that variable's
    port is not ours. The others follow in the order of `AZ_BATCH_HOST_LIST`.

    Raises:
        NodeError: the variables contradict each other, or no address of the list is one of this machine.
    """
    if "AZ_BATCH_TASK_ID" not in environment:
        return None
    listed = [host.strip() for host in environment.get("AZ_BATCH_HOST_LIST", "").split(",") if host.strip()]
    given = environment.get("CLOUDBENCH_NODE_ADDRESS")
    if len(listed) < 2:
        address = given or "127.0.0.1"
        return _place(environment, 0, 1, address, address, MAIN_PORT)
    main = environment.get("AZ_BATCH_MASTER_NODE", "").partition(":")[0]
    if main not in listed:
        raise NodeError(f"AZ_BATCH_MASTER_NODE is {main!r}, which is none of the hosts {', '.join(listed)}")
    hosts = [main, *(host for host in listed if host != main)]
    if environment.get("AZ_BATCH_IS_CURRENT_NODE_MASTER", "").lower() == "true":
        own = main
    else:
        own = given or next((host for host in hosts[1:] if _is_here(host)), "")
    if own not in hosts:
        raise NodeError(f"none of the hosts {', '.join(listed)} is an address of this machine")
    return _place(environment, hosts.index(own), len(hosts), own, main, MAIN_PORT)


def place_from_aws_batch(environment: Mapping[str, str]) -> Place | None:
    """The place of a container that AWS Batch runs; None where this is none.

    Node 0 is the main node of a multi-node job; the others follow in their order. Only they are told its address.

    Raises:
        NodeError: a variable is missing or has no usable value.
    """
    if "AWS_BATCH_JOB_ID" not in environment:
        return None
    given = environment.get("CLOUDBENCH_NODE_ADDRESS")
    try:
        nodes = int(environment.get("AWS_BATCH_JOB_NUM_NODES", "1"))
        if nodes < 2:
            address = given or "127.0.0.1"
            return _place(environment, 0, 1, address, address, MAIN_PORT)
        index = int(environment["AWS_BATCH_JOB_NODE_INDEX"])
        main_index = int(environment["AWS_BATCH_JOB_MAIN_NODE_INDEX"])
        if index == main_index:
            address = main = given or _own_address()
        else:
            main = environment["AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"]
            address = given or _own_address(main)
    except KeyError as error:
        raise NodeError(f"the variable {error.args[0]} is not set") from error
    except ValueError as error:
        raise NodeError(f"an AWS_BATCH_ variable is not usable: {error}") from error
    if not (0 <= index < nodes and 0 <= main_index < nodes):
        raise NodeError(f"AWS_BATCH_JOB_NODE_INDEX is {index} and the main node {main_index}, with {nodes} nodes")
    node = 0 if index == main_index else index + (index < main_index)
    return _place(environment, node, nodes, address, main, MAIN_PORT)


def _place(
    environment: Mapping[str, str], node: int, nodes: int, address: str, main_address: str, main_port: int
) -> Place:
    """The place with what is told in the same way everywhere: the secret, the GPUs, the files to be watched."""
    gpus = environment.get("CLOUDBENCH_GPUS")
    lifeline, pushed = environment.get("CLOUDBENCH_LIFELINE"), environment.get("CLOUDBENCH_PUSHED")
    if "CLOUDBENCH_SECRET_FILE" not in environment:
        raise NodeError("the variable CLOUDBENCH_SECRET_FILE is not set")
    try:
        secret = Path(environment["CLOUDBENCH_SECRET_FILE"]).read_bytes().strip()
    except OSError as error:
        raise NodeError(f"a CLOUDBENCH_ variable is not usable: {error}") from error
    if not secret:
        raise NodeError("the secret file is empty")
    return Place(
        node=node,
        nodes=nodes,
        address=address,
        main_address=main_address,
        main_port=main_port,
        secret=secret,
        gpus=None if gpus is None else tuple(name.strip() for name in gpus.split(",") if name.strip()),
        lifeline=Path(lifeline) if lifeline else None,
        pushed=Path(pushed) if pushed else None,
    )


def _own_address(peer: str = "192.0.2.1") -> str:
    """This machine's address on the way to a peer, by default to anywhere outside. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((peer, MAIN_PORT))
        except OSError as error:
            raise NodeError(f"this machine has no address on the way to {peer}: {error.strerror}") from error
        return str(sock.getsockname()[0])


def _is_here(address: str) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind((address, 0))
        except OSError:
            return False
    return True
