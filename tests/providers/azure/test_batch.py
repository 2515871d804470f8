from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudbench.providers.azure.batch import AzureBatchProvider
from tests.providers.azure.world import AzureBatchWorld
from tests.providers.conformance import ProviderConformance


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AzureBatchWorld]:
    world = AzureBatchWorld(tmp_path / "rehearsal")
    yield world
    world.close()


class TestAzureBatch(ProviderConformance):
    provider = AzureBatchProvider
