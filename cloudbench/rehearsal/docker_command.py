"""The `docker` that a stand-in node finds: containers of this machine's engine, else processes in their place.

It has what a node program's host needs (`run`, `pull`, `login`, `version`) and refuses what it does not know. Images
are never pulled: one that the engine has is run, else the project's own CPU image, else the command is a process of the
node, with the variables that the container would have.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from cloudbench.errors import CloudbenchError
from cloudbench.rehearsal.environment import kept, marks_in

STAND_IN_IMAGE = "cloudbench-cpu"
_REFUSED, _NOT_EXECUTABLE, _NOT_FOUND = 125, 126, 127  # as docker run exits
_ENGINE_SETTINGS = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of the host, and where a container has it."""

    source: str
    target: str
    read_only: bool = False


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One `docker run`. `environment` is all that the container is given."""

    image: str
    command: tuple[str, ...] = ()
    entrypoint: str | None = None
    name: str | None = None
    environment: dict[str, str] = {}
    volumes: tuple[Volume, ...] = ()
    gpus: str | None = None
    network: str | None = None
    shm_size: str | None = None
    user: str | None = None
    workdir: str | None = None
    init: bool = False
    rm: bool = False


def install(folder: Path, *, containers: bool, environment: Mapping[str, str]) -> None:
    """Write the program `docker` into a folder; where the engine is found comes from `environment`.

    The engine's address stays in the program: no rented machine has a variable for it.
    """
    settings = [f"{name}={shlex.quote(environment[name])}" for name in _ENGINE_SETTINGS if environment.get(name)]
    package = str(Path(__file__).absolute().parents[2])
    # The working folder of whoever calls is not where modules are looked for.
    code = (
        f"import sys; sys.path[0] = {package!r}; from cloudbench.rehearsal.docker_command import main; "
        f"sys.exit(main(sys.argv[1:], containers={containers}))"
    )
    start = " ".join([*settings, "exec", shlex.quote(sys.executable), "-c", shlex.quote(code)])
    path = folder / "docker"
    path.write_text(f'#!/bin/sh\n{start} "$@"\n')
    path.chmod(0o755)


def main(arguments: Sequence[str], *, containers: bool) -> int:
    """Do what `docker ARGUMENTS` asks for; the exit code. What runs as a process takes the place of this one."""
    given = _parser().parse_args(arguments)
    if given.action == "run":
        try:
            return _run(read_order(given, os.environ), containers=containers)
        except (CloudbenchError, OSError) as error:
            _fail(str(error))
            return _REFUSED
    if given.action == "pull":
        _note(f"image {given.image} is not pulled in a rehearsal")
    elif given.action == "login":
        sys.stdin.read()
        sys.stdout.write("Login Succeeded\n")
    else:
        sys.stdout.write("cloudbench rehearsal\n")
    return 0


def read_order(given: argparse.Namespace, environment: Mapping[str, str]) -> Order:
    """What was asked for; a variable named without a value has that of `environment`.

    Raises:
        SystemExit: it makes no sense; the reason is on stderr.
    """
    lines = []
    for file in given.env_file:
        lines += [line.strip() for line in Path(file).read_text("utf-8").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")] + given.env
    pairs = [line.partition("=") for line in lines]
    return Order(
        image=given.image,
        command=tuple(given.command),
        environment={
            name: value if equals else environment[name]
            for name, equals, value in pairs
            if equals or name in environment
        },
        volumes=tuple(map(_read_volume, given.volume)),
        **{name: getattr(given, name) for name in _SAME_NAME},
    )


def moved(text: str, volumes: Sequence[Volume]) -> str:
    """A text that names folders as the container has them, naming them as the host has them."""
    places = {volume.target: volume.source for volume in volumes}
    if not places:
        return text
    names = "|".join(re.escape(target) for target in sorted(places, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])(?:{names})(?![\w.-])", lambda match: places[match[0]], text)


_SAME_NAME = ("entrypoint", "name", "gpus", "network", "shm_size", "user", "workdir", "init", "rm")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _fail(f"{message}: the stand-in of docker knows no more than cloudbench needs")
        sys.exit(_REFUSED)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="docker", add_help=False, allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", required=True, parser_class=_Parser)

    def action(name: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, add_help=False, allow_abbrev=False)

    run = action("run")
    for flag in ("--init", "--rm"):
        run.add_argument(flag, action="store_true")
    for option in ("--name", "--gpus", "--shm-size", "--entrypoint"):
        run.add_argument(option)
    run.add_argument("--network", "--net", choices=("host", "bridge", "none"))
    run.add_argument("--user", "-u")
    run.add_argument("--workdir", "-w")
    for option, short in (("--volume", "-v"), ("--env", "-e")):
        run.add_argument(option, short, action="append", default=[])
    run.add_argument("--env-file", action="append", default=[])
    for option in ("--device", "--ulimit"):  # InfiniBand, which no stand-in node has
        run.add_argument(option, action="append")
    run.add_argument("image")
    run.add_argument("command", nargs=argparse.REMAINDER)
    pull = action("pull")
    pull.add_argument("--quiet", "-q", action="store_true")
    pull.add_argument("image")
    login = action("login")
    login.add_argument("--username", "-u", required=True)
    login.add_argument("--password-stdin", action="store_true", required=True)
    login.add_argument("server", nargs="?")
    action("version").add_argument("--format", "-f")
    return parser


def _read_volume(text: str) -> Volume:
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not (source.startswith("/") and target.startswith("/") and mode in ("", "ro", "rw")):
        _fail(f"invalid volume {text!r}: a folder of the host, a colon, a folder of the container, perhaps :ro")
        sys.exit(_REFUSED)
    return Volume(source=source.rstrip("/") or "/", target=target.rstrip("/") or "/", read_only=mode == "ro")


def _run(order: Order, *, containers: bool) -> int:
    if order.gpus:
        _note("no GPUs in a rehearsal: --gpus is left out")
    marks = marks_in(os.environ)
    if containers:
        from cloudbench.rehearsal.containers import engine, first_image, run_container

        with engine() as client:
            image = client and first_image(client, (order.image, STAND_IN_IMAGE))
            if client and image:
                if image != order.image:
                    _note(f"the engine does not have image {order.image}: {image} stands in for it")
                order = msgspec.structs.replace(order, image=image)
                return run_container(client, order, marks, out=sys.stdout.buffer, err=sys.stderr.buffer)
    _note(f"image {order.image} is not on this machine: the command runs as a process of it")
    return _run_process(order, marks)


def _run_process(order: Order, marks: Mapping[str, str]) -> int:
    """Become the command, with the host's folders where it names those of the container."""
    entrypoint = (order.entrypoint,) if order.entrypoint else ()
    command = [moved(word, order.volumes) for word in (*entrypoint, *order.command)]
    if not command:
        _fail(f"what image {order.image} runs by itself is not known here: give the command")
        return _REFUSED
    for volume in order.volumes:
        Path(volume.source).mkdir(parents=True, exist_ok=True)  # as docker does
        if volume.source != volume.target:
            _note(f"{volume.target} is {volume.source} here")
    given = {name: moved(value, order.volumes) for name, value in order.environment.items()}
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # what Python ignores is not ignored in the command
    if order.workdir:
        folder = Path(moved(order.workdir, order.volumes))
        if any(folder.is_relative_to(volume.source) for volume in order.volumes):
            folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
    try:
        os.execvpe(command[0], command, {**kept(os.environ), **given, **marks})  # noqa: S606 - no shell is wanted
    except OSError as error:
        _fail(f"{command[0]}: {error.strerror}")
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE


def _note(message: str) -> None:
    """What is different from a rented machine. Only failures begin with `docker:`, as the real one's do."""
    sys.stderr.write(f"rehearsal: {message}\n")


def _fail(message: str) -> None:
    sys.stderr.write(f"docker: {message}\n")
