"""The metadata service of each instance, at `/machines/ID` instead of the address that all instances share.

The nodes find it in `AWS_EC2_METADATA_SERVICE_ENDPOINT`, which AWS's own tools read as well. moto tells every caller
the same.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import msgspec

from cloudbench.rehearsal.aws.hosts import NOTICE_S
from cloudbench.rehearsal.server import Request, Response

if TYPE_CHECKING:
    from cloudbench.rehearsal.aws.hosts import Host, Hosts
    from cloudbench.rehearsal.aws.world import AwsWorld

_TOKEN = "a-token-for-this-instance"  # noqa: S105 - it opens nothing


class Metadata:
    """What instances ask about themselves, in version 2 of the protocol."""

    def __init__(self, world: AwsWorld, hosts: Hosts) -> None:
        self._world = world
        self._hosts = hosts

    def answer(self, request: Request) -> Response:
        """What the instance is told; 401 without a token."""
        _, _, name, *path = request.path.split("/")
        host = self._hosts.find(name)
        if host is None:
            return Response(status=404)
        what = "/".join(path)
        if request.method == "PUT" and what == "latest/api/token":
            return _text(_TOKEN)
        if request.headers.get("x-aws-ec2-metadata-token") != _TOKEN:
            return Response(status=401)
        told = self._tell(host, what.removeprefix("latest/meta-data/"))
        return Response(status=404) if told is None else _text(told)

    def _tell(self, host: Host, what: str) -> str | None:
        if what == "spot/instance-action":
            at = host.interrupted_at
            if at is None or self._world.now < at - NOTICE_S:
                return None
            when = datetime.datetime.fromtimestamp(at, datetime.timezone.utc)
            return msgspec.json.encode({"action": "terminate", "time": f"{when:%Y-%m-%dT%H:%M:%SZ}"}).decode()
        return {
            "instance-id": host.id,
            "instance-type": host.type,
            "local-ipv4": host.address,
            "ami-launch-index": str(host.index),
            "placement/availability-zone": host.zone,
            "placement/region": host.zone[:-1],
            "instance-life-cycle": "spot" if host.spot else "on-demand",
        }.get(what)


def _text(text: str) -> Response:
    return Response(status=200, headers={"Content-Type": "text/plain"}, body=text.encode())
