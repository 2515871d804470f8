"""Inception v3 (Szegedy et al., arXiv:1512.00567) without the auxiliary classifier."""

from __future__ import annotations

from typing import Any


def build(network: Any, images: Any, variant: None) -> Any:
    """Add the stem, three groups of modules (35, 17 and 8 pixels wide) and the pooled, thinned output."""
    x = network.conv(images, 32, 3, stride=2, padding="VALID")
    x = network.conv(x, 32, 3, padding="VALID")
    x = network.conv(x, 64, 3)
    x = network.max_pool(x, 3, stride=2)
    x = network.conv(x, 80, 1, padding="VALID")
    x = network.conv(x, 192, 3, padding="VALID")
    x = network.max_pool(x, 3, stride=2)
    for pooled in (32, 64, 64):
        x = _module_35(network, x, pooled)
    x = _reduce_to_17(network, x)
    for width in (128, 160, 160, 192):
        x = _module_17(network, x, width)
    x = _reduce_to_8(network, x)
    for _ in range(2):
        x = _module_8(network, x)
    return network.dropout(network.mean_over_pixels(x), rate=0.2)


def _chain(network: Any, x: Any, *layers: tuple[int, Any]) -> Any:
    for channels, size in layers:
        x = network.conv(x, channels, size)
    return x


def _pooled(network: Any, x: Any, channels: int) -> Any:
    return network.conv(network.average_pool(x, 3, stride=1, padding="SAME"), channels, 1)


def _module_35(network: Any, x: Any, pooled: int) -> Any:
    return network.join(
        _chain(network, x, (64, 1)),
        _chain(network, x, (48, 1), (64, 5)),
        _chain(network, x, (64, 1), (96, 3), (96, 3)),
        _pooled(network, x, pooled),
    )


def _reduce_to_17(network: Any, x: Any) -> Any:
    return network.join(
        network.conv(x, 384, 3, stride=2, padding="VALID"),
        network.conv(_chain(network, x, (64, 1), (96, 3)), 96, 3, stride=2, padding="VALID"),
        network.max_pool(x, 3, stride=2),
    )


def _module_17(network: Any, x: Any, width: int) -> Any:
    across, down = (1, 7), (7, 1)
    return network.join(
        _chain(network, x, (192, 1)),
        _chain(network, x, (width, 1), (width, across), (192, down)),
        _chain(network, x, (width, 1), (width, down), (width, across), (width, down), (192, across)),
        _pooled(network, x, 192),
    )


def _reduce_to_8(network: Any, x: Any) -> Any:
    seven = _chain(network, x, (192, 1), (192, (1, 7)), (192, (7, 1)))
    return network.join(
        network.conv(_chain(network, x, (192, 1)), 320, 3, stride=2, padding="VALID"),
        network.conv(seven, 192, 3, stride=2, padding="VALID"),
        network.max_pool(x, 3, stride=2),
    )


def _module_8(network: Any, x: Any) -> Any:
    middle = _chain(network, x, (384, 1))
    double = _chain(network, x, (448, 1), (384, 3))
    return network.join(
        _chain(network, x, (320, 1)),
        _chain(network, middle, (384, (1, 3))),
        _chain(network, middle, (384, (3, 1))),
        _chain(network, double, (384, (1, 3))),
        _chain(network, double, (384, (3, 1))),
        _pooled(network, x, 192),
    )
