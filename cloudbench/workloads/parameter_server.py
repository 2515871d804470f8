# ruff: noqa: B905 - zip(strict=) needs Python 3.10, and images with TensorFlow may be older
"""Several processes that share weights kept by parameter servers, in step with each other.

In each step every worker reads the weights, hands its gradients to accumulators beside them, and waits for a token.
The first worker takes the accumulated means once all workers have given theirs, changes the weights and hands out the
tokens. The servers end when every worker has said good-bye.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from cloudbench.workloads import report
from cloudbench.workloads.flags import Flags
from cloudbench.workloads.layers import Variables
from cloudbench.workloads.updates import Update, apply_mean, in_turn, start_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudbench.workloads.updates import Gradients, Optimizer

v1 = tf.compat.v1

NEVER_STALE = 2**62  # workers wait for each other, so a gradient is never of an older step


def serve(flags: Flags) -> int:
    """Be a parameter server until all workers are done."""
    config = v1.ConfigProto(device_count={"GPU": 0})
    server = start_server(flags, config)
    own = f"/job:ps/task:{flags.task_index}"
    config.device_filters.append(own)
    report.say("Running parameter server")
    with tf.Graph().as_default():
        farewell = _queue("farewells", own).dequeue()
        with v1.Session(server.target, config=config) as session:
            for _ in flags.worker_hosts:
                session.run(farewell)
    return 0


class ParameterServer(Update):
    """A worker of this arrangement."""

    def configure(self, config: Any) -> None:
        """Start this worker's server; it sees the parameter servers and itself, not the other workers."""
        self.target = start_server(self.flags, config).target
        config.device_filters.extend(["/job:ps", self.prefix])

    def towers(self) -> list[Variables]:
        """Weights that all towers of all workers share, dealt out to the servers in turn."""
        servers = [f"/job:ps/task:{task}/cpu:0" for task in range(len(self.flags.ps_hosts))]
        shared = Variables("", self.flags.tf_random_seed, in_turn(servers))
        return [shared] * len(self.devices)

    def apply(self, towers: list[Variables], gradients: Sequence[Gradients], optimizer: Optimizer) -> Any:
        """Give this worker's mean gradients, and go on when the first worker has applied everybody's."""
        accumulators, given = [], []
        for index, (gradient, weight) in enumerate(zip(self.local_mean(gradients), towers[0].weights.values())):
            with tf.device(weight.device):
                accumulator = v1.ConditionalAccumulator(
                    gradient.dtype, gradient.shape, shared_name=f"gradient{index}", name=f"gradient{index}"
                )
                given.append(accumulator.apply_grad(gradient, NEVER_STALE))
            accumulators.append(accumulator)
        # One queue for each worker: from a common one a fast worker could take a slow one's token.
        tokens = [_queue(f"tokens{rank}", "/job:ps/task:0") for rank in range(self.size)]
        operations = []
        if self.rank == 0:
            means = [accumulator.take_grad(self.size) for accumulator in accumulators]
            applied = apply_mean(towers[0], means, optimizer(), self.flags.weight_decay)
            with tf.control_dependencies([applied]):
                operations += [each.enqueue(0) for each in tokens]
        with tf.control_dependencies(given):
            operations.append(tokens[self.rank].dequeue())
        return tf.group(operations)

    def initialize(self, session: Any, towers: list[Variables]) -> None:
        """The first worker initializes what is on the servers, every worker what is its own."""
        shared = set(v1.global_variables()) if self.rank == 0 else set()
        own = [each for each in v1.global_variables() if each.device.startswith(self.prefix)]
        started = _queue("started", "/job:ps/task:0")
        session.run(v1.variables_initializer([*shared, *own]))
        if self.rank == 0:
            session.run(started.enqueue_many([[0] * (self.size - 1)]))
        else:
            session.run(started.dequeue())

    def finish(self, session: Any) -> None:
        """Say good-bye to every server; one that has heard all workers may be gone before its answer arrives."""
        for task in range(len(self.flags.ps_hosts)):
            try:
                session.run(_queue("farewells", f"/job:ps/task:{task}").enqueue(0))
            except tf.errors.UnavailableError:
                continue


def _queue(name: str, device: str) -> Any:
    with tf.device(device):
        return tf.queue.FIFOQueue(-1, tf.int32, shapes=[()], shared_name=name, name=name)
