"""The operations on pools, their nodes, and what the account offers."""

from __future__ import annotations

from cloudbench.rehearsal.azure_batch import files
from cloudbench.rehearsal.azure_batch.calls import Call
from cloudbench.rehearsal.azure_batch.images import SUPPORTED_IMAGES
from cloudbench.rehearsal.azure_batch.nodes import WORKS, Node
from cloudbench.rehearsal.azure_batch.query import listing, select
from cloudbench.rehearsal.azure_batch.service import not_served
from cloudbench.rehearsal.azure_batch.wire import ServiceError
from cloudbench.rehearsal.server import Response

_POOL_FIELDS = {"id", "state", "stateTransitionTime", "creationTime", "lastModified", "allocationState", "vmSize"}
_NODE_FIELDS = {"id", "state", "stateTransitionTime", "schedulingState", "vmSize", "isDedicated", "ipAddress"}
_CHANGEABLE = ("startTask", "applicationPackageReferences", "metadata")


def create(call: Call) -> Response:
    """POST /pools."""
    pool = call.service.create_pool(call.body("BatchPoolCreateOptions"))
    return call.answer(201, thing=pool, location=f"{call.service.world.url}/pools/{pool.id}")


def list_all(call: Call) -> Response:
    """GET /pools."""
    items = [pool.described() for pool in call.service.pools.values()]
    body = listing(items, call.request.query, url=call.url, model="BatchPool", key="id", fields=_POOL_FIELDS)
    return call.answer(200, body, metadata="pools")


def get(call: Call) -> Response:
    """GET and HEAD /pools/ID."""
    pool = call.service.pool(call.ids["pool"])
    call.check_conditions(pool.etag, pool.modified_at)
    if call.request.method == "HEAD":
        return call.answer(200, thing=pool)
    body = select(pool.described(), call.request.query, "BatchPool")
    return call.answer(200, body, metadata="pools/@Element", thing=pool)


def delete(call: Call) -> Response:
    """DELETE /pools/ID: answered at once, done later."""
    pool = call.service.pool(call.ids["pool"])
    call.check_conditions(pool.etag, pool.modified_at)
    call.service.delete_pool(pool)
    return call.answer(202)


def patch(call: Call) -> Response:
    """PATCH /pools/ID: what is named takes its new value."""
    pool = call.service.pool(call.ids["pool"])
    pool.must_be_active()
    call.check_conditions(pool.etag, pool.modified_at)
    changes = call.body("BatchPoolUpdateOptions")
    if pool.nodes and changes.keys() - {*_CHANGEABLE, "displayName", "targetNodeCommunicationMode"}:
        raise ServiceError(409, "OperationNotValidOnPool", "This can only be changed while the pool has no nodes.")
    pool.body |= {name: value for name, value in changes.items() if value is not None}
    pool.touch()
    return call.answer(200, thing=pool, location=call.url)


def update_properties(call: Call) -> Response:
    """POST /pools/ID/updateproperties: all that may change takes its new value."""
    pool = call.service.pool(call.ids["pool"])
    pool.must_be_active()
    changes = call.body("BatchPoolReplaceOptions")
    pool.body = {name: value for name, value in pool.body.items() if name not in _CHANGEABLE}
    pool.body |= {name: value for name, value in changes.items() if value is not None}
    pool.touch()
    return call.answer(204, thing=pool, location=call.url)


def resize(call: Call) -> Response:
    """POST /pools/ID/resize."""
    pool = call.service.pool(call.ids["pool"])
    call.check_conditions(pool.etag, pool.modified_at)
    body = call.body("BatchPoolResizeOptions")
    pool.resize(
        dedicated=body.get("targetDedicatedNodes"),
        low_priority=body.get("targetLowPriorityNodes"),
        timeout=body.get("resizeTimeout"),
        how=(body.get("nodeDeallocationOption") or "requeue").lower(),
    )
    return call.answer(202, thing=pool, location=call.url)


def stop_resize(call: Call) -> Response:
    """POST /pools/ID/stopresize."""
    pool = call.service.pool(call.ids["pool"])
    call.check_conditions(pool.etag, pool.modified_at)
    pool.stop_resize()
    return call.answer(202, thing=pool, location=call.url)


def remove_nodes(call: Call) -> Response:
    """POST /pools/ID/removenodes."""
    pool = call.service.pool(call.ids["pool"])
    call.check_conditions(pool.etag, pool.modified_at)
    body = call.body("BatchNodeRemoveOptions")
    pool.remove(body["nodeList"], how=(body.get("nodeDeallocationOption") or "requeue").lower())
    return call.answer(202, thing=pool, location=call.url)


def list_nodes(call: Call) -> Response:
    """GET /pools/ID/nodes."""
    items = [node.body() for node in call.service.pool(call.ids["pool"]).nodes]
    body = listing(items, call.request.query, url=call.url, model="BatchNode", key="id", fields=_NODE_FIELDS)
    return call.answer(200, body, metadata="nodes")


def get_node(call: Call) -> Response:
    """GET /pools/ID/nodes/ID."""
    body = select(_node(call).body(), call.request.query, "BatchNode")
    return call.answer(200, body, metadata="nodes/@Element")


def reboot_node(call: Call) -> Response:
    """POST /pools/ID/nodes/ID/reboot."""
    node = _node(call)
    how = (call.optional_body("BatchNodeRebootOptions").get("nodeRebootOption") or "requeue").lower()
    if node.state not in (*WORKS, "starttaskfailed", "unusable"):
        raise ServiceError(409, "OperationNotValidOnNode", f"The node is {node.state}.")
    if node.runs and how not in ("requeue", "terminate"):
        raise not_served("reboots that wait for tasks")
    node.reboot(how)
    return call.answer(202, location=call.url)


def disable_scheduling(call: Call) -> Response:
    """POST /pools/ID/nodes/ID/disablescheduling."""
    how = call.optional_body("BatchNodeDisableSchedulingOptions").get("nodeDisableSchedulingOption") or "requeue"
    node = _node(call)
    _must_be_scheduling(node, "enabled")
    node.scheduling = "disabled"
    node.clear(how.lower())
    return call.answer(200, location=call.url)


def enable_scheduling(call: Call) -> Response:
    """POST /pools/ID/nodes/ID/enablescheduling."""
    node = _node(call)
    _must_be_scheduling(node, "disabled")
    node.scheduling = "enabled"
    call.service.schedule()
    return call.answer(200, location=call.url)


def list_node_files(call: Call) -> Response:
    """GET /pools/ID/nodes/ID/files."""
    return files.list_below(call, _root(call), lambda name: f"{call.url}/{name}")


def node_file(call: Call) -> Response:
    """GET and HEAD of one file of a node."""
    return files.read(call, _root(call))


def node_counts(call: Call) -> Response:
    """GET /nodecounts."""
    items = [pool.counts() for pool in call.service.pools.values()]
    body = listing(
        items, call.request.query, url=call.url, model="BatchPoolNodeCounts", key="poolId", fields={"poolId"}
    )
    return call.answer(200, body, metadata="poolnodecounts")


def supported_images(call: Call) -> Response:
    """GET /supportedimages."""
    items = [{**image, "key": f"{number:04}"} for number, image in enumerate(SUPPORTED_IMAGES)]
    fields = {"nodeAgentSKUId", "osType", "verificationType"}
    body = listing(items, call.request.query, url=call.url, model="BatchSupportedImage", key="key", fields=fields)
    body["value"] = [{name: value for name, value in image.items() if name != "key"} for image in body["value"]]
    return call.answer(200, body, metadata="supportedimages")


def nothing(call: Call) -> Response:
    """A listing of what this account has none of."""
    return call.answer(200, {"value": []}, metadata=call.request.path.strip("/"))


def _node(call: Call) -> Node:
    return call.service.pool(call.ids["pool"]).node(call.ids["node"])


def _root(call: Call) -> files.Root:
    node = _node(call)
    try:
        return files.Root(node.root)
    except LookupError as error:
        code = "NodeStateUnusable" if node.state == "unusable" else "OperationNotValidOnNode"
        raise ServiceError(409, code, f"The node is {node.state}.") from error


def _must_be_scheduling(node: Node, state: str) -> None:
    if node.scheduling != state:
        message = "The specified node is already in the target scheduling state."
        raise ServiceError(409, "NodeAlreadyInTargetSchedulingState", message)
