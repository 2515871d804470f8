"""Plain virtual machines of Azure as a provider: one resource group for each attempt, seen through three listings.

Deleting the group deletes everything. Azure itself takes the machines away at a set time, also when no client ever
comes back. Nobody reaches into the machines: what they say, they push to the share.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cloudbench.errors import InfrastructureError, UsageError
from cloudbench.plan import RunPlan
from cloudbench.providers.attempt_files import write_changed
from cloudbench.providers.azure import vm_template
from cloudbench.providers.azure.account import AzureAccount
from cloudbench.providers.azure.checks import check_needs, check_size, errors_as_problems, refuse_missing_share
from cloudbench.providers.azure.share import ATTEMPT, GIVEN, OWNER, RUN
from cloudbench.providers.azure.vm_resources import Resources
from cloudbench.providers.azure.vm_share import STOPPED, VmShare
from cloudbench.providers.azure.vm_status import Seen, conclude, glance, read_machine
from cloudbench.providers.azure.vm_template import NODES, Given, attempt_handle
from cloudbench.providers.base import LogChunk, LogFile, Problem, Request
from cloudbench.run import Handle, Outcome, Status

_ASKED_AT_ONCE = 8
"""Deployments that one poll asks for, in turn: a poll costs the same, however many runs it is for."""


class AzureVmProvider:
    """Runs each attempt in a resource group of its own. Stateless: every answer comes from the account.

    Args:
        account: whose subscription and share.
    """

    def __init__(self, account: AzureAccount) -> None:
        self._account = account
        self._share = VmShare(account)
        self._resources = Resources(account)
        self._turns = itertools.count()
        # Stand-in machines share this one: two runs at once would disturb each other's figures.
        self.capacity: int | None = 1 if account.is_stand_in else None
        self.poll_interval_s = 0.5 if account.is_stand_in else 10.0

    def close(self) -> None:
        """Close the connections."""
        self._resources.close()
        self._share.close()

    def render(self, plan: RunPlan, attempt: int) -> Request:
        """The folder on the share, then the group with its deployment."""
        return vm_template.render(plan, attempt, self._account)

    def check(self, request: Request) -> Sequence[Problem]:
        """What stands against the request: the size, the limits of this service, the account and its share."""
        storage, image = vm_template.storage_of(request.plan), vm_template.image_of(request.plan)
        mounted = storage if storage != "local" else None
        problems = [
            *check_size(request.plan),
            *self._limits(request.plan),
            *check_needs(request.plan, self._account, mounted=mounted, image=image),
        ]
        if self._account.missing:
            return [*problems, self._account.missing]
        if any(problem.severity == "error" for problem in problems):
            return problems
        with errors_as_problems(problems):
            refuse_missing_share(self._share, self._account)
            self._resources.group(request.job.id)
        return problems

    def provision(self, request: Request) -> Iterator[Handle]:
        """Make the folder on the share.

        Raises:
            CloudbenchError: it belongs to another owner, or the share does not answer.
        """
        for step in request.steps[:-1]:
            yield step.handle
            lifetime_s = request.plan.machines_limit_s
            self._share.make(step.handle.id, request.plan, request.attempt, lifetime_s=lifetime_s)

    def submit(self, request: Request) -> Handle:
        """Make the group and begin its deployment, each of them once; what was stopped is not made again.

        Raises:
            CloudbenchError: Azure refuses it, or a group of that name belongs to another owner.
        """
        plan, attempt, name = request.plan, request.attempt, request.job.id
        if STOPPED in (self._share.marks(name) or {}):
            return request.job
        group = self._resources.group(name)
        if group is not None:
            self._refuse_others(request, group)
            if _is_deleting(group) or self._resources.deployment(name) is not None:
                return request.job
        given = self._given(request)
        self._resources.make_group(name, vm_template.group(plan, attempt, self._account, given))
        self._resources.deploy(name, vm_template.deployment(plan, attempt, self._account, given))
        return request.job

    def poll(self, jobs: Collection[Handle]) -> Mapping[Handle, Status]:
        """How the jobs stand: three listings for all of them, and one question more for each that has ended."""
        now = _now().isoformat()
        return {job: self._status(job, seen, now) for job, seen in self._see(jobs).items()}

    def stop(self, job: Handle) -> None:
        """Write down that it was stopped, and delete everything; what was pushed so far stays on the share."""
        group = self._resources.group(job.id)
        if group is not None and _tags(group).get(RUN) == job.run:
            try:
                self._share.stop(job.id, int(_tags(group).get(NODES, 0)))
            finally:  # a share that does not answer must not keep machines that cost
                self._resources.delete_group(job.id)

    def logs(self, job: Handle) -> Sequence[LogFile]:
        """The log files that the nodes have pushed."""
        return self._share.logs(job.id)

    def read_log(self, job: Handle, node: int, name: str, offset: int) -> LogChunk:
        """At most 1 MiB of a log file, from the share."""
        return self._share.read_log(job.id, node, name, offset)

    def collect(self, job: Handle, into: Path) -> None:
        """Bring home what the nodes pushed; where the job failed, also what only Azure has, as `service/…`."""
        self._share.collect(job.id, into)
        seen = self._see([job])[job]
        if seen.tags is not None and not seen.deleting:
            status = self._status(job, seen, _now().isoformat())
            if status.outcome not in (None, Outcome.SUCCEEDED):
                self._collect_diagnostics(job.id, seen, into / "service")

    def release(self, handle: Handle) -> bool:
        """Delete the group with all that is in it, or the folder; the folder only when the group is gone."""
        group = self._resources.group(handle.id)
        if handle.kind == "files":
            return group is None and self._share.remove(handle.id)
        if group is None:
            return True
        if _tags(group).get(RUN) != handle.run:
            raise InfrastructureError(
                f"the resource group {handle.id} is not the one that this run made", why="its tags differ"
            )
        if not _is_deleting(group):
            self._resources.delete_group(handle.id)
        return self._resources.group(handle.id) is None

    def find(self, owner: str) -> Iterable[Handle]:
        """The folders and groups with the owner's mark."""
        folders = self._share.find(owner, vm_template.SERVICE)
        found = [attempt_handle("files", marks[RUN], int(marks[ATTEMPT])) for marks in folders]
        for group in self._resources.groups(OWNER, owner):
            tags = _tags(group)
            if RUN in tags:
                found.append(attempt_handle("group", tags[RUN], int(tags[ATTEMPT])))
        return found

    def _limits(self, plan: RunPlan) -> Iterator[Problem]:
        """What this service cannot do, whatever the account."""
        account = self._account
        if plan.setup.pool:
            what = f"pool {plan.setup.pool}: virtual machines are of one run, and in no pool"
            yield Problem(severity="error", what=what, todo="--service batch, or leave it out", exit_code=2)
        if plan.machines_limit_s > vm_template.MOST_LIFETIME_S:
            yield Problem(
                severity="error",
                what=f"{plan.label}: a time limit of {plan.timeout_s:.0f} s is too long for virtual machines",
                why="the schedule by which Azure takes them away knows the time of day only",
                todo="--timeout 22h at most, or --service batch",
                exit_code=2,
            )
        if vm_template.image_of(plan) and account.registry and account.registry.password is None:
            yield Problem(
                severity="error",
                what=f"{plan.label}: a virtual machine pulls from {account.registry.server} with a password only",
                todo="set a name and a password of the registry, or --service batch",
                exit_code=2,
            )

    def _see(self, jobs: Collection[Handle]) -> dict[Handle, Seen]:
        """What the listings show of the jobs; deployments are asked for only where machines are missing."""
        groups = {group["name"].lower(): group for group in self._resources.groups()}
        if not any(job.id.lower() in groups for job in jobs):
            return {job: Seen() for job in jobs}
        machines, ended = self._resources.machines(), {}
        with contextlib.suppress(InfrastructureError):  # runs go on while the share does not answer
            ended = self._share.ended()
        found = {}
        for job in jobs:
            name = job.id.lower()
            group = groups.get(name)
            found[job] = Seen(
                tags=None if group is None else _tags(group),
                deleting=group is not None and _is_deleting(group),
                machines={key: read_machine(listed) for key, listed in machines.get(name, {}).items()},
                ended=frozenset(ended.get(name, ())),
            )
        waiting = [job for job, seen in found.items() if seen.is_incomplete]
        first = next(self._turns) * _ASKED_AT_ONCE
        asked = {waiting[(first + turn) % len(waiting)] for turn in range(min(_ASKED_AT_ONCE, len(waiting)))}
        return {job: self._with_error(job, seen) if job in asked else seen for job, seen in found.items()}

    def _with_error(self, job: Handle, seen: Seen) -> Seen:
        """The same with why the deployment failed, where it did."""
        properties = (self._resources.deployment(job.id) or {}).get("properties") or {}
        if str(properties.get("provisioningState")).lower() not in ("failed", "canceled"):
            return seen
        return msgspec.structs.replace(seen, error=properties.get("error") or {"code": "DeploymentFailed"})

    def _status(self, job: Handle, seen: Seen, now: str) -> Status:
        stopped = False
        if seen.tags is None:
            marks = self._share.marks(job.id) or {}
            if STOPPED not in marks:
                return Status(
                    outcome=Outcome.INFRASTRUCTURE,
                    reason=f"Azure has no resource group {job.id}: it is deleted, or was never made",
                )
            nodes, stopped = int(marks[STOPPED]), True
        else:
            status = glance(seen, now=now)
            if status is not None:
                return status
            nodes = seen.nodes
        said = [self._share.status(job.id, node) for node in range(nodes)]
        # What a script printed matters where its node program never said how it ended.
        lines = [
            () if status and status.outcome else self._share.last_lines(job.id, node)
            for node, status in enumerate(said)
        ]
        return conclude(seen, said, lines, stopped=stopped, now=now)

    def _collect_diagnostics(self, name: str, seen: Seen, into: Path) -> None:
        """Write what Azure has of a job that failed as files below `into`."""
        machines = self._resources.machines().get(name.lower(), {})
        found: dict[str, Any] = {
            "deployment.json": self._resources.deployment(name),
            "operations.json": self._resources.operations(name),
            "machines.json": machines,
        }
        for file, value in found.items():
            write_changed(into / file, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
        for node in sorted(seen.ended):
            printed = "\n".join(self._share.last_lines(name, node, count=1000))
            write_changed(into / f"node-{node}-script.log", f"{printed}\n".encode())

    def _refuse_others(self, request: Request, group: Mapping[str, Any]) -> None:
        """Refuse a group of our name that is not ours.

        Raises:
            UsageError: it belongs to another owner.
        """
        tags = _tags(group)
        if (tags.get(OWNER), tags.get(RUN)) != (request.plan.owner, request.plan.id):
            raise UsageError(
                f"the resource group {request.job.id} belongs to another run",
                why=f"it was made for {tags.get(OWNER, 'nobody')}, not {request.plan.owner}",
            )

    def _given(self, request: Request) -> Given:
        """What the placeholders of the bodies stand for; secrets leave their wrapping here and nowhere else."""
        plan, name, account = request.plan, request.job.id, self._account
        lifetime_s = plan.machines_limit_s
        until = (_now() + datetime.timedelta(seconds=lifetime_s)).replace(second=0, microsecond=0)
        password = account.registry.password if account.registry else None
        return Given(
            addresses={file: self._share.address(name, file, lifetime_s=lifetime_s).reveal() for file in GIVEN},
            ended=tuple(
                self._share.ended_address(name, node, lifetime_s=lifetime_s).reveal() for node in range(plan.nodes)
            ),
            public_key=throw_away_key(),
            shut_down_at=f"{until:%H%M}",
            until=until.isoformat(),
            storage_key=account.storage_key.reveal() if account.storage_key else "",
            registry_password=password.reveal() if password else "",
        )


def throw_away_key() -> str:
    """A public key for SSH whose other half is forgotten at once: Azure demands one, and nobody logs in."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = Ed25519PrivateKey.generate().public_key()
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _tags(group: Mapping[str, Any]) -> dict[str, str]:
    """The tags of a group; Azure keeps their names in any case."""
    return {name.lower(): value for name, value in (group.get("tags") or {}).items()}


def _is_deleting(group: Mapping[str, Any]) -> bool:
    return str((group.get("properties") or {}).get("provisioningState")).lower() in ("deleting", "deprovisioning")
