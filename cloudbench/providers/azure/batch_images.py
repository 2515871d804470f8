"""Which machine image the nodes start from: the newest of the HPC images that the service itself lists. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cloudbench.errors import InfrastructureError

_PUBLISHER, _OFFER = "microsoft-dsvm", "ubuntu-hpc"


class MachineImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image as a request names it, and the agent that the service runs in it."""

    reference: dict[str, str]
    node_agent: str


def choose_image(listed: Sequence[Mapping[str, Any]], *, today: str) -> MachineImage:
    """The newest verified `microsoft-dsvm ubuntu-hpc` image that Batch still supports.

    Args:
        listed: the service's supported images.
        today: an ISO date or time; an image whose support ends before is left out.

    Raises:
        InfrastructureError: there is none.
    """
    fitting = [image for image in listed if _fits(image, today)]
    if not fitting:
        raise InfrastructureError(
            f"Batch lists no verified image of {_PUBLISHER} {_OFFER} that it still supports",
            why=f"it lists {len(listed)} images, of which none fits",
        )
    newest = max(fitting, key=lambda image: str(image["imageReference"]["sku"]))
    reference = newest["imageReference"]
    return MachineImage(
        reference={
            "publisher": reference["publisher"],
            "offer": reference["offer"],
            "sku": reference["sku"],
            "version": "latest",
        },
        node_agent=newest["nodeAgentSKUId"],
    )


def _fits(image: Mapping[str, Any], today: str) -> bool:
    reference = image.get("imageReference") or {}
    support_ends = image.get("batchSupportEndOfLife")
    return (
        (str(reference.get("publisher")).lower(), str(reference.get("offer")).lower()) == (_PUBLISHER, _OFFER)
        and str(reference.get("sku")).isdigit()  # others are previews and variants for one kind of machine
        and image.get("verificationType") == "verified"
        and (support_ends is None or str(support_ends) > today)
    )
