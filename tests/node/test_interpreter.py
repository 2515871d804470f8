"""`python` is found, whatever the node has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cloudbench.node.interpreter import path_with_python


def python_of(path: str) -> str:
    script = "import sys; print(sys.prefix)"
    done = subprocess.run(
        ["/bin/sh", "-c", f"python -c '{script}'"], env={"PATH": path}, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="not in a virtual environment")
def test_virtual_environment_comes_first(tmp_path: Path) -> None:
    assert python_of(path_with_python("/usr/bin:/bin", tmp_path)) == sys.prefix
    assert list(tmp_path.iterdir()) == []


def test_python_is_made_where_only_python3_is_there(tmp_path: Path, pyz: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    real = Path(os.path.realpath(sys.executable))
    (bare / "python3").symlink_to(real)
    (tmp_path / "scratch").mkdir()
    script = (
        "import pathlib, sys; from cloudbench.node import interpreter; sys.executable = sys.argv[1];"
        "print(interpreter.path_with_python(sys.argv[2], pathlib.Path(sys.argv[3])))"
    )
    command = [real, "-c", script, bare / "python3", bare, tmp_path / "scratch"]
    done = subprocess.run(command, env={"PYTHONPATH": str(pyz)}, capture_output=True, text=True, check=True)
    path = done.stdout.strip()
    assert path.split(":") == [str(tmp_path / "scratch"), str(bare), str(bare)]
    assert python_of(path)
