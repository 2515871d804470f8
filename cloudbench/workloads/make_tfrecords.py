"""Makes a small set of TFRecord files to try `--data_dir` with.

    python -m cloudbench.workloads.make_tfrecords --data_name=cifar10 --images=512 FOLDER

Each class has a colour and a pattern of its own under noise, so that a network can learn the set.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np

from cloudbench.workloads.models import DATASETS, Dataset


def main() -> None:
    """Write train-* and validation-* files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data_name", choices=sorted(DATASETS), default="imagenet")
    parser.add_argument("--images", type=int, default=256, help="training images; a quarter as many for validation")
    parser.add_argument("--files", type=int, default=4, help="files for each of the two parts")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(arguments.seed)
    for part, images in (("train", arguments.images), ("validation", max(arguments.images // 4, 1))):
        write(arguments.folder, part, DATASETS[arguments.data_name], images, arguments.files, random)
    print(f"{arguments.images} training images in {arguments.folder}")


def write(folder: Path, part: str, dataset: Dataset, images: int, files: int, random: np.random.Generator) -> None:
    """Write one part: the images dealt out to the files in turn."""
    import tensorflow as tf

    from cloudbench.workloads import records

    paths = [folder / f"{part}-{number:05d}-of-{files:05d}" for number in range(files)]
    writers = [tf.io.TFRecordWriter(str(path)) for path in paths]
    first_class = 1 if dataset.name == "imagenet" else 0
    for index in range(images):
        label = int(random.integers(first_class, dataset.classes))
        pixels = image(label, dataset.image_size, random)
        encoded = tf.io.encode_jpeg(pixels) if dataset.name == "imagenet" else tf.io.encode_png(pixels)
        writers[index % files].write(records.example(encoded.numpy(), label))
    for writer in writers:
        writer.close()


def image(label: int, size: int, random: np.random.Generator) -> Any:
    """A noisy uint8 image of (size, size, 3) whose stripes and colour tell the label."""
    look = np.random.default_rng(label)
    phase = np.arange(size) / size * 2 * np.pi
    stripes = np.add.outer(np.sin(phase * look.integers(1, 9)), np.cos(phase * look.integers(1, 9)))
    clean = 128 + 30 * stripes[:, :, np.newaxis] + look.integers(-40, 40, 3)
    return np.clip(clean + random.normal(0, 12, (size, size, 3)), 0, 255).astype(np.uint8)


if __name__ == "__main__":
    main()
