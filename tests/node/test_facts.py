"""The facts of this very machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from cloudbench.node.facts import MissingError, azure_instance, gather, gpu_indexes


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return gather()


def test_machine_is_described(facts: dict[str, Any]) -> None:
    assert facts["kernel"] == os.uname().release
    assert facts["cpu"]["architecture"] == os.uname().machine
    assert facts["cpu"]["usable_cores"] == len(os.sched_getaffinity(0))
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    assert facts["memory"]["total_gib"] == pytest.approx(memory_kib / 2**20, abs=0.01)
    assert "/" in [mount["path"] for mount in facts["mounts"]]


def test_python_that_trains_is_asked_and_imports_nothing(facts: dict[str, Any]) -> None:
    answer = subprocess.run(
        ["python", "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=True
    )
    assert facts["python"]["executable"] == answer.stdout.strip()


def test_versions_are_those_of_that_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    packages = gather()["python"]["packages"]
    for name, version in packages.items():
        try:
            assert version == metadata.version(name)
        except metadata.PackageNotFoundError:
            assert version is None


def test_every_missing_fact_has_its_reason(facts: dict[str, Any]) -> None:
    def nulls(value: Any, path: str) -> list[str]:
        if value is None:
            return [path]
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        return [null for name, item in items for null in nulls(item, f"{path}.{name}".lstrip("."))]

    missing = facts["missing"]
    assert sorted(nulls({**facts, "missing": {}}, "")) == sorted(missing)
    assert all(missing.values())


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine may have GPUs")
def test_machine_without_gpus_says_why_there_are_none(facts: dict[str, Any]) -> None:
    assert facts["gpus"] is None
    assert facts["missing"]["gpus"] == facts["missing"]["gpu_topology"] == "nvidia-smi is not installed"
    assert gpu_indexes() == ()


@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="this machine has no nvidia-smi")
def test_gpus_are_described(facts: dict[str, Any]) -> None:
    assert [gpu["index"] for gpu in facts["gpus"]] == list(gpu_indexes())
    assert all(gpu["name"] and gpu["driver_version"] for gpu in facts["gpus"])
    assert "GPU0" in facts["gpu_topology"]


# What the documentation of Azure's metadata service shows, shortened.
COMPUTE = {
    "location": "westeurope",
    "priority": "Spot",
    "storageProfile": {
        "imageReference": {"offer": "ubuntu-hpc", "publisher": "microsoft-dsvm", "sku": "2204", "version": "latest"}
    },
    "vmSize": "Standard_NC4as_T4_v3",
    "zone": "",
}


@contextlib.contextmanager
def metadata_service(status: int, body: bytes) -> Iterator[str]:
    """The address of a server that answers like the metadata service."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers["Metadata"] == "true" and self.path.startswith(
                "/metadata/instance/compute?api-version="
            )
            self.send_response(status if asked else 400)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_machine_of_azure_tells_its_size_and_what_it_does_not_know() -> None:
    with metadata_service(200, json.dumps(COMPUTE).encode()) as host:
        told = azure_instance(host)
    assert told.pop("zone").reason == "the metadata service does not tell"
    assert told == {
        "size": "Standard_NC4as_T4_v3",
        "region": "westeurope",
        "priority": "Spot",
        "image": "microsoft-dsvm:ubuntu-hpc:2204:latest",
    }


@pytest.mark.parametrize(("status", "body"), [(410, b""), (200, b"[]"), (200, b"<html>")])
def test_metadata_service_that_does_not_tell_is_a_reason(status: int, body: bytes) -> None:
    with metadata_service(status, body) as host, pytest.raises(MissingError, match="the metadata service"):
        azure_instance(host)


def test_network_interfaces_are_named(facts: dict[str, Any]) -> None:
    assert {interface["name"] for interface in facts["network"]} <= {
        path.name for path in Path("/sys/class/net").iterdir()
    }
