"""Whether the Python that will train has the modules that a template requires."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

from cloudbench.errors import JobFailedError
from cloudbench.providers.base import Problem

# Finds modules without importing them: TensorFlow alone takes seconds. Prints the missing ones as JSON.
LOOK = """\
import importlib.machinery, importlib.util, json, sys

def found(name):
    first, *rest = name.split(".")
    spec = importlib.util.find_spec(first)
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return False
        spec = importlib.machinery.PathFinder.find_spec(spec.name + "." + part, spec.submodule_search_locations)
    return spec is not None

print(json.dumps([name for name in sys.argv[1:] if not found(name)]))
"""

_HOW_TO_INSTALL = {
    "horovod": "make horovod in a checkout; elsewhere, with cmake and g++: HOROVOD_WITH_TENSORFLOW=1 "
    "pip install --no-build-isolation horovod==0.28.1",
    "tensorflow": "pip install 'cloudbench[workloads]'",
    "zmq": "pip install 'cloudbench[workloads]'",
}


def look_for_modules(python: str, modules: Sequence[str]) -> list[str]:
    """The modules that an interpreter of this machine lacks.

    Raises:
        JobFailedError: it does not run.
    """
    if not modules:
        return []
    try:
        result = subprocess.run([python, "-c", LOOK, *modules], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise JobFailedError(f"{python}: does not run", why=str(error)) from error
    return read_missing(result.stdout, where=python)


def read_missing(printed: str, *, where: str) -> list[str]:
    """What `LOOK` printed.

    Raises:
        JobFailedError: something else than an answer.
    """
    try:
        return [str(name) for name in json.loads(printed.splitlines()[-1])]
    except (ValueError, IndexError) as error:
        raise JobFailedError(f"{where}: its Python does not run", why=printed.strip()[-500:] or None) from error


def missing_modules(modules: Sequence[str], *, where: str, todo: str | None = None) -> list[Problem]:
    """One problem for each missing module; `todo` is what helps, where that is not to install it."""
    return [
        Problem(
            severity="error",
            what=f"{module} is not installed",
            why=f"the ranks import it, and {where} does not have it",
            todo=todo or _HOW_TO_INSTALL.get(module.partition(".")[0], f"pip install {module.partition('.')[0]}"),
            exit_code=2,
        )
        for module in modules
    ]
