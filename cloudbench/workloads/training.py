# ruff: noqa: B905 - zip(strict=) needs Python 3.10, and images with TensorFlow may be older
"""Builds the graph of a step and runs it: warm-up, timed steps, total, digest of the weights."""

from __future__ import annotations

import contextlib
import hashlib
import time
from typing import Any, NamedTuple

import tensorflow as tf

from cloudbench.workloads import report
from cloudbench.workloads.flags import Flags, UsageError
from cloudbench.workloads.inputs import Input, make_input
from cloudbench.workloads.layers import Network, Variables
from cloudbench.workloads.updates import Update

v1 = tf.compat.v1

FLOAT16_LOSS_SCALE = 128.0  # keeps small float16 gradients from vanishing; taken back from the gradients


class Tower(NamedTuple):
    """What one device computes in a step. `values` are the loss and, where asked for, two accuracies."""

    values: list[Any]
    gradients: list[Any]
    statistics_updates: list[Any]


class Step(NamedTuple):
    """One step of the whole process: the values that are its means over towers, and the operation that trains."""

    values: list[Any]
    operation: Any


def resolve_device(flags: Flags) -> str:
    """The kind of device to train on; raises `UsageError` where what was asked for is not there."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    kind = flags.device or ("gpu" if gpus else "cpu")
    if kind == "gpu" and gpus < flags.num_gpus:
        raise UsageError(f"--num_gpus={flags.num_gpus} on GPUs, but TensorFlow sees {gpus}; --device=cpu uses the CPU")
    if kind == "cpu" and flags.data_format == "NCHW":
        raise UsageError("--data_format=NCHW needs a GPU, and TensorFlow sees none")
    if kind == "cpu" and not flags.device:
        report.say("TensorFlow sees no GPU: training on the CPU.")
    return kind


def session_config(flags: Flags, kind: str) -> Any:
    """Threads, devices and XLA as the flags ask."""
    config = v1.ConfigProto(
        allow_soft_placement=True,  # some small operations exist for the CPU only
        intra_op_parallelism_threads=flags.num_intra_threads or 0,
        inter_op_parallelism_threads=flags.num_inter_threads or 0,
    )
    config.device_count["CPU"] = flags.num_gpus if kind == "cpu" else 1
    if kind == "cpu":
        config.device_count["GPU"] = 0
    if flags.xla:
        config.graph_options.optimizer_options.global_jit_level = v1.OptimizerOptions.ON_1
    return config


def run(flags: Flags, update: Update, config: Any) -> int:
    """Train as the flags say and print the report; the exit status is 1 where the towers' weights differ."""
    data_format = flags.data_format or ("NHWC" if update.kind == "cpu" else "NCHW")
    print_banner(flags, update, data_format)
    report.say(f"Generating {'training' if flags.training else 'inference'} model")
    with tf.Graph().as_default():
        v1.set_random_seed(flags.tf_random_seed + update.rank)
        source = make_input(flags, update, data_format)
        towers = update.towers()
        step = build_step(flags, update, source, towers, data_format)
        broadcast = update.broadcast(towers)
        report.say("Initializing graph")
        with v1.Session(update.target, config=config) as session:
            update.initialize(session, towers)
            session.run(broadcast, options=update.run_options())
            with source.feeding(session):
                train(flags, update, session, step)
                same = print_digest(session, towers) if flags.training else True
                update.finish(session)
    return 0 if same else 1


def print_banner(flags: Flags, update: Update, data_format: str) -> None:
    """The banner of this run."""
    global_batch = flags.device_batch * flags.num_gpus * update.size
    made_up = "" if flags.source == "files" else " (synthetic)"
    text = report.banner(
        tensorflow=".".join(tf.__version__.split(".")[:2]),
        model=flags.model,
        dataset=flags.dataset.name + made_up,
        mode="evaluation" if flags.eval else "forward only" if flags.forward_only else "training",
        global_batch=global_batch,
        device_batch=flags.device_batch,
        num_batches=flags.num_batches,
        num_epochs=flags.num_batches * global_batch / flags.dataset.training_images,
        devices=update.device_names(),
        data_format=data_format,
        precision=flags.dtype,
        source=flags.source,
        optimizer=flags.optimizer,
        variables=flags.variable_update,
        all_reduce=flags.all_reduce_spec,
        several_processes=bool(flags.job_name),
    )
    report.say(text)


def build_step(flags: Flags, update: Update, source: Input, variables: list[Variables], data_format: str) -> Step:
    """Add every tower, the exchange and the update of the weights to the graph."""
    towers = []
    for index, device in enumerate(update.devices):
        with tf.device(device):
            images, labels = source.batch(index)
            seed = flags.tf_random_seed + 1000 * (update.rank * flags.num_gpus + index)
            network = Network(
                variables[index],
                data_format=data_format,
                dtype=tf.as_dtype(flags.dtype),
                training=flags.training,
                seed=seed,
            )
            with xla_scope(flags):
                towers.append(build_tower(flags, network, variables[index], images, labels))
    values = [tf.add_n(parts) / len(parts) for parts in zip(*(tower.values for tower in towers))]
    if flags.training and flags.weight_decay:
        values[0] += flags.weight_decay * tf.add_n([tf.nn.l2_loss(weight) for weight in variables[0].decayed])
    operations = list(source.operations)
    if flags.training:
        gradients = [tower.gradients for tower in towers]
        operations.append(update.apply(variables, gradients, lambda: optimizer(flags, update)))
        # Towers that share the moving averages advance them once.
        owners = {id(store): tower for store, tower in zip(reversed(variables), reversed(towers))}
        operations += [each for tower in owners.values() for each in tower.statistics_updates]
    return Step(values, tf.group(operations))


def build_tower(flags: Flags, network: Network, variables: Variables, images: Any, labels: Any) -> Tower:
    """Add the network, its loss and its gradients to the graph of the current device."""
    features = flags.network.build()(network, images, flags.network.variant)
    logits = tf.cast(network.affine(features, flags.dataset.classes, relu=False), tf.float32)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    values = [loss]
    if flags.print_training_accuracy or flags.eval:
        values += [tf.reduce_mean(tf.cast(tf.nn.in_top_k(labels, logits, k), tf.float32)) for k in (1, 5)]
    if not flags.training:
        return Tower(values, [], [])
    scale = FLOAT16_LOSS_SCALE if flags.use_fp16 else 1.0
    weights = list(variables.weights.values())
    gradients = tf.gradients(loss if scale == 1.0 else loss * scale, weights)
    if scale != 1.0:
        gradients = [gradient / scale for gradient in gradients]
    return Tower(values, gradients, network.statistics_updates)


def xla_scope(flags: Flags) -> Any:
    """Where `--xla_compile` is given, a scope whose operations (and their gradients) XLA compiles."""
    return tf.xla.experimental.jit_scope() if flags.xla_compile else contextlib.nullcontext()


def optimizer(flags: Flags, update: Update) -> Any:
    """A new optimizer with the chosen rule and learning rate."""
    global_batch = flags.device_batch * flags.num_gpus * update.size
    rate = flags.learning_rate if flags.learning_rate is not None else flags.network.rate(global_batch)
    if flags.optimizer == "momentum":
        return v1.train.MomentumOptimizer(rate, flags.momentum)
    if flags.optimizer == "rmsprop":
        return v1.train.RMSPropOptimizer(rate, momentum=flags.momentum, epsilon=1.0)
    if flags.optimizer == "adam":
        return v1.train.AdamOptimizer(rate)
    return v1.train.GradientDescentOptimizer(rate)


def train(flags: Flags, update: Update, session: Any, step: Step) -> None:
    """Run the warm-up and the timed steps and print their lines."""
    call = session.make_callable([*step.values, step.operation], accept_options=True)
    options = update.run_options()

    def one_step() -> list[float]:
        *values, _ = call(options=options, run_metadata=None)
        return [float(value) for value in values]

    report.say("Running warm up")
    for _ in range(flags.num_warmup_batches):
        one_step()
    report.say("Done warm up")
    images = flags.device_batch * flags.num_gpus
    if not flags.eval:
        report.say(report.header(len(step.values) > 1))
    seconds: list[float] = []
    accuracies = [0.0, 0.0]
    before = time.perf_counter()
    for number in range(1, flags.num_batches + 1):
        values = one_step()
        now = time.perf_counter()
        seconds.append(now - before)
        before = now
        if flags.eval:
            accuracies = [total + value for total, value in zip(accuracies, values[1:])]
        if number == 1 or number % flags.display_every == 0:
            line = report.evaluation_line if flags.eval else report.step_line
            report.say(line(number, images, seconds, values))
    if flags.eval:
        means = [total / flags.num_batches for total in accuracies]
        report.say(report.accuracy(means, images * flags.num_batches))
    report.say(report.total(update.size * report.speed(images, seconds)[0]))


def print_digest(session: Any, towers: list[Variables]) -> bool:
    """Print the SHA-256 of the trainable weights; whether those of all towers here are the same."""
    digests = []
    for variables in {id(variables): variables for variables in towers}.values():
        digest = hashlib.sha256()
        for weight in session.run(list(variables.weights.values())):
            digest.update(weight.tobytes())
        digests.append(digest.hexdigest())
    report.say(f"weights sha256: {digests[0]}")
    return len(set(digests)) == 1
