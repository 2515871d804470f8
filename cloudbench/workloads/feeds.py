"""Batches made outside TensorFlow: in this process by Python, or in another one that sends them over ZeroMQ.

    python -m cloudbench.workloads.feeds ADDRESS IMAGES PIXELS CLASSES SEED

is the other one: it connects to ADDRESS and pushes messages of two frames, the images' bytes (height, width, channel)
and the labels as 64-bit integers, until its standard input ends. A producer in any language can do the same.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

SENT_BATCHES = 8  # high-water mark on either side
CHANNELS = 3


@dataclasses.dataclass(frozen=True)
class BatchSpec:
    """How large batches are and from which seed they are made. `images` counts images in a batch."""

    images: int
    pixels: int
    classes: int
    seed: int

    @property
    def image_shape(self) -> tuple[int, int, int, int]:
        """(images, height, width, channels)."""
        return (self.images, self.pixels, self.pixels, CHANNELS)

    @property
    def bytes(self) -> int:
        """Bytes of a batch's images, a byte a channel, rounded up to whole 32-bit words."""
        return self.images * self.pixels * self.pixels * CHANNELS


def made_up_batches(spec: BatchSpec) -> Iterator[tuple[Any, Any]]:
    """Random images and labels without end."""
    random = np.random.default_rng(spec.seed)
    while True:
        images = np.frombuffer(random.bytes(spec.bytes), np.uint8).reshape(spec.image_shape)
        yield images, random.integers(0, spec.classes, spec.images, np.int64)


class Receiver:
    """Receives the batches of a producer process, which lives as long as the context."""

    def __init__(self, spec: BatchSpec) -> None:
        self._spec = spec

    def __enter__(self) -> Receiver:
        zmq = _zmq()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PULL)
        self._socket.set_hwm(SENT_BATCHES)
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        spec = self._spec
        numbers = [str(number) for number in (spec.images, spec.pixels, spec.classes, spec.seed)]
        self._producer = subprocess.Popen(
            [sys.executable, "-m", "cloudbench.workloads.feeds", f"tcp://127.0.0.1:{port}", *numbers],
            stdin=subprocess.PIPE,
        )
        return self

    def __exit__(self, *exception: object) -> None:
        self._producer.communicate()  # ends its standard input, and so the producer
        self._context.destroy(linger=0)

    def batches(self) -> Iterator[tuple[Any, Any]]:
        """What arrives, without end."""
        zmq = _zmq()
        try:
            while True:
                images, labels = self._socket.recv_multipart(copy=False)
                yield (
                    np.frombuffer(images.buffer, np.uint8).reshape(self._spec.image_shape),
                    np.frombuffer(labels.buffer, np.int64),
                )
        except zmq.ContextTerminated:
            return


def send(address: str, spec: BatchSpec) -> None:
    """Push batches to the address until standard input ends, which it does when the receiver is gone."""

    def end_with_input() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=end_with_input, daemon=True).start()
    zmq = _zmq()
    socket = zmq.Context().socket(zmq.PUSH)
    socket.set_hwm(SENT_BATCHES)
    socket.connect(address)
    for images, labels in made_up_batches(spec):
        socket.send_multipart([images, labels], copy=False)


def _zmq() -> Any:
    import zmq

    return zmq


if __name__ == "__main__":
    send(sys.argv[1], BatchSpec(*(int(number) for number in sys.argv[2:])))
