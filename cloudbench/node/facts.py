"""The facts of a machine that explain a benchmark's figures, as JSON.

What cannot be told is null, never 0 and never left out; the key `missing` holds the reason under the fact's path.
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMEOUT_S = 20.0
_LIBRARIES = ("tensorflow", "tensorflow-cpu", "horovod", "torch", "numpy", "keras", "tf-keras", "nvidia-nccl-cu12")
_GPU_FIELDS = ("index", "name", "uuid", "memory.total", "driver_version", "pci.bus_id", "power.limit")
_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"  # the asset tag of every chassis of Azure
_METADATA = "169.254.169.254"  # where a rented machine asks about itself, on Azure as elsewhere
_METADATA_TIMEOUT_S = 5.0
_NO_NETWORK = ("lo", "veth", "docker", "br-", "ifb", "sit", "tunl", "dummy")
_NO_DISKS = ("loop", "ram", "zram")
_NO_MOUNTS = ("proc", "sysfs", "cgroup", "cgroup2", "devpts", "tmpfs", "mqueue", "devtmpfs", "securityfs", "debugfs")

# Run by the Python that trains; reads the installed packages' records and imports none of them.
_ASK_PYTHON = """
import json, platform, sys
from importlib import metadata
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps({"executable": sys.executable, "version": platform.python_version(), "packages": found}))
"""


class MissingError(Exception):
    """A fact that this machine does not tell; the text says why."""


class _Missing(NamedTuple):
    reason: str


def gather() -> dict[str, Any]:
    """All facts of this machine. Takes as long as `nvidia-smi` and one start of Python."""
    sections: dict[str, Callable[[], Any]] = {
        "hostname": socket.gethostname,
        "os": _os,
        "kernel": platform.release,
        "machine": _machine,
        "image": _image,
        "cpu": _cpu,
        "memory": _memory,
        "cgroup": _cgroup,
        "gpus": _gpus,
        "gpu_topology": lambda: _run("nvidia-smi", "topo", "-m"),
        "disks": _disks,
        "mounts": _mounts,
        "network": _network,
        "infiniband": _infiniband,
        "python": _python,
    }
    missing: dict[str, str] = {}
    facts: dict[str, Any] = _separate({name: _told(tell) for name, tell in sections.items()}, "", missing)
    return {**facts, "missing": missing}


def _told(tell: Callable[[], Any]) -> Any:
    try:
        return tell()
    except (MissingError, OSError, ValueError, KeyError, IndexError) as error:
        return _Missing(str(error) or type(error).__name__)


def _separate(value: Any, path: str, missing: dict[str, str]) -> Any:
    """The same tree with None for what is missing, whose reasons are put into `missing`."""
    if isinstance(value, _Missing):
        missing[path] = value.reason
        return None
    if isinstance(value, dict):
        return {name: _separate(item, f"{path}.{name}".lstrip("."), missing) for name, item in value.items()}
    if isinstance(value, list):
        return [_separate(item, f"{path}.{index}", missing) for index, item in enumerate(value)]
    return value


def _run(*command: str) -> str:
    if shutil.which(command[0]) is None:
        raise MissingError(f"{command[0]} is not installed")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"{command[0]} did not answer within {_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise MissingError(f"{command[0]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def gpu_indexes() -> tuple[str, ...]:
    """The device ids of the GPUs that `nvidia-smi` lists; none where it is not installed or finds none."""
    try:
        return tuple(_run("nvidia-smi", "--query-gpu=index", "--format=csv,noheader").split())
    except (MissingError, OSError):
        return ()


def _gpus() -> list[dict[str, str]]:
    text = _run("nvidia-smi", f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader")
    return [
        dict(zip(_GPU_FIELDS, (value.strip() for value in line.split(","))))  # noqa: B905 - Python 3.8
        for line in text.splitlines()
        if line.strip()
    ]


def _os() -> dict[str, Any]:
    """The distribution, which in a container is the image's."""
    if sys.platform != "linux":
        return {"name": platform.platform()}
    pairs = re.findall(r'^(\w+)="?(.*?)"?$', Path("/etc/os-release").read_text(encoding="utf-8"), re.MULTILINE)
    release = dict(pairs)
    return {"name": release.get("PRETTY_NAME", release.get("NAME")), "in_container": Path("/.dockerenv").exists()}


def _image() -> str:
    if not os.environ.get("CLOUDBENCH_IMAGE"):
        raise MissingError("not started in a container by cloudbench")
    return os.environ["CLOUDBENCH_IMAGE"]


def _machine() -> dict[str, Any]:
    """Who built the machine, and what its cloud says of it."""
    root = Path("/sys/class/dmi/id")

    def read(name: str) -> str:
        return (root / name).read_text(encoding="utf-8").strip()

    is_azure = root.is_dir() and (root / "chassis_asset_tag").exists() and read("chassis_asset_tag") == _AZURE_TAG
    return {
        "vendor": _told(lambda: read("sys_vendor")),
        "product": _told(lambda: read("product_name")),
        "azure": _told(lambda: azure_instance(_METADATA)) if is_azure else _Missing("not a machine of Azure"),
    }


def azure_instance(host: str) -> dict[str, Any]:
    """What Azure's metadata service at `host` says of this machine: size, region, priority, image.

    Raises:
        MissingError: it does not answer, or not as documented.
    """
    connection = http.client.HTTPConnection(host, timeout=_METADATA_TIMEOUT_S)
    try:
        connection.request("GET", "/metadata/instance/compute?api-version=2021-02-01", headers={"Metadata": "true"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise MissingError(f"the metadata service answered {answer.status}")
        compute = json.loads(text)
        image = compute.get("storageProfile", {}).get("imageReference", {})
    except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
        raise MissingError(f"the metadata service did not tell: {type(error).__name__}") from error
    finally:
        connection.close()
    found = {
        "size": compute.get("vmSize"),
        "region": compute.get("location"),
        "zone": compute.get("zone"),
        "priority": compute.get("priority"),
        "image": ":".join(str(image.get(key) or "") for key in ("publisher", "offer", "sku", "version")).strip(":"),
    }
    return {name: value or _Missing("the metadata service does not tell") for name, value in found.items()}


def _cpu() -> dict[str, Any]:
    facts: dict[str, Any] = {"architecture": platform.machine(), "logical_cores": os.cpu_count()}
    facts["model"] = _told(_cpu_model)
    facts["usable_cores"] = _told(_usable_cores)
    return facts


def _cpu_model() -> str:
    if sys.platform == "darwin":
        return _run("sysctl", "-n", "machdep.cpu.brand_string").strip()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    raise MissingError("/proc/cpuinfo names no model")


def _usable_cores() -> int:
    """The cores that the scheduler lets this process use, which is what its affinity says."""
    if not hasattr(os, "sched_getaffinity"):
        raise MissingError("this system has no CPU affinity")
    return len(os.sched_getaffinity(0))


def _memory() -> dict[str, Any]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"total_gib": round(total / 2**30, 2)}


def _cgroup() -> dict[str, Any]:
    return {"cpu_limit_cores": _told(_cpu_limit), "memory_limit_gib": _told(_memory_limit)}


def _cpu_limit() -> float:
    unified, old = cgroup_folder(""), cgroup_folder("cpu")
    if unified is not None and (unified / "cpu.max").exists():
        quota, period = (unified / "cpu.max").read_text().split()
    elif old is not None and (old / "cpu.cfs_quota_us").exists():
        quota, period = (old / "cpu.cfs_quota_us").read_text(), (old / "cpu.cfs_period_us").read_text()
    else:
        raise MissingError("no CPU control group to be read")
    if quota == "max" or int(quota) < 0:
        raise MissingError("no limit")
    return int(quota) / int(period)


def _memory_limit() -> float:
    unified, old = cgroup_folder(""), cgroup_folder("memory")
    if unified is not None and (unified / "memory.max").exists():
        limit = (unified / "memory.max").read_text().strip()
    elif old is not None and (old / "memory.limit_in_bytes").exists():
        limit = (old / "memory.limit_in_bytes").read_text().strip()
    else:
        raise MissingError("no memory control group to be read")
    if limit == "max" or int(limit) >= 2**60:
        raise MissingError("no limit")
    return round(int(limit) / 2**30, 2)


def cgroup_folder(controller: str) -> Path | None:
    """The folder of this process's control group: of version 2 for "", else of a controller of version 1.

    In a container, whose own group is mounted as the root, the path outside means nothing; the root is taken then.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            root = Path("/sys/fs/cgroup") / controller
            folder = root / path.lstrip("/")
            return folder if folder.is_dir() else root
    return None


def out_of_memory_kills() -> int | None:
    """How many processes of this control group the kernel has killed for lack of memory; None where it does not say."""
    for controller, name in (("", "memory.events"), ("memory", "memory.oom_control")):
        folder = cgroup_folder(controller)
        try:
            text = (folder / name).read_text() if folder is not None else ""
        except OSError:
            continue
        match = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
        if match:
            return int(match[1])
    return None


def _disks() -> list[dict[str, Any]]:
    root = Path("/sys/block")
    if not root.is_dir():
        raise MissingError("this system has no /sys/block")
    return [_disk(folder) for folder in sorted(root.iterdir()) if not folder.name.startswith(_NO_DISKS)]


def _disk(folder: Path) -> dict[str, Any]:
    def read(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8").strip()

    return {
        "name": folder.name,
        "size_gib": _told(lambda: round(int(read("size")) * 512 / 2**30, 2)),
        "rotational": _told(lambda: read("queue/rotational") == "1"),
        "model": _told(lambda: read("device/model")),
    }


def _mounts() -> list[dict[str, Any]]:
    path = Path("/proc/self/mounts")
    if not path.exists():
        raise MissingError("this system has no /proc/self/mounts")
    rows = [line.split()[:3] for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        {"device": device, "path": where, "type": kind, **_space(where)}
        for device, where, kind in rows
        if kind not in _NO_MOUNTS or where == "/dev/shm"  # noqa: S108 - data loaders and NCCL depend on its size
    ]


def _space(where: str) -> dict[str, Any]:
    usage = _told(lambda: shutil.disk_usage(where.replace("\\040", " ")))
    if isinstance(usage, _Missing):
        return {"size_gib": usage, "free_gib": usage}
    return {"size_gib": round(usage.total / 2**30, 2), "free_gib": round(usage.free / 2**30, 2)}


def _network() -> list[dict[str, Any]]:
    root = Path("/sys/class/net")
    if not root.is_dir():
        raise MissingError("this system has no /sys/class/net")
    return [_interface(folder) for folder in sorted(root.iterdir()) if not folder.name.startswith(_NO_NETWORK)]


def _interface(folder: Path) -> dict[str, Any]:
    def speed() -> int:
        megabits = int((folder / "speed").read_text())
        if megabits <= 0:
            raise MissingError("the driver does not tell")
        return megabits

    return {
        "name": folder.name,
        "driver": _told(lambda: Path(os.readlink(folder / "device" / "driver")).name),  # noqa: PTH115 - Python 3.8
        "mtu_bytes": _told(lambda: int((folder / "mtu").read_text())),
        "speed_megabit_per_s": _told(speed),
    }


def _infiniband() -> list[dict[str, Any]]:
    ports = sorted(Path("/sys/class/infiniband").glob("*/ports/*"))
    if not ports:
        raise MissingError("no InfiniBand device")
    return [_port(port) for port in ports]


def _port(folder: Path) -> dict[str, Any]:
    return {
        "device": folder.parents[1].name,
        "port": folder.name,
        "rate": _told(lambda: (folder / "rate").read_text().strip()),
        "state": _told(lambda: (folder / "state").read_text().strip()),
    }


def _python() -> dict[str, Any]:
    """The Python that ranks get when they call `python`, and the libraries that matter here."""
    executable = "python" if shutil.which("python") else sys.executable
    answer: dict[str, Any] = json.loads(_run(executable, "-c", _ASK_PYTHON, *_LIBRARIES))
    found = answer["packages"]
    answer["packages"] = {name: found.get(name, _Missing("not installed")) for name in _LIBRARIES}
    return answer
