"""Pools: their sizes, how nodes are allocated to them and taken from them, and what goes wrong with that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cloudbench.rehearsal.azure_batch.models import without_secrets
from cloudbench.rehearsal.azure_batch.nodes import Node
from cloudbench.rehearsal.azure_batch.wire import Body, ServiceError, duration_s, stamp

if TYPE_CHECKING:
    from cloudbench.rehearsal.azure_batch.world import BatchWorld

_STATES = {
    **{state: state for state in ("creating", "idle", "offline", "preempted", "rebooting", "reimaging", "running")},
    **{state: state for state in ("starting", "unknown", "unusable", "deallocated", "deallocating")},
    "starttaskfailed": "startTaskFailed",
    "leavingpool": "leavingPool",
    "waitingforstarttask": "waitingForStartTask",
    "upgradingos": "upgradingOS",
}
_MESSAGES = {
    "AccountCoreQuotaReached": "The specified account has reached core quota",
    "AccountLowPriorityCoreQuotaReached": "The specified account has reached low-priority core quota",
    "AccountSpotCoreQuotaReached": "The specified account has reached spot core quota",
    "AllocationFailed": "Desired number of nodes could not be allocated",
    "AllocationTimedOut": "Desired number of dedicated nodes could not be allocated as the resize timeout was reached",
    "ResizeStopped": "Desired number of nodes could not be allocated as the resize was stopped",
    "UnsupportedVMSize": "The specified VM size is not supported",
}
_SHORTEST_RESIZE_S = 300.0


class Pool:
    """A pool from its creation until it is gone.

    Args:
        body: what the request asked for, checked already.
        changed: called when nodes have become ready or are gone.
    """

    def __init__(self, world: BatchWorld, body: Body, changed: Callable[[], None]) -> None:
        self.world = world
        self.id: str = body["id"]
        self.body = {name: value for name, value in body.items() if value is not None}
        self.nodes: list[Node] = []
        self.state = "active"
        self.allocation = "steady"
        self.errors: list[Body] = []
        self.node_is_ready = changed
        self.created_at = self.state_at = self.allocation_at = world.now
        self._dedicated = self.body.get("targetDedicatedNodes") or 0
        self._low_priority = self.body.get("targetLowPriorityNodes") or 0
        self._resize = 0
        self._unusable_left = world.scenario.unusable_nodes
        self._gone: Callable[[Pool], None] | None = None
        self._delay_is_over = False
        self.touch()
        if self._dedicated or self._low_priority:
            self._begin_resize()

    def touch(self) -> None:
        """Be a new version, for those who compare ETags."""
        self.etag = self.world.etag()
        self.modified_at = self.world.now

    @property
    def slots(self) -> int:
        """Task slots of each node."""
        return int(self.body.get("taskSlotsPerNode") or 1)

    @property
    def start_task(self) -> Body | None:
        """The command that every node runs first."""
        task: Body | None = self.body.get("startTask")
        return task

    @property
    def image(self) -> Body:
        """The image that its machines boot from."""
        image: Body = self.body["virtualMachineConfiguration"].get("imageReference") or {}
        return image

    @property
    def images_to_prefetch(self) -> list[str]:
        """The container images that a node has before it runs anything."""
        containers: Body = self.body["virtualMachineConfiguration"].get("containerConfiguration") or {}
        return containers.get("containerImageNames") or []

    @property
    def runs_several_nodes(self) -> bool:
        """Whether a multi-instance task can ever run here."""
        return bool(self.body.get("enableInterNodeCommunication")) and self.slots == 1

    def node(self, node_id: str) -> Node:
        """The node of that id.

        Raises:
            ServiceError: 404.
        """
        for node in self.nodes:
            if node.id.lower() == node_id.lower():
                return node
        raise ServiceError(404, "NodeNotFound", "The specified node does not exist.")

    def resize(self, *, dedicated: int | None, low_priority: int | None, timeout: str | None, how: str) -> None:
        """Aim at that many nodes; what runs on those that leave ends as `how` says.

        Raises:
            ServiceError: 409, while another resize goes on.
        """
        self.must_be_active()
        if self.allocation != "steady":
            raise ServiceError(409, "PoolBeingResized", "The specified pool is being resized.")
        self._dedicated = self._dedicated if dedicated is None else dedicated
        self._low_priority = self._low_priority if low_priority is None else low_priority
        if timeout:
            check_resize_timeout(timeout)
            self.body["resizeTimeout"] = timeout
        self._begin_resize(how)

    def stop_resize(self) -> None:
        """Stay with the nodes that are there.

        Raises:
            ServiceError: 409, where no resize goes on.
        """
        self.must_be_active()
        if self.allocation != "resizing":
            raise ServiceError(409, "PoolNotResizing", "The specified pool is not being resized.")
        self._allocate("stopping")
        self._end_resize("ResizeStopped")

    def remove(self, node_ids: list[str], *, how: str) -> None:
        """Take these nodes out, and aim at no others in their place; what runs there ends as `how` says.

        Raises:
            ServiceError: 404 where one is not there, 409 while a resize goes on.
        """
        self.must_be_active()
        if self.allocation != "steady":
            raise ServiceError(409, "PoolBeingResized", "The specified pool is being resized.")
        nodes = [self.node(node_id) for node_id in node_ids]
        self._dedicated -= sum(node.dedicated for node in nodes)
        self._low_priority -= sum(not node.dedicated for node in nodes)
        for node in nodes:
            node.leave(how)
        self._begin_resize(how)

    def must_be_active(self) -> None:
        """Refuse what cannot be asked of a pool that goes away."""
        if self.state == "deleting":
            raise ServiceError(409, "PoolBeingDeleted", "The specified pool is being deleted.")

    def delete(self, gone: Callable[[Pool], None]) -> None:
        """Go away, later; `gone` is called then."""
        self.must_be_active()
        self.state, self.state_at = "deleting", self.world.now
        self._resize += 1
        self._gone = gone
        self.touch()
        for node in list(self.nodes):
            node.leave()
        self.world.timers.after(self.world.scenario.delete_s, self._may_vanish)

    def forget(self, node: Node) -> None:
        """A node has left, and nothing of it runs any more."""
        self.nodes.remove(node)
        self.touch()
        self.node_is_ready()
        self._vanish()

    def counts(self) -> Body:
        """How many nodes are in which state."""
        body: Body = {"poolId": self.id}
        for name, dedicated in (("dedicated", True), ("lowPriority", False)):
            nodes = [node for node in self.nodes if node.dedicated is dedicated]
            counts = {wire: sum(node.state == state for node in nodes) for state, wire in _STATES.items()}
            body[name] = {**counts, "total": len(nodes)}
        return body

    def described(self) -> Body:
        """The pool as the service describes it."""
        present = [node for node in self.nodes if node.state != "leavingpool"]
        body: Body = {
            "taskSlotsPerNode": 1,
            "taskSchedulingPolicy": {"nodeFillType": "spread"},
            "resizeTimeout": "PT15M",
            "enableAutoScale": False,
            "enableInterNodeCommunication": False,
            **without_secrets(self.body),
            "url": f"{self.world.url}/pools/{self.id}",
            "eTag": self.etag,
            "lastModified": stamp(self.modified_at),
            "creationTime": stamp(self.created_at),
            "state": self.state,
            "stateTransitionTime": stamp(self.state_at),
            "allocationState": self.allocation,
            "allocationStateTransitionTime": stamp(self.allocation_at),
            "currentDedicatedNodes": sum(node.dedicated for node in present),
            "currentLowPriorityNodes": sum(not node.dedicated for node in present),
            "targetDedicatedNodes": self._dedicated,
            "targetLowPriorityNodes": self._low_priority,
        }
        if self.errors and self.allocation == "steady":
            body["resizeErrors"] = self.errors
        return body

    def _allocate(self, allocation: str) -> None:
        self.allocation, self.allocation_at = allocation, self.world.now
        self.touch()

    def _begin_resize(self, how: str = "requeue") -> None:
        self._resize += 1
        self.errors = []
        self._allocate("resizing")
        resize = self._resize
        self.world.timers.after(self.world.scenario.allocation_s, lambda: self._add_and_take_nodes(resize, how))

    def _add_and_take_nodes(self, resize: int, how: str) -> None:
        if resize != self._resize:
            return
        scenario = self.world.scenario
        granted = scenario.nodes_granted
        missing = 0
        for dedicated, target in ((True, self._dedicated), (False, self._low_priority)):
            present = [node for node in self.nodes if node.dedicated is dedicated and not node.leaves]
            present.sort(key=lambda node: -len(node.runs))
            for node in present[target:]:
                node.leave(how)
            for _ in range(target - len(present)):
                if granted is not None and len(self.nodes) >= granted:
                    missing += 1
                else:
                    self._add_node(dedicated=dedicated)
        if scenario.stale_resize_error:
            self._end_resize(scenario.stale_resize_error)
        elif not missing:
            self._end_resize(None)
        elif (code := scenario.allocation_error or "AllocationTimedOut") == "AllocationTimedOut":
            timeout_s = scenario.resize_timeout_s or duration_s(self.body.get("resizeTimeout") or "PT15M")
            left_s = max(0.0, timeout_s - scenario.allocation_s)
            self.world.timers.after(left_s, lambda: self._time_out(resize, code))
        else:
            self._end_resize(code)

    def _time_out(self, resize: int, code: str) -> None:
        if resize == self._resize:
            self._end_resize(code)

    def _add_node(self, *, dedicated: bool) -> None:
        unusable = self._unusable_left > 0
        self._unusable_left -= unusable
        self.nodes.append(Node(self, dedicated=dedicated, unusable=unusable))

    def _end_resize(self, code: str | None) -> None:
        self._resize += 1
        if code is not None:
            self.errors = [{"code": code, "message": _MESSAGES.get(code, "The resize failed."), "values": []}]
        self._allocate("steady")

    def _may_vanish(self) -> None:
        self._delay_is_over = True
        self._vanish()

    def _vanish(self) -> None:
        if self._gone is not None and self._delay_is_over and not self.nodes:
            self._gone(self)


def check_resize_timeout(text: str) -> None:
    """Refuse a resize timeout of less than five minutes."""
    if duration_s(text) < _SHORTEST_RESIZE_S:
        message = "The value provided for one of the properties in the request body is invalid."
        values = {"PropertyName": "resizeTimeout", "Reason": "the shortest resize timeout is five minutes"}
        raise ServiceError(400, "InvalidPropertyValue", message, values=values)
