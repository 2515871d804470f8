"""The training program against a bare TensorFlow loop (and the original), as ratios of images/sec.

    python benchmarks/training.py [--rounds 5] [--model resnet50] [--batch-sizes 8,16] [--original CHECKOUT]

The bare loop, written out in this file, is the least that trains the same network: raw operations, one `tf.function`,
SGD with weight decay, moving averages of batch normalization, and nothing around it. All programs train on the same
constant images, NHWC, and run in turn in processes of their own; a ratio is taken within each round, so that a slow
moment of the machine meets all of them. `--original` is a checkout of github.com/tensorflow/benchmarks. Needs
`cloudbench[workloads]`; the original also needs tf-keras of TensorFlow's version (pip install --no-deps).
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TOTAL = re.compile(r"^total images/sec: ([0-9.]+)$", re.MULTILINE)
DEPTHS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3)}
WEIGHT_DECAY = 0.00004


def main() -> None:
    """Run the programs in turn and print each round's ratios and their medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", choices=DEPTHS, default="resnet50")
    parser.add_argument("--batch-sizes", default="8,16")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--original", type=Path, help="checkout of the original program")
    parser.add_argument("--bare-loop", type=int, metavar="BATCH", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bare_loop:
        speed = bare_loop(DEPTHS[arguments.model], arguments.bare_loop, arguments.warm_up, arguments.steps)
        print(f"total images/sec: {speed:.2f}")
        return
    for batch in (int(text) for text in arguments.batch_sizes.split(",")):
        compare(commands(arguments, batch), f"{arguments.model}, batch {batch}", arguments.rounds)


def commands(arguments: argparse.Namespace, batch: int) -> dict[str, list[str]]:
    """The command line of each program; ours and the original's take the same flags."""
    flags = [
        f"--model={arguments.model}",
        f"--batch_size={batch}",
        f"--num_batches={arguments.steps}",
        f"--num_warmup_batches={arguments.warm_up}",
        "--variable_update=replicated",
        "--device=cpu",
        "--data_format=NHWC",
        "--optimizer=sgd",
    ]
    bare = [sys.executable, __file__, f"--bare-loop={batch}", f"--model={arguments.model}"]
    found = {
        "bare loop": [*bare, f"--steps={arguments.steps}", f"--warm-up={arguments.warm_up}"],
        "cloudbench": [sys.executable, "-m", "cloudbench.workloads.tf_cnn_benchmarks", *flags],
        "cloudbench bfloat16": [sys.executable, "-m", "cloudbench.workloads.tf_cnn_benchmarks", *flags, "--use_bf16"],
    }
    if arguments.original:
        script = arguments.original / "scripts" / "tf_cnn_benchmarks" / "tf_cnn_benchmarks.py"
        found["original"] = [sys.executable, str(script), *flags]
    return found


def compare(programs: dict[str, list[str]], title: str, rounds: int) -> None:
    """Run the programs in turn; print images/sec and what cloudbench reaches of each of the others."""
    speeds: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(1, rounds + 1):
        for name, command in programs.items():
            speeds[name].append(images_per_second(command))
        print(f"{title}, round {number}: " + ", ".join(f"{name} {values[-1]:.2f}" for name, values in speeds.items()))
    for name, values in speeds.items():
        if name != "cloudbench":
            ratios = [ours / theirs for ours, theirs in zip(speeds["cloudbench"], values, strict=True)]
            best = max(speeds["cloudbench"]) / max(values)
            spread = f"{min(ratios):.3f} to {max(ratios):.3f}, best against best {best:.3f}"
            print(f"{title}: cloudbench / {name} = {statistics.median(ratios):.3f} ({spread})", flush=True)


def images_per_second(command: list[str]) -> float:
    """The total that the program prints."""
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_USE_LEGACY_KERAS": "1", **os.environ}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    found = TOTAL.search(done.stdout)
    if done.returncode or not found:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return float(found[1])


def bare_loop(depths: tuple[int, ...], batch: int, warm_up: int, steps: int) -> float:
    """Images per second of a hand-written loop over raw operations."""
    import tensorflow as tf

    variables: dict[str, list[Any]] = {"kernels": [], "norms": []}
    averages: list[Any] = []
    images = tf.random.uniform((batch, 224, 224, 3), -1, 1)
    labels = tf.random.uniform((batch,), 0, 1001, tf.int64)

    def kernel(shape: tuple[int, ...]) -> Any:
        deviation = (2 / (shape[0] * shape[1] * shape[2] if len(shape) == 4 else shape[0])) ** 0.5
        variables["kernels"].append(tf.Variable(tf.random.truncated_normal(shape, stddev=deviation)))
        return variables["kernels"][-1]

    def conv(channels: int, filters: int, size: int, stride: int, relu: bool = True) -> Any:
        weights = kernel((size, size, channels, filters))
        scale, offset = tf.Variable(tf.ones(filters)), tf.Variable(tf.zeros(filters))
        mean, variance = (tf.Variable(tf.fill([filters], value), trainable=False) for value in (0.0, 1.0))
        variables["norms"] += [scale, offset]

        def layer(x: Any) -> Any:
            x = tf.nn.conv2d(x, weights, stride, "SAME")
            x, batch_mean, batch_variance, *_ = tf.raw_ops.FusedBatchNormV3(
                x=x, scale=scale, offset=offset, mean=mean, variance=variance, epsilon=1e-5,
                exponential_avg_factor=0.003, is_training=True,
            )  # fmt: skip
            averages.append((mean, batch_mean))
            averages.append((variance, batch_variance))
            return tf.nn.relu(x) if relu else x

        return layer

    stem, blocks, channels = conv(3, 64, 7, 2), [], 64
    for stage, count in enumerate(depths):
        for index in range(count):
            stride, width = (2 if stage and not index else 1), 64 * 2**stage
            shortcut = conv(channels, 4 * width, 1, stride, relu=False) if not index else None
            inner = [
                conv(channels, width, 1, stride),
                conv(width, width, 3, 1),
                conv(width, 4 * width, 1, 1, relu=False),
            ]
            blocks.append((shortcut, inner))
            channels = 4 * width
    classes, bias = kernel((channels, 1001)), tf.Variable(tf.zeros(1001))
    weights = [*variables["kernels"], *variables["norms"], bias]

    @tf.function
    def step() -> Any:
        averages.clear()
        with tf.GradientTape() as tape:
            x = tf.nn.max_pool2d(stem(images), 3, 2, "SAME")
            for shortcut, inner in blocks:
                y = x
                for layer in inner:
                    y = layer(y)
                x = tf.nn.relu(y + (shortcut(x) if shortcut else x))
            logits = tf.reduce_mean(x, (1, 2)) @ classes + bias
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            loss += WEIGHT_DECAY * tf.add_n([tf.nn.l2_loss(each) for each in variables["kernels"]])
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            tf.raw_ops.ResourceApplyGradientDescent(var=weight.handle, alpha=0.004, delta=gradient)
        for average, value in averages:
            average.assign(value)
        return loss

    for _ in range(warm_up):
        step().numpy()
    started = time.perf_counter()
    for _ in range(steps):
        step().numpy()
    return batch * steps / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
