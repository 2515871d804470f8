"""Residual networks for ImageNet (He et al., arXiv:1512.03385), bottleneck blocks.

`v1` halves the image in a block's first 1x1 convolution, `v1.5` in its 3x3 convolution, which costs more and learns
better (the variant that NVIDIA and MLPerf time).
"""

from __future__ import annotations

from typing import Any


def build(network: Any, images: Any, variant: tuple[tuple[int, ...], bool]) -> Any:
    """Add four stages of `variant[0]` blocks each; `variant[1]` is whether the 3x3 convolution carries the stride."""
    depths, stride_on_3x3 = variant
    x = network.conv(images, 64, 7, stride=2)
    x = network.max_pool(x, 3, stride=2, padding="SAME")
    for stage, blocks in enumerate(depths):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _bottleneck(network, x, 64 * 2**stage, stride, stride_on_3x3)
    return network.mean_over_pixels(x)


def _bottleneck(network: Any, x: Any, width: int, stride: int, stride_on_3x3: bool) -> Any:
    channels = 4 * width
    first_stride, middle_stride = (1, stride) if stride_on_3x3 else (stride, 1)
    shortcut = x
    if network.channels(x) != channels:
        shortcut = network.conv(x, channels, 1, stride=stride, relu=False)
    x = network.conv(x, width, 1, stride=first_stride)
    x = network.conv(x, width, 3, stride=middle_stride)
    return network.add_relu(shortcut, network.conv(x, channels, 1, relu=False))
