"""Residual networks for CIFAR-10 (He et al., arXiv:1512.03385, section 4.2): 6 n + 2 layers.

Where a stage halves the image, the shortcut is average-pooled and its new channels are zero, so it has no weights.
"""

from __future__ import annotations

from typing import Any


def build(network: Any, images: Any, blocks_per_stage: int) -> Any:
    """Add three stages of 16, 32 and 64 channels."""
    x = network.conv(images, 16, 3)
    for stage in range(3):
        for block in range(blocks_per_stage):
            x = _basic(network, x, 16 * 2**stage, stride=2 if stage > 0 and block == 0 else 1)
    return network.mean_over_pixels(x)


def _basic(network: Any, x: Any, channels: int, stride: int) -> Any:
    shortcut = x
    if stride > 1:
        shortcut = network.widen(network.average_pool(x, stride, stride=stride), channels)
    x = network.conv(x, channels, 3, stride=stride)
    return network.add_relu(shortcut, network.conv(x, channels, 3, relu=False))
