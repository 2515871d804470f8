"""What the parts of a stand-in of Azure share beside its time and its machines."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from cloudbench.rehearsal.azure_batch.scenario import Scenario
from cloudbench.rehearsal.azure_batch.wire import Body, stamp
from cloudbench.rehearsal.world import World

if TYPE_CHECKING:
    from cloudbench.rehearsal.clock import Clock
    from cloudbench.rehearsal.machines import Machines

# The folder behind an entry of a pool's `mountConfiguration`; an OSError says why it cannot be mounted.
Shares = Callable[[Body], Path]


def no_shares(mount: Body) -> Path:
    """No share is there to be mounted."""
    raise FileNotFoundError(f"no such share: {', '.join(mount)}")


class AzureWorld(World):
    """The world of any of Azure's services that has machines."""

    def __init__(self, machines: Machines, clock: Clock, scenario: Scenario) -> None:
        super().__init__(machines, clock)
        self.scenario = scenario
        self.preemptions_left = scenario.preemptions


class BatchWorld(AzureWorld):
    """The world of a Batch account.

    Args:
        account: name of the Batch account.
        shares: where the folder behind a mount is.
    """

    def __init__(self, machines: Machines, clock: Clock, scenario: Scenario, *, account: str, shares: Shares) -> None:
        super().__init__(machines, clock, scenario)
        self.account = account
        self.shares = shares
        self.prefetched: list[tuple[str, str]] = []
        self._versions = count(1)

    def stamp(self) -> str:
        """The moment as bodies carry it."""
        return stamp(self.now)

    def etag(self) -> str:
        """A new version of something."""
        return f"0x8D{next(self._versions):013X}"
