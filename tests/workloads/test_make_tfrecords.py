"""A small set of files is written, and is read again as it was written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workloads.program import train

pytestmark = pytest.mark.tensorflow

READ = """
import json, sys
import tensorflow as tf
from cloudbench.workloads import feeds, records
folder, pixels, classes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
spec = feeds.BatchSpec(images=16, pixels=pixels, classes=classes, seed=1)
found = records.dataset(folder, spec, training=False, distort=False, shard=0, shards=1).take(1)
for images, labels in found:
    print(json.dumps([list(images.shape), images.dtype.name, labels.numpy().tolist(), float(tf.math.reduce_std(
        tf.cast(images, tf.float32)))]))
"""


def make(folder: Path, *flags: str) -> Path:
    command = [sys.executable, "-m", "cloudbench.workloads.make_tfrecords", str(folder), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    ("dataset", "pixels", "classes", "first"), [("cifar10", 32, 10, 0), ("imagenet", 224, 1001, 1)]
)
def test_records_are_read_as_they_were_written(
    tmp_path: Path, dataset: str, pixels: int, classes: int, first: int
) -> None:
    folder = make(tmp_path, f"--data_name={dataset}", "--images=64", "--files=2")
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"{part}-0000{k}-of-00002" for part in ("train", "validation") for k in (0, 1)]
    command = [sys.executable, "-c", READ, str(folder), str(pixels), str(classes)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shape, dtype, labels, deviation = json.loads(done.stdout)
    assert shape == [16, pixels, pixels, 3]
    assert dtype == "uint8"
    assert all(first <= label < classes for label in labels)
    assert len(set(labels)) > 1
    assert deviation > 10


def test_a_network_learns_the_set(tmp_path: Path) -> None:
    folder = make(tmp_path, "--data_name=cifar10", "--images=32")
    flags = (f"--data_dir={folder}", "--nodistortions", "--weight_decay=0", "--batch_size=16", "--display_every=30")
    done = train(*flags, "--num_batches=60", "--learning_rate=0.02")
    assert done.total > 0
    assert done.losses[-1] < 0.7 * done.losses[0]


def test_a_folder_without_records_is_told(tmp_path: Path) -> None:
    done = train(f"--data_dir={tmp_path}")
    assert done.exit_code == 2
    assert "no files train-*" in done.errors
    assert "make_tfrecords" in done.errors
    assert "Traceback" not in done.errors
