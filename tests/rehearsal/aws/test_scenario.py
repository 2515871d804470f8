from __future__ import annotations

from pathlib import Path

import pytest

from cloudbench.errors import SpecError, UsageError
from cloudbench.rehearsal.aws import SCENARIOS, Scenario, load_scenario


def test_scenarios_have_names() -> None:
    assert load_scenario("preemption") is SCENARIOS["preemption"]
    with pytest.raises(UsageError, match="did you mean 'throttling'"):
        load_scenario("throtling")


def test_a_scenario_can_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "slow.yaml"
    path.write_text("boot_s: 90\n")
    assert load_scenario(str(path)) == Scenario(boot_s=90)
    path.write_text("boots: 90\n")
    with pytest.raises(SpecError, match="boots"):
        load_scenario(str(path))
