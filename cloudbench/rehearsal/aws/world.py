"""What the services of one stand-in of AWS share: moto's state, and how they are to behave."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cloudbench.rehearsal.aws.cloud import Cloud
from cloudbench.rehearsal.aws.scenario import Scenario
from cloudbench.rehearsal.world import World

if TYPE_CHECKING:
    from cloudbench.rehearsal.clock import Clock
    from cloudbench.rehearsal.machines import Machines


class AwsWorld(World):
    """The world of an account of AWS.

    Args:
        file_systems: the folders of EFS, each called as its file system; without it none can be mounted.
    """

    def __init__(self, machines: Machines, clock: Clock, scenario: Scenario, file_systems: Path | None) -> None:
        super().__init__(machines, clock)
        self.scenario = scenario
        self.file_systems = file_systems
        self.cloud = Cloud()

    @property
    def now_ms(self) -> int:
        """The moment as bodies carry it, in milliseconds since 1970."""
        return int(self.now * 1000)
