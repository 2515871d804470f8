"""The stand-in itself: HTTP in front, moto behind, and between them what moto leaves out.

Everything is under one lock.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cloudbench.rehearsal.aws import signatures
from cloudbench.rehearsal.aws.definitions import Definitions
from cloudbench.rehearsal.aws.ec2 import Instances
from cloudbench.rehearsal.aws.environments import Environments
from cloudbench.rehearsal.aws.failures import Failures
from cloudbench.rehearsal.aws.hosts import Hosts
from cloudbench.rehearsal.aws.images import Images
from cloudbench.rehearsal.aws.jobs import Jobs
from cloudbench.rehearsal.aws.metadata import Metadata
from cloudbench.rehearsal.aws.scenario import Scenario
from cloudbench.rehearsal.aws.wire import AwsError, Call, Extension, read_call
from cloudbench.rehearsal.aws.world import AwsWorld
from cloudbench.rehearsal.server import HttpServer, Request, Response

if TYPE_CHECKING:
    from cloudbench.rehearsal.clock import Clock
    from cloudbench.rehearsal.machines import Machines

INSTANCE_PROFILE = "ecsInstanceRole"


class AwsStandIn:
    """An AWS account on this machine, in one region.

    Requests that nobody signed are refused. It begins with a default network and the instance profile
    `ecsInstanceRole`.

    Args:
        machines: where its instances are; they outlive it, and are closed by whoever made them.
        file_systems: the folders of EFS, each called as its file system; without it none can be mounted.
        key: the id and the secret of the only key that may sign; any signature does where it is None.

    Raises:
        UsageError: moto is not installed.
    """

    def __init__(
        self,
        machines: Machines,
        clock: Clock,
        *,
        scenario: Scenario | None = None,
        file_systems: Path | None = None,
        key: tuple[str, str] | None = None,
    ) -> None:
        self.calls: Counter[str] = Counter()  # how often a client asked for what, such as `batch:SubmitJob`
        self.presigned: Counter[str] = Counter()  # the same for URLs that it had signed for others
        self._world = world = AwsWorld(machines, clock, scenario or Scenario(), file_systems)
        self._key = key
        self._hosts = Hosts(world)
        self._metadata = Metadata(world, self._hosts)
        self._failures = Failures(world)
        jobs = Jobs(world, self._hosts)
        environments = Environments(world, abandoned=jobs.abandon, changed=jobs.look)
        jobs.environments = environments
        self._hosts.changed = jobs.look
        parts = (environments, Definitions(world), jobs, Instances(world, self._hosts), Images())
        self._extensions: dict[str, Extension] = {}
        for part in parts:
            self._extensions |= part.extensions()
        self._server = HttpServer(self._answer)

    @property
    def account(self) -> str:
        """Its number, of twelve digits."""
        return self._world.cloud.account

    @property
    def faults(self) -> list[Exception]:
        """What went wrong in the stand-in itself."""
        return [*self._server.faults, *self._world.faults]

    def start(self, port: int = 0) -> str:
        """Begin to serve; the endpoint of every service."""
        iam = self._world.cloud.backend("iam")
        iam.create_instance_profile(name=INSTANCE_PROFILE, path="/", role_names=[], tags=[])
        self._world.url = self._server.start(port)
        self._world.start()
        return self._world.url

    def make_bucket(self, name: str) -> None:
        """Make a bucket, as a user has one before anything is run."""
        with self._world.lock:
            self._world.cloud.backend("s3").create_bucket(name, "us-east-1")

    def interrupt(self, instance_id: str) -> None:
        """Take a Spot instance back now, one of AWS Batch as well.

        Raises:
            LookupError: there is no such instance.
            ValueError: it is no Spot instance.
        """

        def interrupt() -> None:
            host = self._hosts.find(instance_id)
            if host is None:
                raise LookupError(f"there is no instance {instance_id}")
            host.interrupt()

        self._world.happens(interrupt)

    def close(self) -> None:
        """End the service and all that runs on its instances; the machines' folders stay."""
        self._server.close()
        self._world.stop()
        with self._world.lock:
            machines = [host.machine for host in self._hosts.living()]
        for machine in machines:
            self._world.end(machine)
        self._world.close()
        self._world.cloud.close()

    def _answer(self, request: Request) -> Response:
        if request.path.startswith("/machines/"):
            with self._world.lock:
                return self._metadata.answer(request)
        service = "s3"
        try:
            call = read_call(request)
            service = call.service
            if self._key is not None:
                signatures.check(request, *self._key)
            with self._world.lock:
                (self.presigned if call.presigned else self.calls)[call.name] += 1
                return self._carry_out(call)
        except AwsError as error:
            return error.response(service)

    def _carry_out(self, call: Call) -> Response:
        world = self._world
        if not call.presigned:
            self._failures.before(call)
        world.timers.play()
        extension = self._extensions.get(call.name)

        def ask() -> Response:
            request = call.request
            if extension and call.service == "batch":
                request = msgspec.structs.replace(request, body=msgspec.json.encode(call.parameters))
            return world.cloud.answer(request)

        response = extension(call, ask) if extension else ask()
        world.timers.play()  # what the request brought about at once
        if not call.presigned and response.status < 300:
            self._failures.after(call)
        return response
