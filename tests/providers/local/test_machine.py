from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from cloudbench.providers.local.machine import Machine, find_machine, parse_gpus


def test_every_gpu_is_found_by_its_uuid() -> None:
    listing = "GPU 0: Tesla K80 (UUID: GPU-11111111-aaaa)\nGPU 1: Tesla K80 (UUID: GPU-22222222-bbbb)\n"
    assert parse_gpus(listing) == ("GPU-11111111-aaaa", "GPU-22222222-bbbb")


def test_the_slices_of_a_partitioned_gpu_stand_for_it() -> None:
    listing = (
        "GPU 0: NVIDIA A100 (UUID: GPU-11111111-aaaa)\n"
        "  MIG 3g.20gb     Device  0: (UUID: MIG-33333333-cccc)\n"
        "  MIG 3g.20gb     Device  1: (UUID: MIG-44444444-dddd)\n"
        "GPU 1: NVIDIA A100 (UUID: GPU-22222222-bbbb)\n"
    )
    assert parse_gpus(listing) == ("MIG-33333333-cccc", "MIG-44444444-dddd", "GPU-22222222-bbbb")


@pytest.mark.parametrize("listing", ["", "No devices found.\n", "NVIDIA-SMI has failed because it couldn't talk\n"])
def test_no_gpu_is_no_gpu(listing: str) -> None:
    assert parse_gpus(listing) == ()


def test_gpus_are_divided_among_the_nodes_without_overlap() -> None:
    machine = Machine(gpus=("a", "b", "c", "d"))
    assert [machine.gpus_of(node, 2) for node in range(2)] == [("a", "b"), ("c", "d")]
    assert Machine().gpus_of(1, 2) == ()


def test_each_node_can_listen_on_its_own_address_with_the_same_port() -> None:
    machine = find_machine()
    with socket.create_server((machine.address_of(0), 0)) as first:
        port = first.getsockname()[1]
        if machine.many_addresses:
            with socket.create_server((machine.address_of(1), port)):
                pass
        else:
            assert machine.address_of(1) == "127.0.0.1"


def test_nvidia_smi_is_what_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\n[ \"$1\" = -L ] && echo 'GPU 0: Tesla K80 (UUID: GPU-1)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    machine = find_machine()
    assert machine.gpus == ("GPU-1",)
    assert machine.cpus == os.cpu_count()

    program.write_text("#!/bin/sh\necho 'GPU 0: Tesla K80 (UUID: GPU-1)'; exit 9\n")
    assert find_machine().gpus == ()
