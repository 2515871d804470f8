"""TFRecord files in ImageNet's schema: `image/encoded` (JPEG or PNG) and `image/class/label` (1 is the first class).

Label 0 is ImageNet's background; CIFAR-10's ten classes are stored as 0 to 9. Files are named train-*, validation-*.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from cloudbench.workloads.feeds import CHANNELS, BatchSpec
from cloudbench.workloads.flags import UsageError

SHUFFLED_IMAGES = 2048
FILES_AT_A_TIME = 8


def dataset(data_dir: str | None, spec: BatchSpec, *, training: bool, distort: bool, shard: int, shards: int) -> Any:
    """Batches of uint8 images and int64 labels, without end; process `shard` of `shards` reads its own records."""
    pattern = "train-*" if training else "validation-*"
    files = sorted(str(path) for path in Path(data_dir or "").glob(pattern))
    if not files:
        raise UsageError(
            f"--data_dir={data_dir}: no files {pattern} "
            "(python -m cloudbench.workloads.make_tfrecords makes a small set)"
        )
    by_file = len(files) >= shards
    names = tf.data.Dataset.from_tensor_slices(files[shard::shards] if by_file else files)
    if training:
        names = names.shuffle(len(files), seed=spec.seed)
    found = names.interleave(tf.data.TFRecordDataset, cycle_length=FILES_AT_A_TIME, num_parallel_calls=tf.data.AUTOTUNE)
    if not by_file:
        found = found.shard(shards, shard)
    found = found.repeat()
    if training:
        found = found.shuffle(SHUFFLED_IMAGES, seed=spec.seed)
    decoded = found.map(
        lambda record: _decode(record, spec.pixels, distort, spec.seed), num_parallel_calls=tf.data.AUTOTUNE
    )
    return decoded.batch(spec.images, drop_remainder=True)


def example(encoded: bytes, label: int) -> bytes:
    """One serialized record."""
    features = {
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def _decode(record: Any, pixels: int, distort: bool, seed: int) -> tuple[Any, Any]:
    features = tf.io.parse_single_example(
        record,
        {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        },
    )
    image = tf.io.decode_image(features["image/encoded"], CHANNELS, expand_animations=False)
    image = _random_part(image, seed) if distort else _middle(image)
    image = tf.image.resize(image[tf.newaxis], (pixels, pixels))[0]
    if distort:
        image = tf.image.random_flip_left_right(image, seed)
    return tf.cast(tf.clip_by_value(image, 0, 255), tf.uint8), features["image/class/label"]


def _random_part(image: Any, seed: int) -> Any:
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.shape(image),
        tf.zeros((1, 0, 4)),
        seed=seed,
        min_object_covered=0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0),
        use_image_if_no_bounding_boxes=True,
    )
    return tf.slice(image, begin, size)


def _middle(image: Any) -> Any:
    side = tf.minimum(tf.shape(image)[0], tf.shape(image)[1])
    top, left = (tf.shape(image)[0] - side) // 2, (tf.shape(image)[1] - side) // 2
    return image[top : top + side, left : left + side]
