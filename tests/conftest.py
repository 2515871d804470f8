"""What every test can ask for, and what holds for all of them."""

import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.docker_engine"]

# How long an example takes is the machine's business: it may do other things.
settings.register_profile("cloudbench", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("cloudbench")


@pytest.fixture(scope="session", autouse=True)
def temporary_files_of_programs() -> Iterator[None]:
    """What programs leave behind that a test kills goes with the session."""
    with (
        tempfile.TemporaryDirectory(prefix="cloudbench-tests-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        yield
