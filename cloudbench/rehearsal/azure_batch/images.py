"""The images that the stand-in offers: enough to choose from, and some that must not be chosen."""

from __future__ import annotations

from cloudbench.rehearsal.azure_batch.wire import Body


def _image(publisher: str, offer: str, sku: str, agent: str, **more: object) -> Body:
    return {
        "nodeAgentSKUId": agent,
        "imageReference": {"publisher": publisher, "offer": offer, "sku": sku, "version": "latest"},
        "osType": "linux",
        "capabilities": [],
        "verificationType": "verified",
        **more,
    }


_CONTAINERS = [
    "DockerCompatible",
    "IntelMPIRuntimeInstalled",
    "NvidiaTeslaDriverInstalled",
    "NvidiaGridDriverInstalled",
]

SUPPORTED_IMAGES: list[Body] = [
    _image("canonical", "ubuntu-24_04-lts", "server", "batch.node.ubuntu 24.04"),
    _image("canonical", "0001-com-ubuntu-server-jammy", "22_04-lts", "batch.node.ubuntu 22.04"),
    _image("microsoft-dsvm", "ubuntu-hpc", "2204", "batch.node.ubuntu 22.04", capabilities=_CONTAINERS),
    _image("microsoft-dsvm", "ubuntu-hpc", "2404", "batch.node.ubuntu 24.04", capabilities=_CONTAINERS),
    _image(
        *("microsoft-dsvm", "ubuntu-hpc", "2004", "batch.node.ubuntu 20.04"),
        capabilities=_CONTAINERS,
        batchSupportEndOfLife="2025-04-22T00:00:00Z",
    ),
    _image(
        *("microsoft-dsvm", "ubuntu-hpc", "2604", "batch.node.ubuntu 26.04"),
        capabilities=_CONTAINERS,
        verificationType="unverified",
    ),
]
