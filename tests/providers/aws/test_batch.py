from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudbench.providers.aws.batch import AwsBatchProvider
from tests.providers.aws.world import AwsWorld
from tests.providers.conformance import ProviderConformance


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AwsWorld]:
    world = AwsWorld(tmp_path, "batch")
    yield world
    world.close()


class TestAwsBatch(ProviderConformance):
    provider = AwsBatchProvider
