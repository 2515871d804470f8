"""What AWS Batch needs before it takes a job, made once and used by every run of an owner that wants the same.

Nothing of it costs anything while no job runs. The last run that used it takes it away, in the order that AWS asks for.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from cloudbench.errors import InfrastructureError
from cloudbench.providers.aws.account import AwsAccount, Clients, code_of, translated, words_of
from cloudbench.providers.aws.batch_requests import A_WEEK_LATER, BATCH
from cloudbench.providers.aws.files import OWNER, SERVICE
from cloudbench.providers.aws.requests import SECURITY_GROUPS, SUBNETS, fill
from cloudbench.providers.base import Step

WAITING = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING")
"""The states of a job that has not ended."""

_PATIENCE_S = 300.0
_LONGEST_REMOVAL_S = 150.0
_WEEK = datetime.timedelta(days=7)
_EXISTS = ("InvalidLaunchTemplateName.AlreadyExistsException", "InvalidPlacementGroup.Duplicate")
_UNKNOWN = (
    *("InvalidLaunchTemplateName.NotFoundException", "InvalidLaunchTemplateId.NotFound"),
    *("InvalidPlacementGroup.Unknown", "InvalidPlacementGroup.InUse"),
)

_LISTED = {
    "compute-environment": ("describe_compute_environments", "computeEnvironments", "computeEnvironmentName"),
    "job-queue": ("describe_job_queues", "jobQueues", "jobQueueName"),
}
"""How things of Batch are listed: the call, the field of its answer and of its names, and where a thing has its own."""
_OF_EC2 = {
    "launch-template": ("describe_launch_templates", "LaunchTemplates", "LaunchTemplateName", "launch-template-name"),
    "placement-group": ("describe_placement_groups", "PlacementGroups", "GroupName", "group-name"),
}

Wire = Mapping[str, Any]
"""An object as the service sends it."""


class Things:
    """The placement groups, launch templates, environments, queues and job definitions of an account."""

    def __init__(self, account: AwsAccount, clients: Clients) -> None:
        self._account = account
        self._clients = clients
        self._pause_s = 0.2 if account.is_stand_in else 3.0

    @property
    def _batch(self) -> Any:
        return self._clients.get("batch")

    @property
    def _ec2(self) -> Any:
        return self._clients.get("ec2")

    def ensure(self, step: Step) -> None:
        """Make what the step names unless it is there, and wait until it can be used.

        Raises:
            InfrastructureError: it does not become usable; with the service's reason.
            CloudbenchError: AWS refuses it.
        """
        kind, name = step.handle.kind, step.handle.id
        (call, body), *_ = step.body.items()
        with translated(f"making the {kind.replace('-', ' ')} {name}"):
            if kind in ("compute-environment", "job-queue"):
                self._ensure_usable(kind, name, lambda: getattr(self._batch, call)(**self._filled(body)))
            elif kind == "job-definition":
                if not self._definitions(name):
                    self._batch.register_job_definition(**self._filled(body))
            else:
                _unless(_EXISTS, lambda: getattr(self._ec2, call)(**self._filled(body)))

    def remove(self, kind: str, name: str) -> bool:
        """Take it away, as far as AWS lets that go now; True when it was seen to be gone.

        Nobody may use it any more.
        """
        with translated(f"removing the {kind.replace('-', ' ')} {name}"):
            if kind in ("compute-environment", "job-queue"):
                return self._remove_in_order(kind, name)
            if kind == "job-definition":
                for definition in self._definitions(name):
                    self._batch.deregister_job_definition(jobDefinition=definition["jobDefinitionArn"])
                return not self._definitions(name)
            if name not in self._described(kind, name):
                return True
            if kind == "launch-template":
                _unless(_UNKNOWN, lambda: self._ec2.delete_launch_template(LaunchTemplateName=name))
            else:
                _unless(_UNKNOWN, lambda: self._ec2.delete_placement_group(GroupName=name))
            return name not in self._described(kind, name)

    def exists(self, kind: str, name: str) -> bool:
        """Whether it is there, also while it is being deleted."""
        with translated(f"looking for the {kind.replace('-', ' ')} {name}"):
            return name in self._described(kind, name)

    def waiting_jobs(self, queue: str) -> list[dict[str, Any]]:
        """The jobs of a queue that have not ended."""
        with translated(f"listing the jobs of queue {queue}"):
            # Asked without a filter, AWS Batch lists one state at a time; with one, all that it remembers.
            since = int((time.time() - _WEEK.total_seconds()) * 1000)
            found = self._jobs(queue, filters=[{"name": "AFTER_CREATED_AT", "values": [str(since)]}])
        return [job for job in found if job["status"] in WAITING]

    def jobs_named(self, queue: str, name: str) -> list[dict[str, Any]]:
        """The jobs of that name, ended ones too, the oldest first."""
        with translated(f"looking for the job {name}"):
            found = self._jobs(queue, filters=[{"name": "JOB_NAME", "values": [name]}])
        return sorted((job for job in found if job["jobName"] == name), key=lambda job: job["createdAt"])

    def of_owner(self, owner: str) -> dict[tuple[str, str], dict[str, str]]:
        """The tags of everything that carries the owner's, by its kind and name."""
        kinds = ("placement-group", "launch-template", "compute-environment", "job-queue", "job-definition")
        with translated("listing what is there"):
            return {
                (kind, name): tags
                for kind in kinds
                for name, tags in self._described(kind, owner=owner).items()
                if (tags.get(OWNER), tags.get(SERVICE)) == (owner, BATCH)
            }

    def problems_of(self, environments: Collection[str]) -> dict[str, str]:
        """What the service says against environments, or against the queues of these names, where all is not well."""
        found: dict[str, str] = {}
        with translated("asking how environments are"):
            for kind, (call, key, named) in _LISTED.items():
                for page in self._batch.get_paginator(call).paginate(**{key: sorted(environments)}):
                    for thing in page[key]:
                        if thing["status"] == "INVALID":
                            found[thing[named]] = f"{kind} {thing['status']}: {thing.get('statusReason')}"
        return found

    def _ensure_usable(self, kind: str, name: str, make: Callable[[], Any]) -> None:
        from botocore.exceptions import ClientError

        deadline = time.monotonic() + _PATIENCE_S
        while True:
            found = self._one(kind, name)
            if found is None:
                try:
                    make()
                except ClientError as error:
                    # From before, or of the request whose answer was lost; it is not always listed at once.
                    if "already exist" not in words_of(error).lower():
                        raise
            elif found["status"] == "INVALID":
                raise InfrastructureError(
                    f"the {kind.replace('-', ' ')} {name} cannot be used", why=found.get("statusReason")
                )
            elif found["status"] == "VALID":
                if found["state"] == "ENABLED":
                    return
                self._enable(kind, name, "ENABLED")
            if time.monotonic() > deadline:
                state = f"{found['status']}: {found.get('statusReason')}" if found else None
                raise InfrastructureError(f"the {kind.replace('-', ' ')} {name} is not usable yet", why=state)
            time.sleep(self._pause_s)

    def _remove_in_order(self, kind: str, name: str) -> bool:
        """Disable it, wait until that is done, then delete it; each is begun once the one before is finished."""
        from botocore.exceptions import ClientError

        deadline = time.monotonic() + _LONGEST_REMOVAL_S
        while (found := self._one(kind, name)) is not None:
            try:
                if found["status"] in ("VALID", "INVALID"):
                    if found["state"] == "ENABLED":
                        self._enable(kind, name, "DISABLED")
                    elif kind == "job-queue":
                        self._batch.delete_job_queue(jobQueue=name)
                    else:
                        self._batch.delete_compute_environment(computeEnvironment=name)
            except ClientError as error:
                if code_of(error) != "ClientException":  # it changes at the moment
                    raise
            if time.monotonic() > deadline:
                return False
            time.sleep(self._pause_s)
        return True

    def _enable(self, kind: str, name: str, state: str) -> None:
        if kind == "job-queue":
            self._batch.update_job_queue(jobQueue=name, state=state)
        else:
            self._batch.update_compute_environment(computeEnvironment=name, state=state)

    def _one(self, kind: str, name: str) -> dict[str, Any] | None:
        """A compute environment or a queue; None where there is none, or one that is only remembered."""
        call, key, _ = _LISTED[kind]
        found = getattr(self._batch, call)(**{key: [name]})[key]
        return next((thing for thing in found if thing["status"] != "DELETED"), None)

    def _definitions(self, name: str) -> list[dict[str, Any]]:
        pages = self._batch.get_paginator("describe_job_definitions").paginate(jobDefinitionName=name, status="ACTIVE")
        return [definition for page in pages for definition in page["jobDefinitions"]]

    def _jobs(self, queue: str, **options: Any) -> list[dict[str, Any]]:
        from botocore.exceptions import ClientError

        try:
            pages = self._batch.get_paginator("list_jobs").paginate(jobQueue=queue, **options)
            return [job for page in pages for job in page["jobSummaryList"]]
        except ClientError as error:
            if code_of(error) == "ClientException" and "exist" in words_of(error):
                return []
            raise

    def _described(self, kind: str, name: str | None = None, owner: str | None = None) -> dict[str, dict[str, str]]:
        """The tags of the things of a kind, by their names: one of them, or all, for EC2's all of an owner."""
        if kind in ("launch-template", "placement-group"):
            call, key, named, named_filter = _OF_EC2[kind]
            which = (named_filter, name) if name else (f"tag:{OWNER}", owner)
            found = getattr(self._ec2, call)(Filters=[{"Name": which[0], "Values": [which[1]]}])[key]
            return {thing[named]: tags_of(thing) for thing in found if thing.get("State") != "deleted"}
        if kind == "job-definition":
            options = {"jobDefinitionName": name} if name else {}
            pages = self._batch.get_paginator("describe_job_definitions").paginate(status="ACTIVE", **options)
            return {
                item["jobDefinitionName"]: item.get("tags", {}) for page in pages for item in page["jobDefinitions"]
            }
        call, key, named = _LISTED[kind]
        pages = self._batch.get_paginator(call).paginate(**({key: [name]} if name else {}))
        listed = [item for page in pages for item in page[key] if item["status"] != "DELETED"]
        return {item[named]: item.get("tags", {}) for item in listed}

    def _filled(self, body: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {A_WEEK_LATER: (datetime.datetime.now(datetime.timezone.utc) + _WEEK).isoformat()}
        if not self._account.subnets or not self._account.security_groups:
            values |= default_network(self._ec2, self._account)
        return dict(fill(body, values))


def default_network(ec2: Any, account: AwsAccount) -> dict[str, list[str]]:
    """The subnets and the security group of the region's default VPC, or the group of the VPC of the named subnets.

    Raises:
        InfrastructureError: the region has no default VPC.
    """
    subnets = list(account.subnets)
    with translated("looking for the default VPC"):
        if subnets:
            found = ec2.describe_subnets(SubnetIds=subnets)["Subnets"]
        else:
            found = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
        if not found:
            raise InfrastructureError(
                f"region {account.region} has no default VPC", todo="--aws subnets=subnet-…,subnet-…"
            )
        in_vpc = {"Name": "vpc-id", "Values": [found[0]["VpcId"]]}
        named = {"Name": "group-name", "Values": ["default"]}
        groups = ec2.describe_security_groups(Filters=[in_vpc, named])["SecurityGroups"]
    return {
        SUBNETS: [subnet["SubnetId"] for subnet in found],
        SECURITY_GROUPS: [group["GroupId"] for group in groups],
    }


def tags_of(thing: Wire) -> dict[str, str]:
    """The tags of a thing of EC2."""
    return {tag["Key"]: tag["Value"] for tag in thing.get("Tags", ())}


def _unless(codes: tuple[str, ...], call: Callable[[], Any]) -> None:
    """Make the call; an error with one of these codes says that it is done already."""
    from botocore.exceptions import ClientError

    try:
        call()
    except ClientError as error:
        if code_of(error) not in codes:
            raise
