from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudbench.providers.aws.ec2 import AwsEc2Provider
from tests.providers.aws.world import AwsWorld
from tests.providers.conformance import ProviderConformance


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AwsWorld]:
    world = AwsWorld(tmp_path, "ec2")
    yield world
    world.close()


class TestAwsEc2(ProviderConformance):
    provider = AwsEc2Provider
