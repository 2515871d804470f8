# ruff: noqa: B905 - zip(strict=) needs Python 3.10, and images with TensorFlow may be older
"""How towers and processes share what they learn: one class per `--variable_update`.

A tower is the copy of the network on one device. Every class answers the same questions: which variables does a tower
use, how does a step's gradients change them, and what must happen before the first and after the last step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from cloudbench.workloads.flags import Flags
from cloudbench.workloads.layers import Variables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Optimizer = Callable[[], Any]  # a new optimizer with state of its own
    Gradients = Sequence[Any]  # one per weight, in the order of Variables.weights

v1 = tf.compat.v1


class Update:
    """One process whose towers keep a copy of the weights each (`replicated`); the other classes vary this one.

    `rank` and `size` count processes, `prefix` is what device names of this process begin with, `target` is the
    address of the session.
    """

    rank = 0
    size = 1
    prefix = ""
    target = ""

    def __init__(self, flags: Flags, kind: str) -> None:
        self.flags = flags
        self.kind = kind
        if flags.job_name:
            self.rank, self.size = flags.task_index, len(flags.worker_hosts)
            self.prefix = f"/job:worker/task:{flags.task_index}"
        self.devices = [f"{self.prefix}/{kind}:{index}" for index in range(flags.num_gpus)]
        self.host = f"{self.prefix}/cpu:0"

    def device_names(self) -> list[str]:
        """The devices of the whole job, as the banner names them."""
        if not self.flags.job_name:
            return [f"/{self.kind}:{index}" for index in range(self.flags.num_gpus)]
        return [
            f"job:worker/replica:0/task{task}/{self.kind}:{index}"
            for task in range(self.size)
            for index in range(self.flags.num_gpus)
        ]

    def configure(self, config: Any) -> None:
        """Change what this update needs in the session's configuration, and start what it talks to."""

    def run_options(self) -> Any:
        """The options with which every step is run."""
        return v1.RunOptions()

    def towers(self) -> list[Variables]:
        """The variables of each tower; towers that share weights get the same object."""
        return [Variables(f"tower{index}/", self.flags.tf_random_seed) for index in range(len(self.devices))]

    def apply(self, towers: list[Variables], gradients: Sequence[Gradients], optimizer: Optimizer) -> Any:
        """The operation that ends a step: exchange the towers' gradients and change the weights by their mean."""
        means = self.exchange(gradients)
        operations = []
        for device, variables, mean in zip(self.devices, towers, means):
            with tf.device(device):
                operations.append(apply_mean(variables, mean, optimizer(), self.flags.weight_decay))
        return tf.group(operations)

    def exchange(self, gradients: Sequence[Gradients]) -> Sequence[Gradients]:
        """Each tower's mean gradients over the whole job."""
        if self.flags.all_reduce_spec:
            return all_reduce(gradients, self.devices, len(self.devices), self.flags.all_reduce_spec)
        mean = self.local_mean(gradients)
        return [mean] * len(gradients)

    def local_mean(self, gradients: Sequence[Gradients]) -> Gradients:
        """The mean over this process's towers; the devices take turns in adding, so that none is the bottleneck."""
        means = []
        for index, parts in enumerate(zip(*gradients)):
            with tf.device(self.devices[index % len(self.devices)]):
                means.append(tf.add_n(parts) / len(parts) if len(parts) > 1 else parts[0])
        return means

    def broadcast(self, towers: list[Variables]) -> Any:
        """The operation that gives all processes the first one's weights."""
        return tf.no_op()

    def initialize(self, session: Any, towers: list[Variables]) -> None:
        """Give every variable its first value."""
        session.run(v1.global_variables_initializer())

    def finish(self, session: Any) -> None:
        """Part from the other processes after the weights were read."""


class LocalParameterServer(Update):
    """One process whose towers share the weights, which are kept on `--local_parameter_device`."""

    def towers(self) -> list[Variables]:
        """The same variables for all towers; on GPUs they are dealt out in turn."""
        where = self.flags.local_parameter_device or self.kind
        places = [self.host] if where == "cpu" else self.devices
        shared = Variables("", self.flags.tf_random_seed, in_turn(places))
        return [shared] * len(self.devices)

    def apply(self, towers: list[Variables], gradients: Sequence[Gradients], optimizer: Optimizer) -> Any:
        """Change the shared weights once, by the mean over the towers."""
        return apply_mean(towers[0], self.local_mean(gradients), optimizer(), self.flags.weight_decay)

    def local_mean(self, gradients: Sequence[Gradients]) -> Gradients:
        """The mean over the towers."""
        return [tf.add_n(parts) / len(parts) if len(parts) > 1 else parts[0] for parts in zip(*gradients)]


class Horovod(Update):
    """One tower in each process; Horovod exchanges the gradients and the first weights."""

    def __init__(self, flags: Flags, kind: str) -> None:
        import horovod.tensorflow as horovod

        super().__init__(flags, kind)
        horovod.init()
        self._horovod = horovod
        self.rank, self.size = horovod.rank(), horovod.size()

    def device_names(self) -> list[str]:
        """One device for each process."""
        return [f"horovod/{self.kind}:{rank}" for rank in range(self.size)]

    def configure(self, config: Any) -> None:
        """Take this rank's GPU where the process sees those of the whole node."""
        visible = len(tf.config.list_physical_devices("GPU"))
        if self.kind == "gpu" and visible > 1:
            config.gpu_options.visible_device_list = str(self._horovod.local_rank() % visible)

    def exchange(self, gradients: Sequence[Gradients]) -> Sequence[Gradients]:
        """Reduce each gradient as soon as it exists; Horovod fuses those that are ready together."""
        average = self._horovod.Average
        return [
            [self._horovod.allreduce(each, op=average, name=f"gradient{index}") for index, each in enumerate(tower)]
            for tower in gradients
        ]

    def broadcast(self, towers: list[Variables]) -> Any:
        """The first rank's weights for all."""
        return self._horovod.broadcast_variables(list(towers[0].weights.values()), root_rank=0)

    def finish(self, session: Any) -> None:
        """Leave together: a rank that goes first would fail the others."""
        self._horovod.shutdown()


class CollectiveAllReduce(Update):
    """Towers with a copy of the weights each, in one process or several; TensorFlow's collectives do the exchange."""

    def configure(self, config: Any) -> None:
        """Start this worker's server; the first worker leads the collectives."""
        config.experimental.collective_nccl = self.kind == "gpu"
        if self.flags.job_name:
            config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
            self.target = start_server(self.flags, config).target
            config.device_filters.append(self.prefix)

    def run_options(self) -> Any:
        """A session runs collectives only under a key of the graph that is the same in all processes."""
        options = v1.RunOptions()
        options.experimental.collective_graph_key = 1
        return options

    def exchange(self, gradients: Sequence[Gradients]) -> Sequence[Gradients]:
        """Each tower takes part with its own gradients."""
        return self._reduce(gradients)

    def broadcast(self, towers: list[Variables]) -> Any:
        """A sum to which the first tower of the first worker alone contributes."""
        source = towers[0] if self.rank == 0 else None
        shares = [
            [weight if tower is source else tf.zeros_like(weight) for weight in tower.weights.values()]
            for tower in towers
        ]
        sums = self._reduce(shares, mean=False, first_key=1001)
        return tf.group(
            [
                weight.assign(total)
                for tower, totals in zip(towers, sums)
                for weight, total in zip(tower.weights.values(), totals)
            ]
        )

    def _reduce(self, tensors: Sequence[Gradients], **options: Any) -> Sequence[Gradients]:
        members = self.size * len(self.devices)
        if members == 1:
            return tensors
        return all_reduce(tensors, self.devices, members, self.flags.all_reduce_spec or "auto", **options)


def all_reduce(
    tensors: Sequence[Gradients],
    devices: Sequence[str],
    members: int,
    hint: str,
    *,
    mean: bool = True,
    first_key: int = 1,
) -> Sequence[Gradients]:
    """Sum (or average) tensors over all members of the job; `tensors[k]` are those of the k-th device here.

    Tensors travel in a few packs, in the order in which the backward pass makes them: a collective for each would pay
    the network's latency a hundred times. Each device launches its packs in the same order everywhere, which NCCL
    needs. `first_key` keeps two calls in one graph apart.
    """
    packs = pack_by_size([tensor.shape.num_elements() for tensor in tensors[0]])
    results = []
    for device, own in zip(devices, tensors):
        reduced: list[Any] = [None] * len(own)
        before: list[Any] = []
        with tf.device(device):
            for number, pack in enumerate(packs):
                flat = tf.concat([tf.reshape(own[index], [-1]) for index in pack], 0)
                with tf.control_dependencies(before):
                    flat = tf.raw_ops.CollectiveReduce(
                        input=flat,
                        group_size=members,
                        group_key=1,
                        instance_key=first_key + number,
                        merge_op="Add",
                        final_op="Div" if mean else "Id",
                        subdiv_offsets=[0],
                        communication_hint=hint,
                    )
                before = [flat]
                parts = tf.split(flat, [own[index].shape.num_elements() for index in pack])
                for index, part in zip(pack, parts):
                    reduced[index] = tf.reshape(part, own[index].shape)
        results.append(reduced)
    return results


def pack_by_size(sizes: Sequence[int], limit: int = 4 * 2**20) -> list[list[int]]:
    """Indices from last to first in packs; a pack is closed once it holds `limit` elements (16 MiB of float32)."""
    packs: list[list[int]] = [[]]
    filled = 0
    for index in reversed(range(len(sizes))):
        if filled >= limit:
            packs.append([])
            filled = 0
        packs[-1].append(index)
        filled += sizes[index]
    return packs


def apply_mean(variables: Variables, mean: Gradients, optimizer: Any, weight_decay: float) -> Any:
    """Change the weights by their mean gradients and by the gradient of their L2 loss."""
    decayed = {id(variable) for variable in variables.decayed} if weight_decay else set()
    pairs = []
    for gradient, variable in zip(mean, variables.weights.values()):
        with tf.device(variable.device):
            total = gradient + weight_decay * variable if id(variable) in decayed else gradient
        pairs.append((total, variable))
    return optimizer.apply_gradients(pairs)


def in_turn(places: Sequence[str]) -> Callable[[Sequence[int]], str]:
    """A function that names the places one after the other, whatever the shape."""
    count = 0

    def place(shape: Sequence[int]) -> str:
        nonlocal count
        count += 1
        return places[(count - 1) % len(places)]

    return place


def start_server(flags: Flags, config: Any) -> Any:
    """This process's server in the cluster that the flags name."""
    jobs = {"worker": list(flags.worker_hosts)}
    if flags.ps_hosts:
        jobs["ps"] = list(flags.ps_hosts)
    return tf.distribute.Server(
        tf.train.ClusterSpec(jobs), job_name=flags.job_name, task_index=flags.task_index, config=config
    )
