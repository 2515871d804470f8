"""The .pyz: deterministic, complete, and at home on an old Python."""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import cloudbench
from cloudbench.node.bundle import bundle
from tests.node.conftest import NodePrograms

PACKAGE = Path(cloudbench.__file__).parent


def old_python() -> str | None:
    """Python 3.8, from PATH or from pyenv."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = sorted(root.glob("versions/3.8.*/bin/python3.8"))
    return str(installed[0]) if installed else shutil.which("python3.8")


def test_same_sources_give_the_same_bytes_in_another_process() -> None:
    script = "import sys; from cloudbench.node.bundle import bundle; sys.stdout.buffer.write(bundle())"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == bundle()


def test_bundle_holds_node_and_workloads_and_nothing_else() -> None:
    names = set(zipfile.ZipFile(io.BytesIO(bundle())).namelist())
    wanted = {"__main__.py", "cloudbench/__init__.py"}
    for folder in ("node", "workloads"):
        wanted |= {f"cloudbench/{path.relative_to(PACKAGE)}" for path in (PACKAGE / folder).rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == wanted
    assert not [name for name in names if "__pycache__" in name]


def test_facts_run_from_the_bundle_without_the_package(pyz: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-I", pyz, "facts"], cwd=tmp_path, capture_output=True, check=True)
    assert json.loads(done.stdout)["cpu"]["logical_cores"] == os.cpu_count()


def test_wrong_call_is_one_message_and_exit_2(pyz: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    job.write_text("{}")
    command = [sys.executable, pyz, "run", "--job", job, "--out", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "cloudbench-node: the job file has version None, this program reads 1\n"


@pytest.mark.parametrize("path", sorted((PACKAGE / "node").glob("*.py")), ids=lambda path: path.name)
def test_syntax_is_that_of_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))


@pytest.mark.parametrize("launcher", ["tf-config", "horovod", "parameter-server"])
@pytest.mark.skipif(old_python() is None, reason="no Python 3.8 is installed")
def test_two_nodes_run_on_python_3_8(node_programs: Callable[..., NodePrograms], launcher: str) -> None:
    run = node_programs(2, "echo ran; exit $CLOUDBENCH_RANK", launcher=launcher, ranks_per_node=1)
    run.interpreter = str(old_python())
    assert run.start().wait() == {0: 1, 1: 1}
    assert run.text(1, "rank-1.log") == "ran\n"
    assert run.status(0)["failed_rank"] == 1
    assert "missing" in json.loads(run.text(0, "facts.json"))
