"""Plain EC2 instances as a provider: all of an attempt by one request, seen by one listing for all runs."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cloudbench.errors import InfrastructureError, UsageError
from cloudbench.plan import RunPlan
from cloudbench.providers.aws import ec2_requests
from cloudbench.providers.aws.account import AwsAccount, Clients, code_of, translated
from cloudbench.providers.aws.batch_things import default_network, tags_of
from cloudbench.providers.aws.checks import check_bucket, check_credentials, check_size, errors_as_problems
from cloudbench.providers.aws.ec2_requests import EC2, NAME, handle_of
from cloudbench.providers.aws.ec2_status import ENDED_BY, RELEASED, STOPPED, Instance, conclude, glance, read_instance
from cloudbench.providers.aws.files import ADDRESSES, ATTEMPT, NODES, OWNER, RUN, SERVICE, Bucket
from cloudbench.providers.aws.requests import FILES_ADDRESS, SECURITY_GROUPS, SUBNETS, fill, lifetime_s, size_of
from cloudbench.providers.base import LogChunk, LogFile, Problem, Request
from cloudbench.run import Handle, Outcome, Status

_MOST_VALUES = 200  # of one filter
_THERE = ("pending", "running", "shutting-down", "stopping", "stopped")
_YOUNG_S = 60.0
"""For so long after instances were asked for, that nobody lists them does not say that they are not there."""
_OLDER = ("K80", "V100")  # GPUs that the newest driver does not know any more
_DONE = ("InvalidPlacementGroup.Duplicate", "InvalidPlacementGroup.Unknown", "InvalidPlacementGroup.InUse")


class AwsEc2Provider:
    """Runs each attempt on instances of its own. Stateless but for the moment in which it asked for them.

    Args:
        account: whose instances and whose bucket.
    """

    def __init__(self, account: AwsAccount) -> None:
        self._account = account
        self.clients = Clients(account)
        self._bucket = Bucket(account, self.clients)
        self._submitted_at: dict[str, float] = {}
        # Stand-in nodes share this machine: two runs at once would disturb each other's figures.
        self.capacity: int | None = 1 if account.is_stand_in else None
        self.poll_interval_s = 0.5 if account.is_stand_in else 10.0

    @property
    def _ec2(self) -> Any:
        return self.clients.get("ec2")

    def close(self) -> None:
        """Close the connections."""
        self.clients.close()

    def render(self, plan: RunPlan, attempt: int) -> Request:
        """The files, a placement group for several nodes, and all instances at once."""
        return ec2_requests.render(plan, attempt, self._account)

    def check(self, request: Request) -> Sequence[Problem]:
        """What stands against the request: the size, the account, its bucket and the machine image."""
        problems = check_size(request.plan)
        if any(problem.severity == "error" for problem in problems):
            return problems
        if self._account.missing:
            return [*problems, self._account.missing]
        problems += self._check_driver(request.plan)
        with errors_as_problems(problems):
            problems += check_credentials(self._account, self.clients)
            check_bucket(self._account, self._bucket)
            self._image(request)
        return problems

    def provision(self, request: Request) -> Iterator[Handle]:
        """Put the files and make the placement group.

        Raises:
            CloudbenchError: AWS refuses it, or a name belongs to another owner.
        """
        files, *groups = request.steps[:-1]
        yield files.handle
        self._bucket.make(
            files.handle.id,
            request.plan,
            request.attempt,
            lifetime_s=lifetime_s(request.plan),
            marks=files.body["metadata"],
            meeting=True,
        )
        for step in groups:
            yield step.handle
            with translated(f"making the placement group {step.handle.id}"):
                self._unless_done(self._ec2.create_placement_group, step.body["create_placement_group"])

    def submit(self, request: Request) -> Handle:
        """Ask for all instances at once; asked again, EC2 gives the same ones.

        Raises:
            CloudbenchError: AWS refuses it, or instances of that name belong to another owner.
        """
        from botocore.exceptions import ClientError

        name = request.job.id
        found = self._named([name]).get(name, [])
        if found:
            self._refuse_others(request, found)
            return request.job
        body = self._filled(request)
        with translated(f"running the instances of {name}"):
            try:
                self._ec2.run_instances(**body)
            except ClientError as error:
                # They were asked for before, with another address of the files.
                if code_of(error) != "IdempotentParameterMismatch":
                    raise
        self._submitted_at[name] = time.monotonic()
        return request.job

    def poll(self, jobs: Collection[Handle]) -> Mapping[Handle, Status]:
        """How the jobs stand: one listing for all of them, and what nodes said of each that has ended."""
        found = self._named([job.id for job in jobs])
        return {job: self._status(job, found.get(job.id, [])) for job in jobs}

    def stop(self, job: Handle) -> None:
        """Terminate the instances, which are marked as stopped before; what they pushed so far stays."""
        self._end(job, STOPPED)

    def logs(self, job: Handle) -> Sequence[LogFile]:
        """The log files that the nodes have pushed."""
        return self._bucket.logs(job.id)

    def read_log(self, job: Handle, node: int, name: str, offset: int) -> LogChunk:
        """At most 1 MiB of a log file, from the bucket."""
        return self._bucket.read_log(job.id, node, name, offset)

    def collect(self, job: Handle, into: Path) -> None:
        """Bring home what the nodes pushed."""
        self._bucket.collect(job.id, into)

    def release(self, handle: Handle) -> bool:
        """Terminate the instances, or take away what they needed once they are gone."""
        if handle.kind == "instances":
            return self._end(handle, RELEASED)
        if not self._gone(handle.id):
            return False
        if handle.kind == "placement-group":
            with translated(f"removing the placement group {handle.id}"):
                self._unless_done(self._ec2.delete_placement_group, {"GroupName": handle.id})
                return handle.id not in self._groups("group-name", handle.id)
        marks = self._bucket.marks(handle.id)
        if marks is not None and marks.get(RUN) != handle.run:
            raise InfrastructureError(f"the files runs/{handle.id} are not those of this run", why="their marks differ")
        return self._bucket.remove(handle.id)

    def find(self, owner: str) -> Iterable[Handle]:
        """The files, placement groups and instances with the owner's mark."""
        found = [handle_of("files", marks[RUN], int(marks[ATTEMPT])) for marks in self._bucket.find(owner, EC2)]
        with translated("listing what is there"):
            groups = self._groups(f"tag:{OWNER}", owner).values()
            states = {"Name": "instance-state-name", "Values": list(_THERE)}
            instances = self._listed([{"Name": f"tag:{OWNER}", "Values": [owner]}, states])
        found += [
            handle_of("placement-group", tags[RUN], int(tags[ATTEMPT])) for tags in groups if tags.get(SERVICE) == EC2
        ]
        found += [
            handle_of("instances", instance.tags[RUN], int(instance.tags[ATTEMPT]))
            for instance in instances
            if instance.tags.get(SERVICE) == EC2
        ]
        return list(dict.fromkeys(found))

    def _status(self, job: Handle, instances: Sequence[Instance]) -> Status:
        status = glance(instances) if instances else None
        if status is not None:
            return status
        marks = instances[0].tags if instances else self._bucket.marks(job.id)
        nodes = int((marks or {}).get(NODES, 1))
        said = [self._bucket.status(job.id, node) for node in range(nodes)] if marks else []
        if not instances and not any(status and status.outcome for status in said):
            age_s = self._bucket.age_s(job.id)
            if age_s is not None and (age_s < _YOUNG_S or self._is_young(job.id)):
                return Status(vendor_state="not listed yet")
            return Status(outcome=Outcome.INFRASTRUCTURE, reason="EC2 does not know the instances of the job")
        return conclude(instances, said)

    def _end(self, job: Handle, why: str) -> bool:
        """Have no instance of the job running; True when that was seen."""
        instances = self._named([job.id]).get(job.id, [])
        if others := {instance.tags.get(RUN) for instance in instances} - {job.run}:
            raise InfrastructureError(
                f"the instances {job.id} are not those of this run", why=f"they belong to {', '.join(map(str, others))}"
            )
        alive = [
            instance.id for instance in instances if instance.state in ("pending", "running", "stopping", "stopped")
        ]
        if alive:
            with translated(f"terminating the instances of {job.id}"):
                unmarked = [instance.id for instance in instances if ENDED_BY not in instance.tags]
                if unmarked:
                    self._ec2.create_tags(Resources=unmarked, Tags=[{"Key": ENDED_BY, "Value": why}])
                self._ec2.terminate_instances(InstanceIds=alive)
            return self._gone(job.id)
        return all(instance.state == "terminated" for instance in instances) and (
            bool(instances) or not self._is_young(job.id)
        )

    def _gone(self, name: str) -> bool:
        instances = self._named([name]).get(name, [])
        return all(instance.state == "terminated" for instance in instances)

    def _is_young(self, name: str) -> bool:
        return time.monotonic() - self._submitted_at.get(name, -_YOUNG_S) < _YOUNG_S

    def _named(self, names: Sequence[str]) -> dict[str, list[Instance]]:
        """The instances of each name, in the order of their launch; ended ones as long as EC2 lists them."""
        found: dict[str, list[Instance]] = {}
        with translated("listing instances"):
            for first in range(0, len(names), _MOST_VALUES):
                wanted = [{"Name": f"tag:{NAME}", "Values": list(names[first : first + _MOST_VALUES])}]
                for instance in self._listed(wanted):
                    found.setdefault(instance.tags[NAME], []).append(instance)
        return {name: sorted(instances, key=lambda one: one.index) for name, instances in found.items()}

    def _listed(self, filters: list[dict[str, Any]]) -> list[Instance]:
        pages = self._ec2.get_paginator("describe_instances").paginate(Filters=filters)
        return [
            read_instance(instance)
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        ]

    def _groups(self, filter_name: str, value: str) -> dict[str, dict[str, str]]:
        """The tags of placement groups, by their names."""
        found = self._ec2.describe_placement_groups(Filters=[{"Name": filter_name, "Values": [value]}])
        return {group["GroupName"]: tags_of(group) for group in found["PlacementGroups"] if group["State"] != "deleted"}

    def _refuse_others(self, request: Request, instances: Sequence[Instance]) -> None:
        for instance in instances:
            marks = instance.tags.get(OWNER), instance.tags.get(RUN)
            if marks != (request.plan.owner, request.plan.id):
                raise UsageError(
                    f"the instances {request.job.id} belong to another run",
                    why=f"they were made for {marks[0] or 'nobody'}, not {request.plan.owner}",
                )

    def _filled(self, request: Request) -> dict[str, Any]:
        """The body of the request; the address leaves its wrapping here and nowhere else."""
        address = self._bucket.address(request.job.id, ADDRESSES, lifetime_s=lifetime_s(request.plan))
        values: dict[str, Any] = {FILES_ADDRESS: address.reveal(), ec2_requests.IMAGE: self._image(request)}
        body = request.steps[-1].body["run_instances"]
        if "NetworkInterfaces" in body:
            network = default_network(self._ec2, self._account)
            values |= {SUBNETS: network[SUBNETS][0], SECURITY_GROUPS: network[SECURITY_GROUPS]}
        return dict(fill(body, values))

    def _check_driver(self, plan: RunPlan) -> list[Problem]:
        """A warning where the default machine image does not know the GPU."""
        size = size_of(plan)
        if self._account.image or plan.rehearsal or (size.gpu_maker == "nvidia" and size.gpu not in _OLDER):
            return []
        return [
            Problem(
                severity="warning",
                what=f"the Deep Learning AMI has no driver for the {size.gpu} of {size.name}",
                todo="--aws image=ami-… names one that has",
            )
        ]

    def _image(self, request: Request) -> str:
        """The machine image, as the region names it now."""
        named = self._account.image
        if named and named.startswith("ami-"):
            return named
        parameter = named or ec2_requests.IMAGE_PARAMETER.format(size_of(request.plan).architecture)
        with translated(f"asking for the machine image {parameter}"):
            return str(self.clients.get("ssm").get_parameter(Name=parameter)["Parameter"]["Value"])

    def _unless_done(self, call: Any, body: Mapping[str, Any]) -> None:
        """Make a call about a placement group that may be made again, or that must wait."""
        from botocore.exceptions import ClientError

        try:
            call(**body)
        except ClientError as error:
            if code_of(error) not in _DONE:
                raise
