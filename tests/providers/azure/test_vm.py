from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudbench.providers.azure.vm import AzureVmProvider
from tests.providers.azure.vm_world import AzureVmWorld
from tests.providers.conformance import ProviderConformance


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AzureVmWorld]:
    world = AzureVmWorld(tmp_path / "rehearsal")
    yield world
    world.close()


class TestAzureVm(ProviderConformance):
    provider = AzureVmProvider
