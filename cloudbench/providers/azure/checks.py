"""What stands against a run on Azure before anything is made, for both of its services."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cloudbench.catalog import find_size, retirement_problem
from cloudbench.errors import CloudbenchError
from cloudbench.plan import RunPlan
from cloudbench.providers.base import Problem


def check_size(plan: RunPlan) -> list[Problem]:
    """Whether the plan names a machine size that can be had; in a rehearsal a retired one is a warning."""
    if plan.setup.sku is None:
        what = f"{plan.label}: Azure needs a machine size"
        return [Problem(severity="error", what=what, todo="--sku NC4as_T4_v3", exit_code=2)]
    found = retirement_problem(find_size("azure", plan.setup.sku), rehearsal=plan.rehearsal)
    if found is None:
        return []
    return [Problem(severity=found.severity, what=found.what, why=found.why, todo=found.todo, exit_code=4)]


@contextlib.contextmanager
def errors_as_problems(problems: list[Problem]) -> Iterator[None]:
    """Add an error that is raised within to the problems."""
    try:
        yield
    except CloudbenchError as error:
        problems.append(
            Problem(severity="error", what=error.what, why=error.why, todo=error.todo, exit_code=error.exit_code)
        )
