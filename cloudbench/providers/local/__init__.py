"""This machine as a provider: nodes are processes, or containers of its Docker engine."""

from __future__ import annotations

import sys
from pathlib import Path

from cloudbench.errors import UsageError, did_you_mean
from cloudbench.providers.local.machine import Machine, find_machine
from cloudbench.providers.local.processes import ProcessService
from cloudbench.providers.local.provider import LocalProvider
from cloudbench.providers.local.service import Service

__all__ = ["LocalProvider", "Machine", "find_machine", "local_provider"]

SERVICES = ("process", "docker")


def local_provider(
    root: Path, *, service: str | None, attached: bool, machine: Machine | None = None, docker_host: str | None = None
) -> LocalProvider:
    """The provider of this machine.

    Args:
        root: the folder of all workspaces, made when it is needed.
        service: `process`, also where it is None, or `docker`.
        attached: nodes that are submitted end within seconds when this process dies.
        machine: what nodes may use; looked for where it is None.
        docker_host: the address of the Docker engine; the Docker client's own settings where it is None.

    Raises:
        UsageError: no such service, or a machine that cannot run nodes.
    """
    if sys.platform == "win32":
        raise UsageError("the local provider needs Linux or macOS", todo="run cloudbench in WSL, or train in a cloud")
    machine = machine or find_machine()
    chosen: Service
    if service in (None, "process"):
        chosen = ProcessService(python=sys.executable, machine=machine, attached=attached)
    elif service == "docker":
        from cloudbench.providers.local.containers import DockerService

        chosen = DockerService(machine=machine, attached=attached, host=docker_host)
    else:
        raise UsageError(
            f"the local provider has no service {service!r}{did_you_mean(service, SERVICES)}",
            todo=" or ".join(f"--service {name}" for name in SERVICES),
        )
    return LocalProvider(root, service=chosen, machine=machine, attached=attached)
