"""What this machine has: GPUs, CPUs and addresses of its own for several nodes."""

from __future__ import annotations

import os
import re
import socket
import subprocess

import msgspec


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One computer, on which all nodes of a local run live.

    `gpus` are the UUIDs of its GPUs, or of their MIG slices where they are partitioned: unlike numbers, they mean the
    same to nvidia-smi, to CUDA and to a container engine. `many_addresses` says that every address of 127.0.0.0/8
    is its own, so that each node can have one.
    """

    gpus: tuple[str, ...] = ()
    cpus: int = 1
    many_addresses: bool = True

    def gpus_of(self, node: int, gpus_per_node: int) -> tuple[str, ...]:
        """The share of one node; fewer than asked for, or none, where the machine has no more."""
        return self.gpus[node * gpus_per_node : (node + 1) * gpus_per_node]

    def address_of(self, node: int) -> str:
        """The address that a node listens on."""
        return f"127.0.1.{node}" if self.many_addresses else "127.0.0.1"


def find_machine() -> Machine:
    """Look at this machine. Where nvidia-smi is missing or fails there is no GPU to train on."""
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        listing = ""
    return Machine(gpus=parse_gpus(listing), cpus=os.cpu_count() or 1, many_addresses=_has_many_addresses())


def parse_gpus(listing: str) -> tuple[str, ...]:
    """The device UUIDs in what `nvidia-smi -L` prints; the slices of a GPU stand for it."""
    gpus: list[list[str]] = []
    for line in listing.splitlines():
        match = re.search(r"\(UUID: ((?:GPU|MIG)-[^)]+)\)", line)
        if match and line.startswith("GPU"):
            gpus.append([match[1]])
        elif match and gpus:
            gpus[-1].append(match[1])
    return tuple(device for whole, *slices in gpus for device in (slices or [whole]))


def _has_many_addresses() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.bind(("127.0.1.0", 0))
        except OSError:
            return False
    return True
