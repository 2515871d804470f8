"""The policy in the documentation is what the provider needs, and no more: compared with what a rehearsal asks for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cloudbench.providers.aws.readiness import find_out
from cloudbench.run import Outcome
from tests.providers.aws.world import AwsWorld, account_at
from tests.providers.conformance import FOREVER, ended, release_all, start, until, wait_for_line

PAGE = Path(__file__).parents[3] / "docs" / "aws.md"

# S3 has other names for what may be done than for the requests that do it.
OF_S3 = {
    "HeadBucket": "ListBucket",
    "ListObjectsV2": "ListBucket",
    "HeadObject": "GetObject",
    "DeleteObjects": "DeleteObject",
}
NOBODY_NEEDS = {"sts:GetCallerIdentity"}
NO_REQUESTS = {"iam:PassRole", "batch:TagResource"}
"""What may be done by the way, without a request of its own."""


def documented() -> set[str]:
    (policy,) = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return {action for statement in json.loads(policy)["Statement"] for action in statement["Action"]}


def asked(world: AwsWorld) -> set[str]:
    """What the requests of a rehearsal have to be allowed, those by signed addresses too."""
    found = set()
    for call in [*world.stand_in.calls, *world.stand_in.presigned]:
        service, _, operation = call.partition(":")
        found.add(f"{service}:{OF_S3.get(operation, operation) if service == 's3' else operation}")
    return found


def rehearsed(world: AwsWorld) -> set[str]:
    """What a run that fails and one that is stopped ask for from their begin to their end, and the doctor."""
    provider = world.connect()
    failing, stopped = (start(provider, world.plan(command)) for command in ("exit 3", FOREVER))
    wait_for_line(provider, stopped, b"line")
    provider.stop(stopped.job)
    for request, outcome in ((failing, Outcome.FAILED), (stopped, Outcome.CANCELLED)):
        assert ended(provider, request).outcome is outcome
        provider.logs(request.job)
        provider.collect(request.job, world.folder / "home")
        assert list(provider.find(request.plan.owner))
        handles = [step.handle for step in request.steps]
        until(lambda handles=handles: release_all(provider, handles))
    find_out(account_at(world.endpoint), owner=world.owner, service=world.service)
    return asked(world)


@pytest.mark.slow
def test_the_documented_policy_is_what_runs_ask_for(tmp_path: Path) -> None:
    found: set[str] = set()
    for service in ("batch", "ec2"):
        world = AwsWorld(tmp_path / service, service)
        try:
            found |= rehearsed(world)
        finally:
            world.close()
    assert found - NOBODY_NEEDS == documented() - NO_REQUESTS
