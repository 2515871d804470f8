"""From a job and a node's peers to the processes of this node: pure functions, one a launcher."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudbench.node.cluster import Peer
    from cloudbench.node.job import Job

_PLACE_ONLY = (
    *("CLOUDBENCH_SECRET_FILE", "CLOUDBENCH_LIFELINE", "CLOUDBENCH_PUSHED"),
    *("CLOUDBENCH_MAIN_ADDRESS", "CLOUDBENCH_MAIN_PORT"),
)

# What Open MPI starts in place of a rank: it gives the rank our variables and its own log file. The first rank of a
# node that fails leaves its number and exit code; mpirun does not always say which one it was.
_MPI_RANK = """\
rank=$OMPI_COMM_WORLD_RANK; local=$OMPI_COMM_WORLD_LOCAL_RANK
exec >>"$CLOUDBENCH_LOG_FOLDER/rank-$rank.log" 2>&1
export CLOUDBENCH_RANK="$rank" CLOUDBENCH_LOCAL_RANK="$local"
if [ -n "${CLOUDBENCH_RANK_GPUS+set}" ]; then
  set -- $CLOUDBENCH_RANK_GPUS; shift "$local"; export CUDA_VISIBLE_DEVICES="$1"
fi
/bin/sh -c "$CLOUDBENCH_COMMAND"; code=$?
[ "$code" = 0 ] || (set -C; echo "$rank $code" >"$CLOUDBENCH_MPI_FAILURE") 2>/dev/null
exit "$code"
"""


class Layout(NamedTuple):
    """Everything that decides what runs on one node.

    `gpus` are the device ids of this node, None where nothing is to be said about GPUs. `interface` is the name
    of the network interface that carries the node's address. `agent` is the command with which mpirun reaches
    the other nodes.
    """

    node: int
    peers: tuple[Peer, ...]
    job: Job
    gpus: tuple[str, ...] | None
    interface: str | None
    agent: str


class Process(NamedTuple):
    """One process to start: `kind` is rank, ps or mpirun; `name` is the stem of its log file.

    `environment` is what it gets beside the node's own environment. `rank` is the global rank of a rank.
    """

    kind: str
    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    rank: int | None = None


def ranks_per_node(job: Job) -> int:
    """The number of ranks on a node that has any."""
    return 1 if job.launcher in ("single", "per-node") else job.ranks_per_node


def ranks_of(node: int, nodes: int, job: Job) -> range:
    """The global ranks that run on `node`."""
    if job.launcher == "single":
        return range(1) if node == 0 else range(0)
    count = ranks_per_node(job)
    return range(node * count, (node + 1) * count)


def world_size(nodes: int, job: Job) -> int:
    """The number of ranks of the whole job."""
    return 1 if job.launcher == "single" else nodes * ranks_per_node(job)


def node_environment(layout: Layout, inherited: Mapping[str, str], python_path: str) -> dict[str, str]:
    """The whole environment that every process of this node starts from.

    `inherited` is the node program's own with the job's variables in it; ours go before both. `python_path` is
    put in front of what PYTHONPATH says. What only the node program may know, such as where the secret lies, is
    left out.
    """
    job, main = layout.job, layout.peers[0]
    environment = {name: value for name, value in inherited.items() if name not in _PLACE_ONLY}
    environment.setdefault("PYTHONUNBUFFERED", "1")
    if layout.gpus:
        environment.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # as nvidia-smi counts
    environment["PYTHONPATH"] = ":".join(filter(None, (python_path, environment.get("PYTHONPATH"))))
    environment.update(
        CLOUDBENCH_RUN_ID=job.run,
        CLOUDBENCH_ATTEMPT=str(job.attempt),
        CLOUDBENCH_NODE_INDEX=str(layout.node),
        CLOUDBENCH_NODE_COUNT=str(len(layout.peers)),
        CLOUDBENCH_WORLD_SIZE=str(world_size(len(layout.peers), job)),
        CLOUDBENCH_LOCAL_SIZE=str(ranks_per_node(job)),
        MASTER_ADDR=main.address,
        MASTER_PORT=str(main.master_port),
    )
    return environment


def processes(layout: Layout) -> list[Process]:
    """The processes of this node, in the order in which they start."""
    return LAUNCHERS[layout.job.launcher](layout)


def rank_gpus(gpus: tuple[str, ...], local_rank: int, local_size: int) -> str:
    """The devices of one rank, as CUDA_VISIBLE_DEVICES wants them: an even share, at least one where there are any."""
    first = local_rank * len(gpus) // local_size
    last = max(first + 1, (local_rank + 1) * len(gpus) // local_size)
    return ",".join(gpus[first:last])


def _ranks(layout: Layout) -> list[Process]:
    """The ranks of this node with the variables that all launchers give."""
    found = []
    ranks = ranks_of(layout.node, len(layout.peers), layout.job)
    for local_rank, rank in enumerate(ranks):
        environment = {"CLOUDBENCH_RANK": str(rank), "CLOUDBENCH_LOCAL_RANK": str(local_rank)}
        if layout.gpus is not None:
            environment["CUDA_VISIBLE_DEVICES"] = rank_gpus(layout.gpus, local_rank, len(ranks))
        found.append(Process("rank", f"rank-{rank}", _shell(layout.job.command), environment, rank))
    return found


def _shell(command: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", command)


def _with(process: Process, **more: str) -> Process:
    return process._replace(environment={**process.environment, **more})


def _horovod(layout: Layout) -> list[Process]:
    """Ranks that meet over gloo, through the key-value store of node 0; names and meaning as of Horovod 0.28."""
    main, own = layout.peers[0], layout.peers[layout.node]
    common = {
        "HOROVOD_HOSTNAME": own.address,
        "HOROVOD_SIZE": str(world_size(len(layout.peers), layout.job)),
        "HOROVOD_LOCAL_SIZE": str(layout.job.ranks_per_node),
        "HOROVOD_CROSS_RANK": str(layout.node),
        "HOROVOD_CROSS_SIZE": str(len(layout.peers)),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": main.address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(main.rendezvous_port),
    }
    if layout.interface is not None:
        common["HOROVOD_GLOO_IFACE"] = layout.interface
    if "HOROVOD_GLOO_TIMEOUT_SECONDS" not in layout.job.environment:
        # Horovod gives up on a rank after 30 s; slow imports or a slow first step are no failure, and the
        # deadline ends a job that hangs.
        common["HOROVOD_GLOO_TIMEOUT_SECONDS"] = str(int(layout.job.deadline_s) + 1)
    return [
        _with(
            process,
            HOROVOD_RANK=process.environment["CLOUDBENCH_RANK"],
            HOROVOD_LOCAL_RANK=process.environment["CLOUDBENCH_LOCAL_RANK"],
            **common,
        )
        for process in _ranks(layout)
    ]


def _hosts(layout: Layout) -> tuple[list[str], list[str]]:
    """The host:port of every worker and of every parameter server, in the order of their task index."""
    workers = [f"{peer.address}:{port}" for peer in layout.peers for port in peer.rank_ports]
    return workers, [f"{peer.address}:{peer.ps_port}" for peer in layout.peers]


def _task(workers: list[str], servers: list[str], kind: str, index: int) -> dict[str, str]:
    cluster = {"worker": workers, "ps": servers} if servers else {"worker": workers}
    return {
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}),
        "CLOUDBENCH_JOB_NAME": kind,
        "CLOUDBENCH_TASK_INDEX": str(index),
        "CLOUDBENCH_WORKER_HOSTS": ",".join(workers),
        "CLOUDBENCH_PS_HOSTS": ",".join(servers),
    }


def _workers(layout: Layout, workers: list[str], servers: list[str]) -> list[Process]:
    return [
        _with(process, **_task(workers, servers, "worker", int(process.environment["CLOUDBENCH_RANK"])))
        for process in _ranks(layout)
    ]


def _tf_config(layout: Layout) -> list[Process]:
    """Workers that find each other through TF_CONFIG."""
    return _workers(layout, _hosts(layout)[0], [])


def _parameter_server(layout: Layout) -> list[Process]:
    """One parameter server a node, without GPUs, and the workers."""
    workers, servers = _hosts(layout)
    environment = _task(workers, servers, "ps", layout.node)
    if layout.gpus is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    server = Process("ps", f"ps-{layout.node}", _shell(layout.job.command), environment)
    return [server, *_workers(layout, workers, servers)]


def _mpirun(layout: Layout) -> list[Process]:
    """On node 0 one mpirun, which starts the ranks of all nodes; on the others nothing."""
    if layout.node != 0:
        return []
    slots = layout.job.ranks_per_node
    hosts = ",".join(f"{peer.address}:{slots}" for peer in layout.peers)
    size = str(world_size(len(layout.peers), layout.job))
    command = ["mpirun", "--allow-run-as-root", "-np", size, "--host", hosts]
    command += ["--bind-to", "none", "--map-by", "slot", "--rank-by", "slot", "--leave-session-attached"]
    command += ["--mca", "plm_rsh_agent", layout.agent, "--mca", "plm_rsh_no_tree_spawn", "1"]
    return [Process("mpirun", "mpirun", (*command, *_shell(_MPI_RANK)), mpi_environment(layout))]


def mpi_environment(layout: Layout) -> dict[str, str]:
    """What mpirun and its daemons need beside the node's environment for the ranks they start."""
    environment = {"CLOUDBENCH_COMMAND": layout.job.command}
    if layout.gpus is not None and not layout.gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    elif layout.gpus is not None:
        count = layout.job.ranks_per_node
        environment["CLOUDBENCH_RANK_GPUS"] = " ".join(rank_gpus(layout.gpus, k, count) for k in range(count))
    return environment


LAUNCHERS = {
    "single": _ranks,
    "per-node": _ranks,
    "horovod": _horovod,
    "tf-config": _tf_config,
    "parameter-server": _parameter_server,
    "mpirun": _mpirun,
}
