"""The contract between the local provider and the way in which it runs its nodes."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from cloudbench.errors import InfrastructureError
from cloudbench.plan import RunPlan
from cloudbench.providers.base import Problem, Step
from cloudbench.providers.local.workspace import Workspace
from cloudbench.run import Handle


class ServiceLostError(InfrastructureError):
    """What runs the nodes does not answer; they may be running still."""


class Service(Protocol):
    """How nodes run on this machine. Every method but `steps` may raise `ServiceLostError`."""

    name: str

    def steps(self, plan: RunPlan, workspace: Workspace) -> tuple[Step, ...]:
        """What is done once the workspace exists; the last step starts the nodes. Pure."""

    def check(self, plan: RunPlan) -> list[Problem]:
        """What stands against the plan with this service."""

    def make(self, step: Step) -> None:
        """Take one of the steps before the last; finds instead of making twice."""

    def start(self, step: Step, workspace: Workspace, nodes: Collection[int]) -> None:
        """Start the programs of these nodes, none of which lives."""

    def alive(self, workspaces: Sequence[Workspace]) -> dict[Workspace, set[int]]:
        """The nodes of each attempt whose program lives."""

    def signal(self, workspace: Workspace, number: signal.Signals) -> None:
        """SIGTERM to the node programs, or SIGKILL to everything of the attempt."""

    def release(self, handle: Handle, workspace: Workspace) -> bool:
        """Remove what one of the steps made; True only when it was seen to be gone."""

    def find(self, owner: str, workspaces: Sequence[Workspace]) -> Iterator[Handle]:
        """What exists of that owner beside the workspaces, which are all of that owner and this service."""
