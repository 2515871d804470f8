"""Instances that are asked for from EC2: their user data runs, and they end as they are told to.

moto alone starts instances anew for a `ClientToken` that it has seen, runs no user data, never lacks anything and
shows at once what was made; it has no placement groups.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cloudbench.errors import InfrastructureError
from cloudbench.rehearsal.aws import programs
from cloudbench.rehearsal.aws.hosts import STATES
from cloudbench.rehearsal.aws.wire import AwsError, Body, Call, Extension
from cloudbench.rehearsal.aws.xml import ec2_response
from cloudbench.rehearsal.guest import LIVES_WITH_THE_REHEARSAL
from cloudbench.rehearsal.server import Response

if TYPE_CHECKING:
    from cloudbench.rehearsal.aws.hosts import Host, Hosts
    from cloudbench.rehearsal.aws.world import AwsWorld

_CONSOLE = "console.log"
_PAUSE_S = 0.1


class Instances:
    """What EC2 answers about instances and placement groups."""

    def __init__(self, world: AwsWorld, hosts: Hosts) -> None:
        self._world = world
        self._hosts = hosts
        self._given: dict[str, tuple[Body, Response]] = {}
        self._seen_from: dict[str, float] = {}
        self._groups: dict[str, Body] = {}

    def extensions(self) -> dict[str, Extension]:
        """What is answered here."""
        return {
            "ec2:RunInstances": self._run,
            "ec2:TerminateInstances": self._terminate,
            "ec2:StopInstances": self._stop,
            "ec2:StartInstances": self._start,
            "ec2:DescribeInstances": self._describe,
            "ec2:GetConsoleOutput": self._console,
            "ec2:CreatePlacementGroup": self._create_group,
            "ec2:DescribePlacementGroups": self._describe_groups,
            "ec2:DeletePlacementGroup": self._delete_group,
        }

    def _run(self, call: Call, ask: Callable[[], Response]) -> Response:
        token = call.parameters.get("ClientToken", "")
        if token in self._given:
            asked, response = self._given[token]
            if asked != call.parameters:
                message = (
                    "Arguments on this idempotent request are inconsistent with arguments used in previous requests"
                )
                raise AwsError("IdempotentParameterMismatch", message)
            return response
        programs.check(base64.b64decode(call.parameters.get("UserData", "")).decode())
        group = call.parameters.get("Placement.GroupName")
        if group and group not in self._groups:
            raise AwsError("InvalidPlacementGroup.Unknown", f"The placement group {group!r} is unknown.")
        self._hosts.check_room(str(call.parameters.get("InstanceType")), int(call.parameters["MinCount"]))
        response = ask()
        if response.status == 200:
            response = self._adopt(response, group)
            if token:
                self._given[token] = (call.parameters, response)
        return response

    def _adopt(self, response: Response, group: str | None) -> Response:
        """Put machines behind moto's newest instances, and tell their addresses."""
        reservation = list(self._world.cloud.backend("ec2").reservations.values())[-1]
        before = [instance.private_ip for instance in reservation.instances]
        hosts = self._hosts.adopt(reservation.instances, group=group)
        self._seen_from[reservation.id] = self._world.now + self._world.scenario.stale_reads_s
        text = response.body.decode()
        for address, host in zip(before, hosts, strict=True):
            text = text.replace(f">{address}<", f">{host.address}<")
            host.ready = lambda host=host: self._begin(host)  # type: ignore[misc]
        text = text.replace("<code>16</code><name>running</name>", "<code>0</code><name>pending</name>")
        return Response(status=200, headers={"Content-Type": "text/xml;charset=UTF-8"}, body=text.encode())

    def _begin(self, host: Host) -> None:
        """Run its user data as the machine's first program, and heed its `shutdown`."""
        folder = host.machine.folder
        programs.install(folder, self._world.file_systems)
        if not host.user_data.startswith("#!"):
            return
        script, console, work = folder / "user-data", folder / _CONSOLE, folder / "work"
        script.write_text(programs.placed(host.user_data, folder))
        script.chmod(0o700)
        work.mkdir()
        endpoint = f"{self._world.url}/machines/{host.id}"
        environment = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": endpoint}
        try:
            command = f"{LIVES_WITH_THE_REHEARSAL}exec ../user-data"
            host.machine.run(command, cwd=work, environment=environment, stdout=console, stderr=console)
        except InfrastructureError as error:
            console.write_text(f"{error}\n")
        self._world.background(lambda: self._watch(host))

    def _watch(self, host: Host) -> None:
        """Bring about what its programs ask for."""
        requests = host.machine.folder / programs.REQUESTS
        seen, at = 0, math.inf
        while host.alive and not self._world.closing.wait(_PAUSE_S):
            lines = requests.read_text().splitlines() if requests.exists() else []
            for line in lines[seen:]:
                minutes = programs.minutes_left(line.split())
                at = math.inf if minutes is None else self._world.timers.clock.now() + minutes * 60
            if seen != len(lines):
                seen = len(lines)
                programs.hear(host.machine.folder, seen)
            if self._world.timers.clock.now() >= at:
                self._world.happens(host.shut_down)
                return

    def _terminate(self, call: Call, ask: Callable[[], Response]) -> Response:
        hosts = self._known(call)
        if hosts is None:
            return ask()  # moto refuses it as EC2 does
        before = [host.state for host in hosts]
        for host in hosts:
            host.terminate()
        return ec2_response(call.operation, {"instancesSet": _changes(hosts, before)})

    def _stop(self, call: Call, ask: Callable[[], Response]) -> Response:
        hosts = self._known(call)
        if hosts is None:
            return ask()
        before = [host.state for host in hosts]
        for host in hosts:
            host.stop()
        return ec2_response(call.operation, {"instancesSet": _changes(hosts, before)})

    def _start(self, call: Call, ask: Callable[[], Response]) -> Response:
        raise AwsError("UnsupportedOperation", "the stand-in starts no instance a second time")

    def _describe(self, call: Call, ask: Callable[[], Response]) -> Response:
        """What is there, but for what is too new to be seen."""
        reservations = self._world.cloud.backend("ec2").reservations
        hidden = [name for name, at in self._seen_from.items() if at > self._world.now]
        kept = {name: reservations.pop(name) for name in hidden}
        try:
            return ask()
        finally:
            reservations.update(kept)

    def _console(self, call: Call, ask: Callable[[], Response]) -> Response:
        host = self._hosts.find(str(call.parameters.get("InstanceId")))
        if host is None:
            return ask()
        console = host.machine.folder / _CONSOLE
        text = console.read_bytes() if console.exists() else b""
        return ec2_response(call.operation, {"instanceId": host.id, "output": base64.b64encode(text[-65536:]).decode()})

    def _create_group(self, call: Call, ask: Callable[[], Response]) -> Response:
        name = str(call.parameters.get("GroupName"))
        if name in self._groups:
            raise AwsError("InvalidPlacementGroup.Duplicate", f"The placement group {name!r} already exists.")
        number = str(uuid4()).replace("-", "")[:17]
        tags = [
            {"key": value, "value": call.parameters[key.removesuffix("Key") + "Value"]}
            for key, value in call.parameters.items()
            if key.startswith("TagSpecification.1.Tag.") and key.endswith(".Key")
        ]
        group = {
            "groupName": name,
            "groupId": f"pg-{number}",
            "strategy": call.parameters.get("Strategy", "cluster"),
            "state": "available",
            "groupArn": f"arn:aws:ec2:us-east-1:{self._world.cloud.account}:placement-group/{name}",
            "tagSet": tags,
        }
        self._groups[name] = group
        return ec2_response(call.operation, {"placementGroup": group})

    def _describe_groups(self, call: Call, ask: Callable[[], Response]) -> Response:
        names = call.listed("GroupName")
        if missing := [name for name in names if name not in self._groups]:
            raise AwsError("InvalidPlacementGroup.Unknown", f"The placement group {missing[0]!r} is unknown.")
        filters = _filters(call)
        found = [group for group in self._groups.values() if not names or group["groupName"] in names]
        found = [group for group in found if all(_has(group, name, values) for name, values in filters.items())]
        return ec2_response(call.operation, {"placementGroupSet": found})

    def _delete_group(self, call: Call, ask: Callable[[], Response]) -> Response:
        name = str(call.parameters.get("GroupName"))
        if name not in self._groups:
            raise AwsError("InvalidPlacementGroup.Unknown", f"The placement group {name!r} is unknown.")
        if self._hosts.in_group(name):
            message = f"The placement group {name!r} is in use and may not be deleted."
            raise AwsError("InvalidPlacementGroup.InUse", message)
        del self._groups[name]
        return ec2_response(call.operation, {"return": "true"})

    def _known(self, call: Call) -> list[Host] | None:
        found = [self._hosts.find(name) for name in call.listed("InstanceId")]
        known = [host for host in found if host is not None]
        return known if known and len(known) == len(found) else None


def _changes(hosts: list[Host], before: list[str]) -> list[Body]:
    return [
        {
            "instanceId": host.id,
            "currentState": {"code": STATES[host.state], "name": host.state},
            "previousState": {"code": STATES[state], "name": state},
        }
        for host, state in zip(hosts, before, strict=True)
    ]


def _filters(call: Call) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    number = 1
    while name := call.parameters.get(f"Filter.{number}.Name"):
        found[name] = call.listed(rf"Filter\.{number}\.Value")
        number += 1
    return found


def _has(group: Body, name: str, values: list[str]) -> bool:
    tags: list[Any] = group["tagSet"]
    if name.startswith("tag:"):
        return any(tag["key"] == name.removeprefix("tag:") and tag["value"] in values for tag in tags)
    return name == "group-name" and group["groupName"] in values
