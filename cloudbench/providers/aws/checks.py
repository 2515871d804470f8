"""What stands against a run on AWS before anything is made, for both of its services."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cloudbench.catalog import find_size, retirement_problem
from cloudbench.errors import CloudbenchError, UsageError
from cloudbench.plan import RunPlan
from cloudbench.providers.aws.account import AwsAccount, Clients
from cloudbench.providers.aws.files import Bucket
from cloudbench.providers.base import Problem


def check_size(plan: RunPlan) -> list[Problem]:
    """Whether the plan names a machine size that can be had; in a rehearsal a retired one is a warning."""
    if plan.setup.sku is None:
        what = f"{plan.label}: AWS needs a machine size"
        return [Problem(severity="error", what=what, todo="--sku g4dn.xlarge", exit_code=2)]
    found = retirement_problem(find_size("aws", plan.setup.sku), rehearsal=plan.rehearsal)
    if found is None:
        return []
    return [Problem(severity=found.severity, what=found.what, why=found.why, todo=found.todo, exit_code=4)]


def check_bucket(account: AwsAccount, bucket: Bucket) -> None:
    """Find the bucket.

    Raises:
        UsageError: it is not there.
        CloudbenchError: AWS does not let us look.
    """
    if not bucket.exists():
        raise UsageError(
            f"there is no bucket {account.bucket}",
            todo=f"aws s3 mb s3://{account.bucket} --region {account.region}",
        )


def check_credentials(account: AwsAccount, clients: Clients) -> list[Problem]:
    """A warning where the credentials end by themselves: addresses that they signed end with them."""
    credentials = None if account.is_stand_in else clients.session.get_credentials()
    if credentials is None or credentials.get_frozen_credentials().token is None:
        return []
    return [
        Problem(
            severity="warning",
            what="these AWS credentials are temporary, and so are the addresses by which nodes send their logs",
            why="an address ends with the credentials that signed it",
            todo="make the session last longer than the run",
        )
    ]


@contextlib.contextmanager
def errors_as_problems(problems: list[Problem]) -> Iterator[None]:
    """Add an error that is raised within to the problems."""
    try:
        yield
    except CloudbenchError as error:
        problems.append(
            Problem(severity="error", what=error.what, why=error.why, todo=error.todo, exit_code=error.exit_code)
        )
