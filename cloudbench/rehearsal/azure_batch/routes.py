"""Which operation a request asks for."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote

from cloudbench.rehearsal.azure_batch import job_operations as jobs
from cloudbench.rehearsal.azure_batch import pool_operations as pools
from cloudbench.rehearsal.azure_batch.calls import Call
from cloudbench.rehearsal.azure_batch.service import not_served
from cloudbench.rehearsal.azure_batch.wire import ServiceError
from cloudbench.rehearsal.server import Request, Response

Operation = Callable[[Call], Response]

ROUTES: dict[str, Operation] = {
    "GET /applications": pools.nothing,
    "GET /poolusagemetrics": pools.nothing,
    "GET /nodecounts": pools.node_counts,
    "GET /supportedimages": pools.supported_images,
    "GET /pools": pools.list_all,
    "POST /pools": pools.create,
    "GET /pools/{pool}": pools.get,
    "HEAD /pools/{pool}": pools.get,
    "PATCH /pools/{pool}": pools.patch,
    "DELETE /pools/{pool}": pools.delete,
    "POST /pools/{pool}/updateproperties": pools.update_properties,
    "POST /pools/{pool}/resize": pools.resize,
    "POST /pools/{pool}/stopresize": pools.stop_resize,
    "POST /pools/{pool}/removenodes": pools.remove_nodes,
    "GET /pools/{pool}/nodes": pools.list_nodes,
    "GET /pools/{pool}/nodes/{node}": pools.get_node,
    "POST /pools/{pool}/nodes/{node}/reboot": pools.reboot_node,
    "POST /pools/{pool}/nodes/{node}/disablescheduling": pools.disable_scheduling,
    "POST /pools/{pool}/nodes/{node}/enablescheduling": pools.enable_scheduling,
    "GET /pools/{pool}/nodes/{node}/files": pools.list_node_files,
    "GET /pools/{pool}/nodes/{node}/files/{file}": pools.node_file,
    "HEAD /pools/{pool}/nodes/{node}/files/{file}": pools.node_file,
    "GET /jobs": jobs.list_all,
    "POST /jobs": jobs.create,
    "GET /jobs/{job}": jobs.get,
    "PUT /jobs/{job}": jobs.put,
    "PATCH /jobs/{job}": jobs.patch,
    "DELETE /jobs/{job}": jobs.delete,
    "POST /jobs/{job}/terminate": jobs.terminate,
    "POST /jobs/{job}/disable": jobs.disable,
    "POST /jobs/{job}/enable": jobs.enable,
    "GET /jobs/{job}/taskcounts": jobs.task_counts,
    "GET /jobs/{job}/tasks": jobs.list_tasks,
    "POST /jobs/{job}/tasks": jobs.create_task,
    "POST /jobs/{job}/addtaskcollection": jobs.create_tasks,
    "GET /jobs/{job}/tasks/{task}": jobs.get_task,
    "PUT /jobs/{job}/tasks/{task}": jobs.put_task,
    "DELETE /jobs/{job}/tasks/{task}": jobs.delete_task,
    "POST /jobs/{job}/tasks/{task}/terminate": jobs.terminate_task,
    "POST /jobs/{job}/tasks/{task}/reactivate": jobs.reactivate_task,
    "GET /jobs/{job}/tasks/{task}/subtasksinfo": jobs.subtasks,
    "GET /jobs/{job}/tasks/{task}/files": jobs.list_task_files,
    "GET /jobs/{job}/tasks/{task}/files/{file}": jobs.task_file,
    "HEAD /jobs/{job}/tasks/{task}/files/{file}": jobs.task_file,
    "DELETE /jobs/{job}/tasks/{task}/files/{file}": jobs.delete_task_file,
}

_NOT_SERVED = re.compile(
    r"/applications/[^/]+|/jobschedules(/.*)?|/jobs/[^/]+/jobpreparationandreleasetaskstatus"
    r"|/pools/[^/]+/(disable|enable|evaluate)autoscale"
    r"|/pools/[^/]+/nodes/[^/]+/(users|extensions|remoteloginsettings|uploadbatchservicelogs|start|reimage|deallocate)(/.*)?"
)


def _pattern(path: str) -> re.Pattern[str]:
    """A path with its names as groups; a file's is all that follows."""
    return re.compile(re.sub(r"\{(\w+)\}", lambda m: f"(?P<{m[1]}>{'.+' if m[1] == 'file' else '[^/]+'})", path))


_PATTERNS = [(name, _pattern(name.partition(" ")[2])) for name in ROUTES]


def find(request: Request) -> tuple[Operation, str, dict[str, str]]:
    """The operation, its name among `ROUTES`, and the names in the path.

    Raises:
        ServiceError: 501 for what is not served, 404 for what does not exist, 405 for another verb.
    """
    path = request.path.rstrip("/") if not re.search("/files/", request.path) else request.path
    found = [(name, match) for name, pattern in _PATTERNS if (match := pattern.fullmatch(path))]
    for name, match in found:
        if name.startswith(f"{request.method} "):
            return ROUTES[name], name, {key: unquote(value) for key, value in match.groupdict().items()}
    if _NOT_SERVED.fullmatch(path) or any("{file}" in name for name, _ in found):
        raise not_served(f"{request.method} {path}")
    if found:
        raise ServiceError(405, "UnsupportedHttpVerb", "The resource doesn't support the specified HTTP verb.")
    raise ServiceError(404, "ResourceNotFound", "The specified resource does not exist.")
