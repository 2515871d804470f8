"""Almost no network: what remains is the cost of a step itself, of the input and of the exchange."""

from __future__ import annotations

from typing import Any


def build(network: Any, images: Any, variant: None) -> Any:
    """One value per image, widened to 4096."""
    return network.affine(network.affine(network.flatten(images), 1), 4096)
