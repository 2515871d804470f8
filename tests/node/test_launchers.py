"""From a job and its peers to processes and their environment."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudbench.node.cluster import Peer
from cloudbench.node.job import Job
from cloudbench.node.launchers import Layout, node_environment, processes, rank_gpus, ranks_of, world_size

PEERS = tuple(
    Peer(
        node=node,
        address=f"10.0.0.{node}",
        hostname=f"host-{node}",
        rank_ports=(20000 + 10 * node, 20001 + 10 * node),
        ps_port=20002 + 10 * node,
        master_port=20003 + 10 * node,
        rendezvous_port=20004 + 10 * node,
    )
    for node in range(2)
)


def layout(launcher: str, node: int = 1, gpus: tuple[str, ...] | None = None) -> Layout:
    job = Job(
        run="run-1",
        attempt=2,
        launcher=launcher,
        command="train --batch_size=32",
        prepare=None,
        ranks_per_node=2,
        gpus_per_node=2,
        environment={"LEARNING_RATE": "0.1"},
        deadline_s=100.0,
        peers_timeout_s=10.0,
        grace_s=1.0,
    )
    return Layout(node=node, peers=PEERS, job=job, gpus=gpus, interface="eth7", agent="python -m cloudbench.node rsh")


def test_node_environment_puts_ours_before_what_was_inherited() -> None:
    inherited = {
        "HOME": "/home/me",
        "PYTHONPATH": "/mine",
        "MASTER_ADDR": "elsewhere",
        "CLOUDBENCH_SECRET_FILE": "/run/secret",
        "CLOUDBENCH_LIFELINE": "/run/lifeline",
    }
    environment = node_environment(layout("horovod"), inherited, "/opt/node.pyz")
    assert environment == {
        "HOME": "/home/me",
        "PYTHONPATH": "/opt/node.pyz:/mine",
        "PYTHONUNBUFFERED": "1",
        "CLOUDBENCH_RUN_ID": "run-1",
        "CLOUDBENCH_ATTEMPT": "2",
        "CLOUDBENCH_NODE_INDEX": "1",
        "CLOUDBENCH_NODE_COUNT": "2",
        "CLOUDBENCH_WORLD_SIZE": "4",
        "CLOUDBENCH_LOCAL_SIZE": "2",
        "MASTER_ADDR": "10.0.0.0",
        "MASTER_PORT": "20003",
    }


def test_gpus_are_counted_as_nvidia_smi_counts_them() -> None:
    assert node_environment(layout("horovod", gpus=("1",)), {}, "")["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_python_path_holds_no_empty_entry() -> None:
    assert node_environment(layout("single"), {}, "/opt/node.pyz")["PYTHONPATH"] == "/opt/node.pyz"


@pytest.mark.parametrize("launcher", ["horovod", "tf-config", "parameter-server"])
def test_ranks_are_numbered_over_nodes_and_share_the_gpus(launcher: str) -> None:
    ranks = [process for process in processes(layout(launcher, gpus=("4", "6"))) if process.kind == "rank"]
    assert [(rank.rank, rank.name) for rank in ranks] == [(2, "rank-2"), (3, "rank-3")]
    assert [rank.command for rank in ranks] == [("/bin/sh", "-c", "train --batch_size=32")] * 2
    assert [rank.environment["CLOUDBENCH_RANK"] for rank in ranks] == ["2", "3"]
    assert [rank.environment["CLOUDBENCH_LOCAL_RANK"] for rank in ranks] == ["0", "1"]
    assert [rank.environment["CUDA_VISIBLE_DEVICES"] for rank in ranks] == ["4", "6"]


def test_nothing_is_said_about_gpus_where_there_are_none() -> None:
    for launcher in ("single", "per-node", "horovod", "tf-config", "parameter-server", "mpirun"):
        for process in processes(layout(launcher)):
            assert not {"CUDA_VISIBLE_DEVICES", "CLOUDBENCH_RANK_GPUS"} & set(process.environment)


def test_single_is_one_process_of_the_whole_job_with_all_gpus() -> None:
    (rank,) = processes(layout("single", node=0, gpus=("0", "1")))
    assert (rank.rank, rank.environment["CUDA_VISIBLE_DEVICES"]) == (0, "0,1")
    assert processes(layout("single", node=1)) == []
    assert world_size(2, layout("single").job) == 1


def test_per_node_is_one_process_a_node_with_all_gpus() -> None:
    (rank,) = processes(layout("per-node", gpus=("0", "1")))
    assert (rank.rank, rank.environment["CUDA_VISIBLE_DEVICES"]) == (1, "0,1")
    assert node_environment(layout("per-node"), {}, "")["CLOUDBENCH_LOCAL_SIZE"] == "1"


def test_horovod() -> None:
    first, second = processes(layout("horovod"))
    assert {name: value for name, value in first.environment.items() if name.startswith("HOROVOD_")} == {
        "HOROVOD_RANK": "2",
        "HOROVOD_SIZE": "4",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "2",
        "HOROVOD_CROSS_RANK": "1",
        "HOROVOD_CROSS_SIZE": "2",
        "HOROVOD_HOSTNAME": "10.0.0.1",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_IFACE": "eth7",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.0",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "20004",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "101",
    }
    assert (second.environment["HOROVOD_RANK"], second.environment["HOROVOD_LOCAL_RANK"]) == ("3", "1")


def test_job_may_set_the_timeout_of_gloo() -> None:
    plain = layout("horovod")
    job = plain.job._replace(environment={"HOROVOD_GLOO_TIMEOUT_SECONDS": "7"})
    for process in processes(plain._replace(job=job)):
        assert "HOROVOD_GLOO_TIMEOUT_SECONDS" not in process.environment


def test_tf_config_tells_all_workers_and_the_own_task() -> None:
    workers = ["10.0.0.0:20000", "10.0.0.0:20001", "10.0.0.1:20010", "10.0.0.1:20011"]
    for index, process in enumerate(processes(layout("tf-config")), start=2):
        config = json.loads(process.environment["TF_CONFIG"])
        assert config == {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        assert process.environment["CLOUDBENCH_JOB_NAME"] == "worker"
        assert process.environment["CLOUDBENCH_TASK_INDEX"] == str(index)
        assert process.environment["CLOUDBENCH_WORKER_HOSTS"] == ",".join(workers)
        assert process.environment["CLOUDBENCH_PS_HOSTS"] == ""


def test_parameter_server_adds_one_server_a_node_that_sees_no_gpu() -> None:
    server, *workers = processes(layout("parameter-server", gpus=("0", "1")))
    assert (server.kind, server.name, server.rank) == ("ps", "ps-1", None)
    assert server.environment["CUDA_VISIBLE_DEVICES"] == ""
    assert "CLOUDBENCH_RANK" not in server.environment
    servers = ["10.0.0.0:20002", "10.0.0.1:20012"]
    assert json.loads(server.environment["TF_CONFIG"])["task"] == {"type": "ps", "index": 1}
    for process in (server, *workers):
        assert json.loads(process.environment["TF_CONFIG"])["cluster"]["ps"] == servers
        assert process.environment["CLOUDBENCH_PS_HOSTS"] == ",".join(servers)
    assert [worker.environment["CLOUDBENCH_TASK_INDEX"] for worker in workers] == ["2", "3"]


def test_mpirun_runs_on_node_0_and_starts_all_ranks() -> None:
    assert processes(layout("mpirun", node=1)) == []
    (process,) = processes(layout("mpirun", node=0, gpus=("0", "1")))
    command = list(process.command)
    assert (process.kind, process.rank, command[0]) == ("mpirun", None, "mpirun")
    assert command[command.index("-np") + 1] == "4"
    assert command[command.index("--host") + 1] == "10.0.0.0:2,10.0.0.1:2"
    assert command[command.index("--bind-to") + 1] == "none"
    assert command[command.index("plm_rsh_agent") + 1] == "python -m cloudbench.node rsh"
    assert "train" not in " ".join(command)
    assert process.environment["CLOUDBENCH_COMMAND"] == "train --batch_size=32"
    assert process.environment["CLOUDBENCH_RANK_GPUS"] == "0 1"


@given(st.integers(1, 64), st.integers(1, 64))
def test_gpus_are_shared_evenly_and_none_is_left_over(gpus: int, ranks: int) -> None:
    names = tuple(str(number) for number in range(gpus))
    shares = [rank_gpus(names, rank, ranks).split(",") for rank in range(ranks)]
    assert {name for share in shares for name in share} == set(names)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    if gpus >= ranks:
        assert [name for share in shares for name in share] == list(names)


@given(st.sampled_from(["single", "per-node", "horovod", "mpirun"]), st.integers(1, 9), st.integers(1, 9))
def test_ranks_of_all_nodes_are_the_world(launcher: str, nodes: int, ranks_per_node: int) -> None:
    job = layout(launcher).job._replace(ranks_per_node=ranks_per_node)
    ranks = [rank for node in range(nodes) for rank in ranks_of(node, nodes, job)]
    assert ranks == list(range(world_size(nodes, job)))
