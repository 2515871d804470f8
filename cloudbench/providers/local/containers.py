"""The service `docker`: each node is a container of this machine's engine, on a network of the run's own.

A container removes itself when its node program ends, and the node program ends when no client holds the lifeline:
nothing stays behind a client that was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from cloudbench.errors import InfrastructureError, UsageError
from cloudbench.plan import RunPlan
from cloudbench.providers.base import Problem, Step
from cloudbench.providers.local.machine import Machine
from cloudbench.providers.local.modules import LOOK, missing_modules, read_missing
from cloudbench.providers.local.service import ServiceLostError
from cloudbench.providers.local.workspace import Workspace, attempt_handle, node_command, node_environment
from cloudbench.run import Handle

if TYPE_CHECKING:
    from docker import DockerClient

_FOLDER = "/cloudbench"
_MAIN_PORT = "29400"
_SHM_SIZE = "2g"  # NCCL and input pipelines share memory there; an engine's own 64 MB is too little for them
_TIMEOUT_S = 30
_PAUSES_S = (0.5, 1.5)
_REMOVAL_PATIENCE_S = 10.0

OWNER, RUN, ATTEMPT, NODE = "cloudbench.owner", "cloudbench.run", "cloudbench.attempt", "cloudbench.node"


class DockerService:
    """Nodes as containers. `host` is the engine's address; the Docker client's own settings hold where it is None."""

    name = "docker"

    def __init__(self, *, machine: Machine, attached: bool, host: str | None = None) -> None:
        self._machine = machine
        self._attached = attached
        self._host = host
        self._user = f"{os.getuid()}:{os.getgid()}"

    def steps(self, plan: RunPlan, workspace: Workspace) -> tuple[Step, ...]:
        """The network, then the containers."""
        labels = {OWNER: plan.owner, RUN: plan.id, ATTEMPT: str(workspace.attempt)}
        network = Step(
            action="make a network",
            handle=workspace.handle(self.name, "network"),
            body={"name": workspace.name, "driver": "bridge", "labels": labels, "image": self._image(plan)},
        )
        containers = [self._container(plan, workspace, node, labels) for node in range(plan.nodes)]
        handle = workspace.handle(self.name, "containers")
        return (network, Step(action="start the containers", handle=handle, body={"containers": containers}))

    def check(self, plan: RunPlan) -> list[Problem]:
        """Whether the engine answers, has the image or can get it, and the image has what the ranks import."""
        image = self._image(plan)
        with self._engine() as client:
            import docker

            if _has_image(client, image):
                missing = self._missing_modules(client, plan, image)
                todo = "take an image that has it; the project's own: docker build --file containers/cpu.Dockerfile"
                return missing_modules(missing, where=f"image {image}", todo=f"{todo} --tag cloudbench-cpu .")
            try:
                client.images.get_registry_data(image)
            except docker.errors.APIError as error:
                build = "docker build --file containers/cpu.Dockerfile --tag cloudbench-cpu ."
                return [
                    Problem(
                        severity="error",
                        what=f"image {image} is not on this machine and cannot be pulled",
                        why=error.explanation,
                        todo=f"{build} in a checkout of cloudbench, or --image NAME",
                        exit_code=2,
                    )
                ]
        what = f"image {image} is pulled first; whether it has {', '.join(plan.requires) or 'Python'} shows then"
        return [Problem(severity="warning", what=what)]

    def make(self, step: Step) -> None:
        """Pull the image where it is missing, and make the network."""
        body = step.body
        with self._engine() as client:
            if not _has_image(client, body["image"]):
                client.images.pull(body["image"])
            found = [network for network in client.networks.list(names=[body["name"]]) if network.name == body["name"]]
            for network in found:
                _refuse_others(network.attrs.get("Labels"), body["labels"], f"network {body['name']}")
            if not found:
                client.networks.create(body["name"], driver=body["driver"], labels=body["labels"])

    def start(self, step: Step, workspace: Workspace, nodes: Collection[int]) -> None:
        """Make and start the containers; one that a client made and did not come to start is started."""
        import docker

        with self._engine() as client:
            for node in nodes:
                body = step.body["containers"][node]
                try:
                    container = client.containers.create(**body)
                except docker.errors.APIError as error:
                    if error.status_code != 409:
                        raise
                    container = client.containers.get(body["name"])
                    _refuse_others(container.labels, body["labels"], f"container {body['name']}")
                container.start()

    def alive(self, workspaces: Sequence[Workspace]) -> dict[Workspace, set[int]]:
        """The nodes whose containers run, from one listing."""
        listing = self._listing(patient=any(workspace.ending is None for workspace in workspaces))
        return {
            workspace: {
                int(item["Labels"][NODE])
                for item in _of(listing, workspace)
                if NODE in item["Labels"] and item["State"] in ("running", "paused", "restarting")
            }
            for workspace in workspaces
        }

    def signal(self, workspace: Workspace, number: signal.Signals) -> None:
        """Send the signal to each container's node program; SIGKILL takes everything in it along."""
        import docker

        with self._engine() as client:
            for item in _of(_containers(client), workspace):
                with contextlib.suppress(docker.errors.NotFound):
                    try:
                        client.api.kill(item["Id"], signal=number.name)
                    except docker.errors.APIError as error:
                        if error.status_code != 409:  # not running
                            raise

    def release(self, handle: Handle, workspace: Workspace) -> bool:
        """Remove the containers or the network; True once the engine lists them no more."""
        with self._engine() as client:
            if handle.kind == "network":
                return _remove_network(client, workspace)
            deadline = time.monotonic() + _REMOVAL_PATIENCE_S
            while left := _of(_containers(client), workspace):
                if time.monotonic() > deadline:
                    return False
                for item in left:
                    _remove_container(client, item["Id"])
            return True

    def find(self, owner: str, workspaces: Sequence[Workspace]) -> Iterator[Handle]:
        """The networks and containers with the owner's label."""
        with self._engine() as client:
            mark = {"label": [f"{OWNER}={owner}", RUN]}
            networks = [network.attrs["Labels"] for network in client.networks.list(filters=mark)]
            containers = [item["Labels"] for item in client.api.containers(all=True, filters=mark)]
        for kind, labels in (("network", networks), ("containers", containers)):
            for run, attempt in sorted({(item[RUN], int(item[ATTEMPT])) for item in labels}):
                yield attempt_handle(self.name, kind, run, attempt)

    def _image(self, plan: RunPlan) -> str:
        return plan.image or ("cloudbench-gpu" if self._machine.gpus else "cloudbench-cpu")

    def _container(self, plan: RunPlan, workspace: Workspace, node: int, labels: Mapping[str, str]) -> dict[str, Any]:
        """The arguments with which the Docker client makes one node."""
        name = f"{workspace.name}-node-{node}"
        gpus = self._machine.gpus_of(node, plan.gpus_per_node)
        environment = node_environment(
            plan,
            workspace.attempt,
            node,
            folder=_FOLDER,
            address=name,
            main_address=f"{workspace.name}-node-0",
            main_port=_MAIN_PORT,
            gpus=None if gpus else (),  # a container sees no GPUs but its own
            attached=self._attached,
        )
        shell, *arguments = node_command("python3", _FOLDER, node)
        return {
            "image": self._image(plan),
            "name": name,
            "hostname": name,
            "entrypoint": [shell],
            "command": arguments,
            # A user id without a name in the image: programs that ask for a home or a name find one.
            "environment": {**environment, "HOME": "/tmp", "USER": "cloudbench"},  # noqa: S108 - the container's own
            "labels": {**labels, NODE: str(node)},
            "network": workspace.name,
            "volumes": {str(workspace.folder): {"bind": _FOLDER, "mode": "rw"}},
            "user": self._user,
            "init": True,
            "auto_remove": True,
            "shm_size": _SHM_SIZE,
            "device_requests": [{"device_ids": list(gpus), "capabilities": [["gpu"]]}] if gpus else None,
        }

    def _missing_modules(self, client: DockerClient, plan: RunPlan, image: str) -> list[str]:
        """Ask the image's own Python, in a container that is gone afterwards, also where this client is killed."""
        if not plan.requires:
            return []
        container = client.containers.create(
            image,
            entrypoint=["sleep", str(_TIMEOUT_S)],
            labels={OWNER: plan.owner},
            network_mode="none",
            auto_remove=True,
        )
        try:
            container.start()
            printed = cast(bytes, container.exec_run(["python3", "-c", LOOK, *plan.requires]).output)
        finally:
            _remove_container(client, str(container.id))
        return read_missing(printed.decode("utf-8", "replace"), where=f"image {image}")

    def _listing(self, *, patient: bool) -> list[dict[str, Any]]:
        """All containers of any run. An engine that does not answer is asked again, where there is patience."""
        for pause_s in _PAUSES_S if patient else ():
            with contextlib.suppress(ServiceLostError), self._engine() as client:
                return _containers(client)
            time.sleep(pause_s)
        with self._engine() as client:
            return _containers(client)

    @contextlib.contextmanager
    def _engine(self) -> Iterator[DockerClient]:
        """A client of the engine; what it raises is translated here.

        Raises:
            UsageError: the Python package is missing.
            ServiceLostError: the engine does not answer.
            InfrastructureError: it refused.
        """
        try:
            import docker
            import requests
            from docker import constants, utils
        except ImportError as error:
            raise UsageError(
                "the service docker needs a Python package that is not installed",
                why=str(error),
                todo="pip install 'cloudbench[docker]'",
            ) from error
        try:
            settings = {"base_url": self._host} if self._host else utils.kwargs_from_env()
            _try_socket(settings.get("base_url") or constants.DEFAULT_UNIX_SOCKET)
            with contextlib.closing(docker.DockerClient(timeout=_TIMEOUT_S, **settings)) as client:
                yield client
        except docker.errors.APIError as error:
            raise InfrastructureError("the Docker engine refused", why=error.explanation or str(error)) from error
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            raise ServiceLostError(
                "the Docker engine does not answer",
                why=str(error),
                todo="start it (systemctl start docker), or set DOCKER_HOST; --service process needs none",
            ) from error


def _try_socket(address: str) -> None:
    """Raise an OSError where nobody listens: the docker package does not close a socket that it cannot connect."""
    scheme, _, path = address.partition("://")
    if scheme in ("unix", "http+unix"):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)


def _containers(client: DockerClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.api.containers(all=True, filters={"label": RUN})
    return found


def _of(listing: Sequence[dict[str, Any]], workspace: Workspace) -> list[dict[str, Any]]:
    return [item for item in listing if _belongs(item["Labels"], workspace)]


def _belongs(labels: Mapping[str, str] | None, workspace: Workspace) -> bool:
    """Whether something is of this attempt, and of its owner as far as the workspace still tells."""
    record = workspace.record
    mark = {RUN: workspace.run, ATTEMPT: str(workspace.attempt), **({OWNER: record.owner} if record else {})}
    return mark.items() <= (labels or {}).items()


def _refuse_others(found: Mapping[str, str] | None, ours: Mapping[str, str], what: str) -> None:
    if not ours.items() <= (found or {}).items():
        raise UsageError(
            f"{what} is there already and belongs to somebody else",
            why=f"its label {OWNER} is {(found or {}).get(OWNER)!r}, not {ours[OWNER]!r}",
            todo="remove it if nobody needs it, then submit again",
        )


def _has_image(client: DockerClient, image: str) -> bool:
    import docker

    try:
        client.images.get(image)
    except docker.errors.ImageNotFound:
        return False
    return True


def _remove_network(client: DockerClient, workspace: Workspace) -> bool:
    import docker

    def ours() -> list[Any]:
        networks = client.networks.list(names=[workspace.name])
        return [item for item in networks if item.name == workspace.name and _belongs(item.attrs["Labels"], workspace)]

    for network in ours():
        with contextlib.suppress(docker.errors.NotFound):
            try:
                network.remove()
            except docker.errors.APIError as error:
                if error.status_code != 403:  # a container is connected still
                    raise
    return not ours()


def _remove_container(client: DockerClient, container: str) -> None:
    import docker

    with contextlib.suppress(docker.errors.NotFound):
        try:
            client.api.remove_container(container, force=True)
        except docker.errors.APIError as error:
            if error.status_code != 409:
                raise
            time.sleep(0.1)  # it is being removed already
