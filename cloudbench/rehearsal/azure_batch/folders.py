"""A node's folders and variables, the files that a task is given, and the files that it leaves."""

from __future__ import annotations

import re
import shlex
import urllib.error
import urllib.request
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from cloudbench.errors import InfrastructureError
from cloudbench.rehearsal.azure_batch.wire import Body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudbench.rehearsal.azure_batch.nodes import Node
    from cloudbench.rehearsal.azure_batch.world import BatchWorld
    from cloudbench.rehearsal.machines import Execution, Machine

ROOT = "tasks"
SHARED, STARTUP, MOUNTS, WORK_ITEMS = "shared", "startup", "fsmounts", "workitems"
_DOWNLOAD_TIMEOUT_S = 30.0
_LOOK_EVERY_S = 0.1


class PreparationError(Exception):
    """A file that the task is given cannot be had; `code` is the service's for it."""

    def __init__(self, message: str, code: str = "BlobDownloadMiscError") -> None:
        super().__init__(message)
        self.code = code


def make(root: Path) -> None:
    """A new node's folders."""
    for name in (SHARED, f"{STARTUP}/wd", MOUNTS, WORK_ITEMS):
        (root / name).mkdir(parents=True)


def environment(node: Node) -> dict[str, str]:
    """The variables that every command on that node gets."""
    root = node.root
    return {
        "AZ_BATCH_ACCOUNT_NAME": node.world.account,
        "AZ_BATCH_ACCOUNT_URL": node.world.url,
        "AZ_BATCH_POOL_ID": node.pool.id,
        "AZ_BATCH_NODE_ID": node.id,
        "AZ_BATCH_NODE_IS_DEDICATED": str(node.dedicated).lower(),
        "AZ_BATCH_NODE_ROOT_DIR": str(root),
        "AZ_BATCH_NODE_SHARED_DIR": str(root / SHARED),
        "AZ_BATCH_NODE_STARTUP_DIR": str(root / STARTUP),
        "AZ_BATCH_NODE_MOUNTS_DIR": str(root / MOUNTS),
    }


def settings(body: Body) -> dict[str, str]:
    """The variables that a task or a job sets itself."""
    listed = body.get("environmentSettings") or body.get("commonEnvironmentSettings") or []
    return {setting["name"]: setting.get("value") or "" for setting in listed}


def as_shell(command: str) -> str:
    """A command line as a shell must be given it, so that nothing of it is expanded: Batch runs none in a shell."""
    try:
        return "exec " + shlex.join(shlex.split(command))
    except ValueError:
        return f"exec {shlex.quote(command)}"


def in_container(command: str, container: Body, root: Path, variables: Mapping[str, str], folder: Path) -> str:
    """The same command through the node's `docker`, in the image that the task names."""
    listed = folder / "container.env"
    listed.write_text("".join(f"{name}={value}\n" for name, value in variables.items()), "utf-8")
    run = ["docker", "run", "--rm", "-v", f"{root}:{root}", "--env-file", str(listed)]
    if container.get("workingDirectory", "taskWorkingDirectory").lower() != "containerimagedefault":
        run += ["--workdir", variables["AZ_BATCH_TASK_WORKING_DIR"]]
    run += shlex.split(container.get("containerRunOptions") or "")
    return "exec " + shlex.join([*run, container["imageName"], *shlex.split(command)])


def download(resources: list[Body], into: Path, world: BatchWorld) -> None:
    """Fetch the files that a task is given, by plain GET.

    Raises:
        PreparationError: one of them cannot be fetched, or is no single file.
    """
    for resource in resources:
        url = resource.get("httpUrl")
        if not url:
            raise PreparationError("only resource files with an httpUrl are served by this stand-in")
        target = into / resource.get("filePath", urlsplit(url).path.rsplit("/", 1)[-1])
        if not target.resolve().is_relative_to(into.resolve()):
            raise PreparationError(f"{resource['filePath']} is not below the task's folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        _fetch(url, target, world)
        target.chmod(int(resource.get("fileMode") or "0770", 8))


def _fetch(url: str, target: Path, world: BatchWorld) -> None:
    try:
        with _open(url) as source, target.open("wb") as file:
            while part := source.read(1 << 20):
                if world.closing.is_set():
                    raise PreparationError("the rehearsal ends")
                file.write(part)
    except (OSError, ValueError) as error:
        # Without the query: it is the signature.
        place = urlunsplit((*urlsplit(url)[:3], "", ""))
        if isinstance(error, urllib.error.HTTPError):
            error.close()
            codes = {403: "BlobAccessDenied", 404: "BlobNotFound"}
            raise PreparationError(
                f"{place}: HTTP {error.code}", codes.get(error.code, "BlobDownloadMiscError")
            ) from None
        timed_out = isinstance(error, TimeoutError) or "timed out" in str(error)
        raise PreparationError(
            f"{place}: {error}", "BlobDownloadTimedOut" if timed_out else "BlobDownloadMiscError"
        ) from None


def _open(url: str, **parts: Any) -> Any:
    """An HTTP request's answer; no proxy is asked for what is on this machine."""
    here = urlsplit(url).hostname in ("127.0.0.1", "localhost")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({} if here else None))
    return opener.open(urllib.request.Request(url, **parts), timeout=_DOWNLOAD_TIMEOUT_S)  # noqa: S310


def upload(outputs: list[Body], wd: Path, *, succeeded: bool) -> None:
    """Send the files that a task promised, each by one PUT as a block blob.

    Raises:
        PreparationError: one of them cannot be sent.
    """
    for output in outputs:
        condition = output["uploadOptions"]["uploadCondition"].lower()
        if condition != "taskcompletion" and (condition == "tasksuccess") != succeeded:
            continue
        container = output["destination"].get("container") or {}
        for path in _matching(wd, output["filePattern"]):
            _put(path, container, wildcard=bool(re.search(r"[*?\[]", output["filePattern"])))


def _matching(wd: Path, pattern: str) -> list[Path]:
    base = wd
    while pattern.startswith("../"):
        base, pattern = base.parent, pattern[3:]
    found = [path for path in sorted(base.rglob("*")) if path.is_file()]
    return [path for path in found if fnmatch(path.relative_to(base).as_posix(), pattern.replace("**/", "*"))]


def _put(path: Path, container: Body, *, wildcard: bool) -> None:
    parts = urlsplit(container["containerUrl"])
    inside = container.get("path") or ""
    name = f"{inside}/{path.name}".lstrip("/") if wildcard or not inside else inside
    url = urlunsplit((*parts[:2], f"{parts.path}/{name}", parts.query, ""))
    try:
        _open(url, data=path.read_bytes(), method="PUT", headers={"x-ms-blob-type": "BlockBlob"}).close()
    except OSError as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise PreparationError(f"{name}: {getattr(error, 'code', None) or error}", "FileUploadMiscError") from None


def run_start_task(machine: Machine, task: Body, variables: Mapping[str, str], world: BatchWorld) -> int:
    """Run a pool's start task to its end, as often as it may be tried; its last exit code."""
    folder = machine.folder / ROOT / STARTUP
    wd = folder / "wd"
    place = {"AZ_BATCH_TASK_DIR": str(folder), "AZ_BATCH_TASK_WORKING_DIR": str(wd)}
    code = 1
    for _ in range(1 + max(0, task.get("maxTaskRetryCount", 0))):
        try:
            download(task.get("resourceFiles", []), wd, world)
            execution = machine.run(
                as_shell(task["commandLine"]),
                cwd=wd,
                environment={**variables, **place, **settings(task)},
                stdout=folder / "stdout.txt",
                stderr=folder / "stderr.txt",
            )
        except (PreparationError, InfrastructureError) as error:
            with (folder / "stderr.txt").open("a", encoding="utf-8") as file:
                file.write(f"{error}\n")
            continue
        code = wait(execution, world)
        if code == 0:
            break
    return code


def wait(execution: Execution, world: BatchWorld) -> int:
    """A command's exit code; when the rehearsal ends, the command ends first."""
    while (code := execution.wait(_LOOK_EVERY_S)) is None:
        if world.closing.is_set():
            execution.end(0.0)
    return code
