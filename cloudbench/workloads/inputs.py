"""Where a step's images come from: the rungs of a ladder from "free" to "real files".

The ladder shows what an input pipeline costs: the same training with `constant` (no input at all), `host` (made by
TensorFlow on the CPU), `queue` and `dataset` (made by Python, fed through a TensorFlow queue or `tf.data`), `zmq`
(made by another process, received over ZeroMQ) and `files` (TFRecords, decoded and distorted).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import tensorflow as tf

from cloudbench.workloads import feeds, records
from cloudbench.workloads.flags import Flags
from cloudbench.workloads.updates import Update

v1 = tf.compat.v1

QUEUED_BATCHES = 8


class Input(Protocol):
    """A source of batches. `operations` run once in every step, beside the training."""

    operations: list[Any]

    def batch(self, tower: int) -> tuple[Any, Any]:
        """The images (in the network's layout and type) and labels of a tower, on the current device."""

    def feeding(self, session: Any) -> contextlib.AbstractContextManager[None]:
        """Keep batches coming while the context lasts."""


def make_input(flags: Flags, update: Update, data_format: str) -> Input:
    """The source that the flags name."""
    if flags.source == "constant":
        return Constant(flags, update, data_format)
    return Staged(flags, update, data_format)


class Constant:
    """One batch for each tower, made once and kept on its device."""

    def __init__(self, flags: Flags, update: Update, data_format: str) -> None:
        self.operations: list[Any] = []
        self._flags = flags
        self._format = data_format
        # Towers are counted through the whole job: two towers see the same images in one process or in two.
        self._seed = flags.tf_random_seed + update.rank * len(update.devices)

    def batch(self, tower: int) -> tuple[Any, Any]:
        """The same batch in every step."""
        flags = self._flags
        pixels = flags.network.pixels(flags.dataset)
        image = (pixels, pixels, 3) if self._format == "NHWC" else (3, pixels, pixels)
        shape, seed = (flags.device_batch, *image), (self._seed + tower, 0)
        images = tf.random.stateless_uniform(shape, seed, -1, 1)
        labels = tf.random.stateless_uniform(shape[:1], seed, 0, flags.dataset.classes, tf.int64)
        return (
            tf.Variable(tf.cast(images, flags.dtype), trainable=False, name=f"images{tower}"),
            tf.Variable(labels, trainable=False, name=f"labels{tower}"),
        )

    def feeding(self, session: Any) -> contextlib.AbstractContextManager[None]:
        """Nothing has to come."""
        return contextlib.nullcontext()


class Staged:
    """Batches of bytes made on the host, brought to each tower's device one step ahead of their use."""

    def __init__(self, flags: Flags, update: Update, data_format: str) -> None:
        self.operations: list[Any] = []
        self._flags = flags
        self._format = data_format
        self._spec = feeds.BatchSpec(
            images=flags.device_batch,
            pixels=flags.network.pixels(flags.dataset),
            classes=flags.dataset.classes,
            seed=flags.tf_random_seed + update.rank,
        )
        with tf.device(update.host):
            self._source = _sources()[flags.source](flags, update, self._spec)

    def batch(self, tower: int) -> tuple[Any, Any]:
        """The batch that the step before has staged; stages the next."""
        name = f"stage{tower}"
        host_images, host_labels = self._source.next()
        self.operations.append(tf.raw_ops.Stage(values=[host_images, host_labels], shared_name=name))
        images, labels = tf.raw_ops.Unstage(dtypes=[tf.uint8, tf.int64], shared_name=name)
        images = tf.reshape(images, self._spec.image_shape)
        if self._format == "NCHW":
            images = tf.transpose(images, (0, 3, 1, 2))
        dtype = tf.as_dtype(self._flags.dtype)
        return tf.cast(images, dtype) / dtype.as_numpy_dtype(127.5) - 1, tf.reshape(labels, (self._spec.images,))

    @contextlib.contextmanager
    def feeding(self, session: Any) -> Iterator[None]:
        """Start the source and stage the first batches."""
        with self._source.feeding(session):
            session.run(self.operations)
            yield


class Pipeline:
    """Batches of a `tf.data` pipeline."""

    def __init__(self, dataset: Any) -> None:
        self._iterator = v1.data.make_initializable_iterator(dataset.prefetch(QUEUED_BATCHES))

    def next(self) -> tuple[Any, Any]:
        """The next images and labels."""
        images, labels = self._iterator.get_next()
        return images, labels

    @contextlib.contextmanager
    def feeding(self, session: Any) -> Iterator[None]:
        """Start the pipeline."""
        session.run(self._iterator.initializer)
        yield


class PythonQueue:
    """A TensorFlow queue that a Python thread keeps filled."""

    def __init__(self, spec: feeds.BatchSpec) -> None:
        self._spec = spec
        self._queue = tf.queue.FIFOQueue(
            QUEUED_BATCHES, [tf.uint8, tf.int64], shapes=[spec.image_shape, (spec.images,)], name="python_queue"
        )
        self._images = v1.placeholder(tf.uint8, spec.image_shape)
        self._labels = v1.placeholder(tf.int64, (spec.images,))
        self._enqueue = self._queue.enqueue((self._images, self._labels))
        self._close = self._queue.close(cancel_pending_enqueues=True)

    def next(self) -> tuple[Any, Any]:
        """The next images and labels."""
        images, labels = self._queue.dequeue()
        return images, labels

    @contextlib.contextmanager
    def feeding(self, session: Any) -> Iterator[None]:
        """Fill the queue from a thread; closing the queue ends the thread."""
        thread = threading.Thread(target=self._fill, args=(session,))
        thread.start()
        try:
            yield
        finally:
            session.run(self._close)
            thread.join()

    def _fill(self, session: Any) -> None:
        for images, labels in feeds.made_up_batches(self._spec):
            try:
                session.run(self._enqueue, {self._images: images, self._labels: labels})
            except tf.errors.CancelledError:
                return


class ZeroMQ:
    """Batches that a process of its own makes and sends over ZeroMQ."""

    def __init__(self, spec: feeds.BatchSpec) -> None:
        self._receiver = feeds.Receiver(spec)
        self._pipeline = Pipeline(_from_generator(self._receiver.batches, spec))

    def next(self) -> tuple[Any, Any]:
        """The next images and labels."""
        return self._pipeline.next()

    @contextlib.contextmanager
    def feeding(self, session: Any) -> Iterator[None]:
        """Start the producer."""
        with self._receiver, self._pipeline.feeding(session):
            yield


def _sources() -> dict[str, Any]:
    return {
        "host": lambda flags, update, spec: Pipeline(_made_by_tensorflow(spec)),
        "queue": lambda flags, update, spec: PythonQueue(spec),
        "dataset": lambda flags, update, spec: Pipeline(_from_generator(lambda: feeds.made_up_batches(spec), spec)),
        "zmq": lambda flags, update, spec: ZeroMQ(spec),
        "files": lambda flags, update, spec: Pipeline(
            records.dataset(
                flags.data_dir,
                spec,
                training=flags.training,
                distort=flags.training and flags.distortions,
                shard=update.rank,
                shards=update.size,
            )
        ),
    }


def _made_by_tensorflow(spec: feeds.BatchSpec) -> Any:
    def make(number: Any) -> tuple[Any, Any]:
        seed = tf.stack([tf.constant(spec.seed, tf.int64), number])
        # One random word gives four bytes of an image.
        words = tf.random.stateless_uniform((spec.bytes // 4,), seed, None, None, tf.int32)
        images = tf.reshape(tf.bitcast(words, tf.uint8), spec.image_shape)
        return images, tf.random.stateless_uniform((spec.images,), seed, 0, spec.classes, tf.int64)

    return tf.data.Dataset.range(2**62).map(make, num_parallel_calls=tf.data.AUTOTUNE)


def _from_generator(generator: Any, spec: feeds.BatchSpec) -> Any:
    signature = (tf.TensorSpec(spec.image_shape, tf.uint8), tf.TensorSpec((spec.images,), tf.int64))
    return tf.data.Dataset.from_generator(generator, output_signature=signature)
