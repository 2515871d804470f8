"""A real Docker engine for tests, and images for it that no registry is needed for.

A test asks for `docker_engine` or for one of the image fixtures. Where none can be had it is skipped and says why;
with ``CI=true`` it fails instead.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import io
import os
import platform
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from docker import DockerClient

ROOT = Path(__file__).parents[1]
ENGINE_SCRIPT = ROOT / "scripts" / "docker-engine"
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
# The whole of Python's standard library, and what a training image needs beside it.
DEBIAN_PACKAGES = ("ca-certificates", "python3")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need an engine, and give the first one that needs the CPU image time to build it.

    They all run in one worker: two would make the same images, and containers of one are in the way of another's.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "docker_engine" in fixtures or "private_docker_engine" in fixtures:
            item.add_marker("docker")
            item.add_marker(pytest.mark.xdist_group("docker"))
        if "cpu_image" in fixtures:
            item.add_marker("slow")
            item.add_marker(pytest.mark.timeout(3600))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnEngine:
    """An engine of one test, which may kill it."""

    host: str
    pid: int


@contextmanager
def own_engine(*, isolated: bool) -> Iterator[OwnEngine]:
    """Start an engine in a temporary folder and remove all of it afterwards.

    ``isolated`` gives it a network namespace of its own: it disturbs no other engine, and its containers reach each
    other and nothing else.
    """
    folder = Path(tempfile.mkdtemp(prefix="cloudbench-engine-"))
    start = ["unshare", "--net"] if isolated else []
    try:
        subprocess.run([*start, ENGINE_SCRIPT, "start", folder], check=True, stdout=subprocess.DEVNULL)
        pid = int((folder / "dockerd.pid").read_text())
        yield OwnEngine(host=f"unix://{folder}/docker.sock", pid=pid)
    finally:
        subprocess.run([ENGINE_SCRIPT, "stop", folder], check=True)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[str]:
    """The DOCKER_HOST of a working engine: the one that runs already, else one for this session.

    It is in the environment too while the fixture lives.
    """
    if not importlib.util.find_spec("docker"):
        unavailable("the docker package is missing: pip install '.[docker]'")
    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if answers(host):
        yield host
        return
    require_engine_tools()
    with own_engine(isolated=False) as engine, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine.host)
        yield engine.host


@pytest.fixture
def private_docker_engine() -> Iterator[OwnEngine]:
    """An engine without images and without a way out, for a test that kills it."""
    require_engine_tools()
    with own_engine(isolated=True) as engine:
        yield engine


@pytest.fixture(scope="session")
def docker_client(docker_engine: str) -> Iterator[DockerClient]:
    """A client of the engine."""
    import docker

    client = docker.DockerClient(base_url=docker_engine, timeout=600)
    yield client
    client.close()


@pytest.fixture(scope="session")
def busybox_image(docker_client: DockerClient) -> str:
    """The name of an image with busybox and its applets: 2 MB, for everything that needs a shell only."""
    return import_busybox(docker_client)


@pytest.fixture(scope="session")
def python_image(docker_client: DockerClient) -> str:
    """The name of a Debian image with Python and nothing more, in which `python3 cloudbench-node.pyz` runs."""
    # What this machine trusts, and where its pip looks, also holds for builds on top of this image.
    files = {"etc/ssl/certs/ca-certificates.crt": CA_BUNDLE.read_bytes(), "etc/pip.conf": pip_settings()}
    version = digest(debian_release(), *DEBIAN_PACKAGES, *files.values())

    def make(name: str) -> None:
        bare = f"cloudbench-test-debian:{version}"
        import_debian(docker_client, bare)
        recipe = f"FROM {bare}\n" + "".join(f"COPY {file} /{file}\n" for file in files)
        context = archive({**files, "Dockerfile": recipe.encode()})
        docker_client.images.build(fileobj=context, custom_context=True, tag=name, rm=True)

    return kept_image(docker_client, "cloudbench-test-python", version, make)


@pytest.fixture(scope="session")
def cpu_image(docker_client: DockerClient, python_image: str) -> str:
    """The name of the image that containers/cpu.Dockerfile makes of this working tree: TensorFlow and Horovod."""

    def build(name: str, *, target: str | None = None, layers_of: list[str] | None = None) -> None:
        docker_client.images.build(
            path=str(ROOT),
            dockerfile="containers/cpu.Dockerfile",
            buildargs={"BASE_IMAGE": python_image, **proxies()},
            # The host's own network also reaches a proxy or a package index that listens on localhost.
            network_mode="host",
            target=target,
            cache_from=layers_of,
            tag=name,
            rm=True,
        )

    made_of = ("containers/cpu.Dockerfile", "containers/constraints.txt", "scripts/build-horovod")
    base = docker_client.images.get(python_image).id or python_image
    version = digest(base, *((ROOT / file).read_bytes() for file in made_of))
    # Installing TensorFlow and compiling Horovod takes minutes and depends on nothing else of the working tree.
    frameworks = kept_image(
        docker_client, "cloudbench-test-frameworks", version, lambda name: build(name, target="frameworks")
    )
    name = "cloudbench-test-cpu:latest"
    build(name, layers_of=[frameworks, name])
    return name


def kept_image(client: DockerClient, repository: str, version: str, make: Callable[[str], None]) -> str:
    """The name of an image that outlives its engine in the user's cache; made where it is in neither."""
    name = f"{repository}:{version}"
    if has_image(client, name):
        return name
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cloudbench" / "images"
    kept = cache / f"{repository}-{version}.tar"
    if kept.exists():
        with kept.open("rb") as file:
            client.images.load(file)
        return name
    make(name)
    cache.mkdir(parents=True, exist_ok=True)
    for outdated in cache.glob(f"{repository}-*.tar"):
        outdated.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        unfinished = Path(folder, kept.name)
        with unfinished.open("wb") as file:
            file.writelines(client.images.get(name).save(named=name))
        unfinished.rename(kept)
    return name


def import_busybox(client: DockerClient) -> str:
    """Give an engine the busybox image; returns its name."""
    name = "cloudbench-test-busybox:latest"
    if not has_image(client, name):
        busybox = Path(require_program("busybox", package="busybox-static"))
        applets = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split()
        links = {f"bin/{applet}": "busybox" for applet in applets if applet != "busybox"}
        data = archive(
            {"bin/busybox": busybox.read_bytes(), "etc/passwd": b"root:x:0:0::/root:/bin/sh\n"},
            links=links,
        )
        repository, tag = name.split(":")
        client.api.import_image_from_data(data.getvalue(), repository=repository, tag=tag)
    return name


def import_debian(client: DockerClient, name: str) -> None:
    """Give an engine a minimal Debian or Ubuntu of this machine's own release, with Python."""
    if os.geteuid() != 0:
        unavailable("only root can make a Debian image")
    debootstrap = require_program("debootstrap", package="debootstrap")
    repository, tag = name.split(":")
    with tempfile.TemporaryDirectory() as folder:
        tree, packed = Path(folder, "root"), Path(folder, "root.tar")
        include = f"--include={','.join(DEBIAN_PACKAGES)}"
        subprocess.run([debootstrap, "--variant=minbase", include, debian_release(), tree], check=True)
        leave_out = ["--exclude=./var/cache/apt/*", "--exclude=./var/lib/apt/lists/*"]
        subprocess.run(["tar", "--create", "--file", packed, *leave_out, "--directory", tree, "."], check=True)
        client.api.import_image_from_file(str(packed), repository=repository, tag=tag)


def debian_release() -> str:
    """This machine's release, such as ``bookworm``."""
    return platform.freedesktop_os_release()["VERSION_CODENAME"]


def pip_settings() -> bytes:
    """A pip.conf with this machine's certificates and with whichever package index its pip is told to use."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    lines = ["[global]", f"cert = {CA_BUNDLE}"]
    for line in listing.splitlines():
        scope_and_key, _, value = line.partition("=")
        key, value = scope_and_key.rpartition(".")[2], value.strip("'")
        # A file:// index is a folder of this machine, which no container has.
        if key in {"extra-index-url", "index-url", "proxy", "trusted-host"} and not value.startswith("file:"):
            lines.append(f"{key} = {value}")
    return "\n".join([*lines, ""]).encode()


def proxies() -> dict[str, str]:
    """The proxies of this machine, as the build arguments that every Dockerfile knows and no image keeps."""
    names = ("http_proxy", "https_proxy", "no_proxy")
    return {key: value for key, value in os.environ.items() if key.lower() in names}


def archive(files: Mapping[str, bytes], *, links: Mapping[str, str] | None = None) -> io.BytesIO:
    """A tar archive in memory with an open /tmp; every file is executable, as a build context's may be."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        scratch = tarfile.TarInfo("tmp")
        scratch.type, scratch.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(scratch)
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    buffer.seek(0)
    return buffer


def digest(*parts: str | bytes) -> str:
    """A short name for what an image is made of."""
    return hashlib.sha256(b"\0".join(part.encode() if isinstance(part, str) else part for part in parts)).hexdigest()[
        :12
    ]


def has_image(client: DockerClient, name: str) -> bool:
    """Whether the engine has the image already."""
    return bool(client.images.list(name=name))


def answers(host: str) -> bool:
    """Whether a Docker engine is there. A socket is tried first: the docker package leaks those it cannot connect."""
    import docker

    try:
        if host.startswith("unix://"):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(host.removeprefix("unix://"))
        client = docker.DockerClient(base_url=host)
    except (OSError, docker.errors.DockerException):
        return False
    client.close()
    return True


def require_engine_tools() -> None:
    """Skip, or fail in CI, where no engine can be started."""
    if os.geteuid() != 0:
        unavailable("no Docker engine answers, and only root can start one")
    require_program("dockerd", package="docker.io")


def require_program(name: str, *, package: str) -> str:
    """Where a program lies; skips, or fails in CI, where it is missing."""
    found = shutil.which(name)
    if found is None:
        unavailable(f"{name} is missing: apt-get install {package}")
    return found


def unavailable(reason: str) -> NoReturn:
    """Skip the test with the reason; in CI, where everything has to be there, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
