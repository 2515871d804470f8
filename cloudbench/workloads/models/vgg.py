"""VGG (Simonyan and Zisserman, arXiv:1409.1556): 3x3 convolutions with biases, no normalization."""

from __future__ import annotations

from typing import Any


def build(network: Any, images: Any, convolutions: tuple[int, ...]) -> Any:
    """Add one group of convolutions per entry, each group followed by a pooling, then two wide layers."""
    x = images
    for group, count in enumerate(convolutions):
        for _ in range(count):
            x = network.conv(x, min(64 * 2**group, 512), 3, batch_norm=False)
        x = network.max_pool(x, 2, stride=2)
    x = network.flatten(x)
    for _ in range(2):
        x = network.dropout(network.affine(x, 4096))
    return x
