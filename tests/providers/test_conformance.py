"""No provider escapes the suite."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType

import cloudbench.providers
import tests.providers
from cloudbench.providers import base
from cloudbench.providers.azure import SERVICES as AZURE_SERVICES
from cloudbench.providers.local import SERVICES
from tests.providers.conformance import ProviderConformance

CONTRACT = {name for name, _ in inspect.getmembers(base.Provider, inspect.isfunction) if not name.startswith("_")}


def modules_below(package: ModuleType) -> list[ModuleType]:
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [importlib.import_module(module.name) for module in found]


def test_every_provider_inherits_the_suite() -> None:
    providers = {
        value
        for module in modules_below(cloudbench.providers)
        for value in vars(module).values()
        if inspect.isclass(value) and value is not base.Provider and set(dir(value)) >= CONTRACT
    }
    assert providers
    modules_below(tests.providers)
    assert {suite.provider for suite in ProviderConformance.__subclasses__()} == providers


def test_every_local_service_inherits_the_suite() -> None:
    modules_below(tests.providers)
    suites = [suite for suite in ProviderConformance.__subclasses__() if suite.provider.__name__ == "LocalProvider"]
    assert len(suites) == len(SERVICES)


def test_every_azure_service_inherits_the_suite() -> None:
    modules_below(tests.providers)
    suites = [suite for suite in ProviderConformance.__subclasses__() if ".azure." in suite.provider.__module__]
    assert len(suites) == len(AZURE_SERVICES)


def test_every_suite_is_collected() -> None:
    """A suite in a module that pytest does not collect would satisfy the tests above and test nothing."""
    for suite in ProviderConformance.__subclasses__():
        assert Path(inspect.getfile(suite)).name.startswith("test_")
        assert suite.__name__.startswith("Test")
