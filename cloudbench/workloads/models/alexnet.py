"""AlexNet in its one-tower form (Krizhevsky, arXiv:1404.5997)."""

from __future__ import annotations

from typing import Any


def build(network: Any, images: Any, variant: None) -> Any:
    """Add five convolutions and two wide layers."""
    x = network.conv(images, 64, 11, stride=4, padding="VALID", batch_norm=False)
    x = network.max_pool(x, 3, stride=2)
    x = network.conv(x, 192, 5, batch_norm=False)
    x = network.max_pool(x, 3, stride=2)
    for channels in (384, 384, 256):
        x = network.conv(x, channels, 3, batch_norm=False)
    x = network.flatten(network.max_pool(x, 3, stride=2))
    for _ in range(2):
        x = network.dropout(network.affine(x, 4096))
    return x
