"""Compute environments and job queues: moto's, with the states between a request and its effect.

moto alone makes and changes them at once, deletes whatever is asked for in any order, demands a service role, and
forgets how long a queue lets jobs wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from cloudbench.rehearsal.aws.wire import AwsError, Call, Extension, json_response
from cloudbench.rehearsal.server import Response

if TYPE_CHECKING:
    from cloudbench.rehearsal.aws.world import AwsWorld

SERVICE_ROLE = "AWSServiceRoleForBatch"


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    """How the API names one of the two."""

    word: str
    operation: str
    field: str

    @property
    def listing(self) -> str:
        return f"{self.field}s"


ENVIRONMENT = _Kind(word="compute environment", operation="ComputeEnvironment", field="computeEnvironment")
QUEUE = _Kind(word="job queue", operation="JobQueue", field="jobQueue")


class _Thing(msgspec.Struct, kw_only=True):
    kind: _Kind
    arn: str
    status: str
    reason: str
    seen_from: float
    limits: list[dict[str, Any]] = []


class Environments:
    """The queues and compute environments of the account.

    Args:
        abandoned: called with a queue's ARN when it is deleted.
        changed: called when one has become what it was to be.
    """

    def __init__(self, world: AwsWorld, *, abandoned: Callable[[str], None], changed: Callable[[], None]) -> None:
        self._world = world
        self._abandoned = abandoned
        self._changed = changed
        self._things: dict[str, _Thing] = {}

    def extensions(self) -> dict[str, Extension]:
        """What is answered here."""
        found: dict[str, Extension] = {}
        for kind in (ENVIRONMENT, QUEUE):
            name = kind.operation
            for verb, answer in (("Create", self._create), ("Update", self._update), ("Delete", self._delete)):
                found[f"batch:{verb}{name}"] = _bind(answer, kind)
            found[f"batch:Describe{name}s"] = _bind(self._describe, kind)
        return found

    def usable(self, thing: Any) -> bool:
        """Whether a queue or environment of moto's takes jobs."""
        return self._things[thing.arn].status == "VALID" and thing.state == "ENABLED"

    def invalid(self, thing: Any) -> bool:
        """Whether it never will."""
        return self._things[thing.arn].status == "INVALID"

    def limits(self, queue_arn: str) -> list[dict[str, Any]]:
        """How long a queue lets its jobs wait for which reason."""
        return list(self._things[queue_arn].limits)

    def _create(self, kind: _Kind, call: Call, ask: Callable[[], Response]) -> Response:
        call.parameters.setdefault("state", "ENABLED")
        if kind is QUEUE:
            self._check_environments(call.parameters)
        else:
            # As an account does where none is named: the service's own role, which is made when first needed.
            call.parameters.setdefault("serviceRole", self._service_role())
        response = ask()
        if response.status == 200:
            made = msgspec.json.decode(response.body)[f"{kind.field}Arn"]
            seen_from = self._world.now + self._world.scenario.stale_reads_s
            limits = call.parameters.get("jobStateTimeLimitActions") or []
            self._things[made] = _Thing(
                kind=kind, arn=made, status="CREATING", reason="", seen_from=seen_from, limits=limits
            )
            self._world.timers.after(self._world.scenario.change_s, lambda: self._settle(made))
        return response

    def _describe(self, kind: _Kind, call: Call, ask: Callable[[], Response]) -> Response:
        response = ask()
        if response.status != 200:
            return response
        body = msgspec.json.decode(response.body)
        listed = []
        for item in body[kind.listing]:
            thing = self._things[item[f"{kind.field}Arn"]]
            if thing.seen_from <= self._world.now:
                limits = {"jobStateTimeLimitActions": thing.limits} if thing.limits else {}
                told = {**item, **limits, "status": thing.status, "statusReason": thing.reason}
                listed.append({name: value for name, value in told.items() if value is not None})
        return json_response({kind.listing: listed})

    def _update(self, kind: _Kind, call: Call, ask: Callable[[], Response]) -> Response:
        thing = self._find(kind, call)
        if thing is None:
            named = call.parameters.get(kind.field)
            raise AwsError("ClientException", f"{kind.operation} {named} does not exist")
        if thing.status in ("CREATING", "UPDATING", "DELETING"):
            raise AwsError("ClientException", "Cannot update, resource is being modified")
        response = ask()
        if response.status == 200 and thing.status == "VALID":
            thing.status = "UPDATING"
            self._world.timers.after(self._world.scenario.change_s, lambda: self._settle(thing.arn))
        return response

    def _delete(self, kind: _Kind, call: Call, ask: Callable[[], Response]) -> Response:
        thing = self._find(kind, call)
        if thing is None:
            return json_response({})
        if thing.status in ("CREATING", "UPDATING", "DELETING"):
            raise AwsError("ClientException", "Cannot delete, resource is being modified")
        if self._state(thing) != "DISABLED":
            raise AwsError("ClientException", "Cannot delete, resource must be DISABLED first")
        if kind is ENVIRONMENT and self._has_queue(thing):
            raise AwsError("ClientException", "Cannot delete, found existing JobQueue relationship")
        thing.status = "DELETING"
        if kind is QUEUE:
            self._abandoned(thing.arn)
        self._world.timers.after(self._world.scenario.delete_s, lambda: self._gone(thing))
        return json_response({})

    def _settle(self, arn: str) -> None:
        thing = self._things.get(arn)
        if thing is None or thing.status not in ("CREATING", "UPDATING"):
            return
        error = self._world.scenario.environment_error
        if error and thing.kind is ENVIRONMENT:
            thing.status, thing.reason = "INVALID", error
        else:
            thing.status = "VALID"
            thing.reason = f"{thing.kind.operation} Healthy"
        self._changed()

    def _gone(self, thing: _Thing) -> None:
        batch = self._world.cloud.backend("batch")
        del self._things[thing.arn]
        if thing.kind is QUEUE:
            batch.delete_job_queue(thing.arn)
        else:
            batch.delete_compute_environment(thing.arn)

    def _find(self, kind: _Kind, call: Call) -> _Thing | None:
        named = str(call.parameters.get(kind.field))
        batch = self._world.cloud.backend("batch")
        found = batch.get_job_queue(named) if kind is QUEUE else batch.get_compute_environment(named)
        return self._things[found.arn] if found else None

    def _state(self, thing: _Thing) -> str:
        batch = self._world.cloud.backend("batch")
        find = batch.get_job_queue if thing.kind is QUEUE else batch.get_compute_environment
        return str(find(thing.arn).state)

    def _has_queue(self, thing: _Thing) -> bool:
        queues = self._world.cloud.backend("batch")._job_queues.values()
        return any(environment.arn == thing.arn for queue in queues for environment in queue.environments)

    def _check_environments(self, parameters: dict[str, Any]) -> None:
        batch = self._world.cloud.backend("batch")
        for item in parameters.get("computeEnvironmentOrder", []):
            named = item["computeEnvironment"]
            found = batch.get_compute_environment(named)
            if found and self._things[found.arn].status != "VALID":
                raise AwsError("ClientException", f"{named} is not a valid compute environment: it is not VALID yet")

    def _service_role(self) -> str:
        iam = self._world.cloud.backend("iam")
        for role in iam.roles.values():
            if role.name == SERVICE_ROLE:
                return str(role.arn)
        path = "/aws-service-role/batch.amazonaws.com/"
        role = iam.create_role(
            role_name=SERVICE_ROLE,
            assume_role_policy_document="{}",
            path=path,
            permissions_boundary=None,
            description="",
            tags=[],
            max_session_duration="3600",
        )
        return str(role.arn)


def _bind(answer: Callable[[_Kind, Call, Callable[[], Response]], Response], kind: _Kind) -> Extension:
    return lambda call, ask: answer(kind, call, ask)
