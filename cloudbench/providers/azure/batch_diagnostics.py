"""What only the service has of a job that failed: its task's own output, node errors, resize errors."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cloudbench.providers.attempt_files import write_changed
from cloudbench.providers.azure.account import API_VERSION, service_words, translated
from cloudbench.providers.azure.batch_requests import TASK
from cloudbench.providers.azure.batch_status import Seen

if TYPE_CHECKING:
    from azure.batch import BatchClient

_LONGEST_FILE = 4 << 20
_NODE_FIELDS = ["id", "state", "errors", "startTaskInfo", "ipAddress", "vmSize", "isDedicated", "stateTransitionTime"]


def collect(client: BatchClient, name: str, seen: Seen, into: Path) -> None:
    """Write what there is of a job that did not succeed as files below `into`; nothing where it goes on or succeeded.

    The machines of a job that has ended go within minutes, and their files with them: what is gone is named.
    """
    with translated(f"asking what the service has of the job {name}"):
        task = _found(lambda: client.get_task(name, TASK, select=["id", "state", "executionInfo", "nodeInfo"]))
        info = (task or {}).get("executionInfo") or {}
        refused = (
            (seen.pool or {}).get("resizeErrors")
            or ((seen.job or {}).get("executionInfo") or {}).get("schedulingError")
            or any(seen.counts.get(state) for state in ("unusable", "startTaskFailed", "preempted"))
        )
        if info.get("result") == "success" or not ((seen.job or {}).get("state") == "completed" or refused):
            return
        _write(into / "job.json", _without_requests(seen.job))
        _write(into / "task.json", task)
        if seen.pool:
            _write(into / "pool.json", {**seen.pool, "nodeCounts": seen.counts})
            _collect_nodes(client, str(seen.pool["id"]), into)
        if task:
            for file in ("stdout.txt", "stderr.txt"):
                _download(client, f"/jobs/{name}/tasks/{TASK}/files/{file}", into / file)


def _collect_nodes(client: BatchClient, pool: str, into: Path) -> None:
    nodes = [node.as_dict() for node in client.list_nodes(pool, select=_NODE_FIELDS)]
    _write(into / "nodes.json", nodes)
    for node in nodes:
        if (node.get("startTaskInfo") or {}).get("result") == "failure":
            for file in ("stdout.txt", "stderr.txt"):
                path = f"/pools/{pool}/nodes/{node['id']}/files/startup/{file}"
                _download(client, path, into / f"{node['id']}-startup-{file}")


def _without_requests(job: Mapping[str, Any] | None) -> dict[str, Any]:
    """The job without what it was made from: that has addresses and keys in it."""
    return {key: value for key, value in (job or {}).items() if key in ("id", "state", "executionInfo", "metadata")}


def _found(ask: Any) -> dict[str, Any] | None:
    from azure.core.exceptions import ResourceNotFoundError

    with contextlib.suppress(ResourceNotFoundError):
        return dict(ask().as_dict())
    return None


def _download(client: BatchClient, path: str, target: Path) -> None:
    """The beginning of a file of a node; where the node is gone already, why it is not there.

    The SDK's own method reads a refusal before it is there, and warns of that.
    """
    from azure.core.exceptions import HttpResponseError
    from azure.core.rest import HttpRequest

    request = HttpRequest(
        "GET", path, params={"api-version": API_VERSION}, headers={"ocp-range": f"bytes=0-{_LONGEST_FILE - 1}"}
    )
    try:
        write_changed(target, client.send_request(request).content)
    except HttpResponseError as error:
        if error.status_code != 416 and not target.exists():  # not an empty file, nor one that came home before
            write_changed(target.with_suffix(".missing"), f"Azure says: {service_words(error)}\n".encode())


def _write(path: Path, value: Any) -> None:
    write_changed(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
