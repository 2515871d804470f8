"""A stand-in node's containers on this machine's real engine."""

from __future__ import annotations

import contextlib
import queue
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from cloudbench.errors import InfrastructureError
from cloudbench.rehearsal.environment import EXECUTION, LIFELINE, MACHINE

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

    from cloudbench.rehearsal.docker_command import Order

_TIMEOUT_S = 60
_REMOVAL_PATIENCE_S = 30.0
_PAUSE_S = 0.1
_REFUSED, _NOT_FOUND = 125, 127
_MISSING_COMMAND = ("no such file or directory", "executable file not found")
_LABELS = {MACHINE: "cloudbench.machine", EXECUTION: "cloudbench.execution"}
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


@contextlib.contextmanager
def engine() -> Iterator[DockerClient | None]:
    """A client of the engine that the Docker client's own settings name; None where there is none.

    Raises:
        InfrastructureError: the engine refused something, or went away.
    """
    try:
        import docker
        import requests
        from docker import constants, utils
    except ImportError:
        yield None
        return
    settings = utils.kwargs_from_env()
    try:
        _try_socket(settings.get("base_url") or constants.DEFAULT_UNIX_SOCKET)
        client = docker.DockerClient(timeout=_TIMEOUT_S, **settings)
    except (docker.errors.DockerException, requests.RequestException, OSError):
        yield None
        return
    try:
        with contextlib.closing(client):
            yield client
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise InfrastructureError("the Docker engine failed the rehearsal", why=str(error)) from error


def first_image(client: DockerClient, images: Sequence[str]) -> str | None:
    """The first of these images that the engine has."""
    import docker

    for image in images:
        with contextlib.suppress(docker.errors.ImageNotFound):
            client.images.get(image)
            return image
    return None


def run_container(client: DockerClient, order: Order, marks: Mapping[str, str], *, out: BinaryIO, err: BinaryIO) -> int:
    """Run it in the foreground, with this process's signals passed on; its exit code, as docker run gives it."""
    import docker

    happened: queue.SimpleQueue[signal.Signals | int] = queue.SimpleQueue()
    for number in _PASSED_ON:
        signal.signal(number, lambda number, _frame: happened.put(signal.Signals(number)))
    container = None
    try:
        container = client.containers.create(**_settings(order, marks))
        # Both are asked before the start: nothing is missed, also where the engine removes the container at once.
        deaths = client.api.events(filters={"container": container.id, "event": "die"}, decode=True)
        output = container.attach(stream=True, logs=True, demux=True)
        container.start()
    except docker.errors.APIError as error:
        reason = error.explanation or str(error)
        err.write(f"docker: the engine refused: {reason}\n".encode())
        if container is not None:
            _remove(client, str(container.id))
        return _NOT_FOUND if any(words in reason for words in _MISSING_COMMAND) else _REFUSED
    follower = threading.Thread(target=_follow, args=(output, deaths, happened, out, err), daemon=True)
    follower.start()
    while isinstance(event := happened.get(), signal.Signals):
        _signal(container, event)
    deaths.close()
    follower.join()
    return event


def remove_containers(marks: Mapping[str, str]) -> None:
    """Remove the containers with these marks; returns when the engine lists none of them.

    Raises:
        InfrastructureError: the engine does not remove one.
    """
    wanted = [f"{_LABELS[name]}={value}" for name, value in marks.items() if name in _LABELS]
    deadline = time.monotonic() + _REMOVAL_PATIENCE_S
    with engine() as client:
        while client and (left := client.api.containers(all=True, filters={"label": wanted})):
            if time.monotonic() > deadline:
                names = ", ".join(item["Names"][0] for item in left)
                raise InfrastructureError("containers of the rehearsal cannot be removed", why=names)
            for item in left:
                _remove(client, item["Id"])


def _settings(order: Order, marks: Mapping[str, str]) -> dict[str, Any]:
    volumes = [f"{item.source}:{item.target}:{'ro' if item.read_only else 'rw'}" for item in order.volumes]
    if LIFELINE in marks:
        volumes.append(f"{marks[LIFELINE]}:{marks[LIFELINE]}:ro")
    return {
        "image": order.image,
        "command": list(order.command),
        "entrypoint": [order.entrypoint] if order.entrypoint else None,
        # Each host of a cloud has names of its own; here all nodes share one engine.
        "name": f"{order.name}-{marks[MACHINE]}" if order.name and MACHINE in marks else order.name,
        "environment": {**order.environment, **marks},
        "labels": {label: marks[name] for name, label in _LABELS.items() if name in marks},
        "volumes": volumes,
        "network_mode": order.network,
        "shm_size": order.shm_size,
        "user": order.user,
        "working_dir": order.workdir,
        "init": order.init or None,
        "auto_remove": order.rm,
    }


def _follow(
    output: Iterator[tuple[bytes | None, bytes | None]],
    deaths: Iterator[dict[str, Any]],
    happened: queue.SimpleQueue[signal.Signals | int],
    out: BinaryIO,
    err: BinaryIO,
) -> None:
    """Print what the container prints, then tell its exit code; that of a refusal where the engine went away."""
    code = _REFUSED
    try:
        for printed in output:
            for text, stream in zip(printed, (out, err), strict=True):
                if text:
                    stream.write(text)
                    stream.flush()
        for death in deaths:
            code = int(death["Actor"]["Attributes"]["exitCode"])
            break
    except Exception as error:  # each layer below has errors of its own for an engine that goes away
        err.write(f"docker: the engine went away: {error}\n".encode())
    finally:
        happened.put(code)


def _signal(container: Container, number: signal.Signals) -> None:
    import docker

    with contextlib.suppress(docker.errors.APIError):  # it has ended meanwhile
        container.kill(signal=number.name)


def _remove(client: DockerClient, container: str) -> None:
    import docker

    with contextlib.suppress(docker.errors.NotFound):
        try:
            client.api.remove_container(container, force=True)
        except docker.errors.APIError as error:
            if error.status_code != 409:
                raise
            time.sleep(_PAUSE_S)  # it is being removed already


def _try_socket(address: str) -> None:
    """Raise an OSError where nobody listens: the docker package does not close a socket that it cannot connect."""
    scheme, _, path = address.partition("://")
    if scheme in ("unix", "http+unix"):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
