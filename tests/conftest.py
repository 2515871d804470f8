"""What every test can ask for, and what holds for all of them."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.docker_engine"]

# How long an example takes is the machine's business: it may do other things.
settings.register_profile("cloudbench", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("cloudbench")
