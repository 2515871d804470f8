"""The networks and data sets by name: plain facts, importable without TensorFlow.

A network is written in a module of this package as a function `build(network, images, variant)` that adds its layers
and returns what the last affine layer (the classes) is put upon.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set: `classes` counts ImageNet's background class, as the TFRecord schema does."""

    name: str
    classes: int
    training_images: int
    image_size: int


@dataclasses.dataclass(frozen=True)
class Model:
    """A network. `learning_rate` is for a whole-job batch of `learning_rate_batch` images, or for any where None."""

    module: str
    variant: Any
    batch_size: int
    image_size: int | None
    learning_rate: float
    learning_rate_batch: int | None = None
    datasets: tuple[str, ...] = ("imagenet",)

    def build(self) -> Callable[[Any, Any, Any], Any]:
        """Import the module and return its builder; this imports TensorFlow."""
        builder: Callable[[Any, Any, Any], Any] = importlib.import_module(f"{__name__}.{self.module}").build
        return builder

    def pixels(self, dataset: Dataset) -> int:
        """Height and width of the images that the network takes."""
        return self.image_size or dataset.image_size

    def rate(self, global_batch: int) -> float:
        """The learning rate for a whole job that takes `global_batch` images a step."""
        return self.learning_rate * (global_batch / self.learning_rate_batch if self.learning_rate_batch else 1.0)


DATASETS = {
    "imagenet": Dataset("imagenet", classes=1001, training_images=1281167, image_size=224),
    "cifar10": Dataset("cifar10", classes=10, training_images=50000, image_size=32),
}


def _resnet(depths: tuple[int, ...], *, batch_size: int, stride_on_3x3: bool = False) -> Model:
    return Model("resnet", (depths, stride_on_3x3), batch_size, 224, 0.128, learning_rate_batch=256)


def _cifar_resnet(blocks_per_stage: int) -> Model:
    return Model("cifar_resnet", blocks_per_stage, 128, 32, 0.1, datasets=("cifar10",))


MODELS = {
    "resnet50": _resnet((3, 4, 6, 3), batch_size=64),
    "resnet50_v1.5": _resnet((3, 4, 6, 3), batch_size=64, stride_on_3x3=True),
    "resnet101": _resnet((3, 4, 23, 3), batch_size=32),
    "resnet101_v1.5": _resnet((3, 4, 23, 3), batch_size=32, stride_on_3x3=True),
    "resnet152": _resnet((3, 8, 36, 3), batch_size=32),
    "resnet152_v1.5": _resnet((3, 8, 36, 3), batch_size=32, stride_on_3x3=True),
    "vgg16": Model("vgg", (2, 2, 3, 3, 3), 64, 224, 0.005),
    "inception3": Model("inception", None, 32, 299, 0.005),
    "alexnet": Model("alexnet", None, 512, 227, 0.005),
    "resnet20": _cifar_resnet(3),
    "resnet56": _cifar_resnet(9),
    "trivial": Model("trivial", None, 32, None, 0.005, datasets=("imagenet", "cifar10")),
}
