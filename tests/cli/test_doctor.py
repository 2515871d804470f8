from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cloudbench.rehearsal.azure import AzureRehearsal
from tests.cli.conftest import Cloudbench


@pytest.fixture
def rehearsal(tmp_path: Path, environment: dict[str, str]) -> Iterator[AzureRehearsal]:
    """Stand-ins that this environment names as its account."""
    rehearsal = AzureRehearsal(tmp_path / "rehearsal", containers=False)
    values: dict[str, str] = msgspec.to_builtins(rehearsal.start())
    environment.update({f"CLOUDBENCH_AZURE_{key.upper()}": value for key, value in values.items()})
    yield rehearsal
    rehearsal.close()


def checks(cloudbench: Cloudbench, code: int, *arguments: str) -> list[dict[str, str]]:
    ended = cloudbench("doctor", "--provider", "azure", "--format", "json", *arguments)
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    found: list[dict[str, str]] = json.loads(ended.stdout)["checks"]
    return found


def test_an_account_that_is_ready_has_no_failure(cloudbench: Cloudbench, rehearsal: AzureRehearsal) -> None:
    found = checks(cloudbench, 0)
    assert {check["state"] for check in found} == {"ok", "note"}
    assert any("ubuntu-hpc" in check["what"] for check in found)
    methods = {call.split()[0] for call in rehearsal.batch.calls}
    assert methods == {"GET"}, "the doctor reads only"


def test_virtual_machines_need_other_settings_and_are_looked_over_as_well(
    cloudbench: Cloudbench, rehearsal: AzureRehearsal, environment: dict[str, str]
) -> None:
    found = checks(cloudbench, 0, "--service", "vm")
    assert {check["state"] for check in found} == {"ok", "note"}
    assert any("nothing of" in check["what"] for check in found)
    assert {call.split()[0] for call in rehearsal.resources.calls} == {"GET"}, "the doctor reads only"
    environment["CLOUDBENCH_AZURE_RESOURCES_TOKEN"] = environment["CLOUDBENCH_AZURE_STORAGE_KEY"]
    failures = [check for check in checks(cloudbench, 3, "--service", "vm") if check["state"] == "failed"]
    assert all("refused the credentials" in check["what"] for check in failures)
    del environment["CLOUDBENCH_AZURE_SUBSCRIPTION"]
    [check] = checks(cloudbench, 3, "--service", "vm")
    assert "CLOUDBENCH_AZURE_SUBSCRIPTION" in check["todo"]


def test_no_account_is_told_with_what_to_set(cloudbench: Cloudbench) -> None:
    [check] = checks(cloudbench, 3)
    assert check["state"] == "failed"
    assert "CLOUDBENCH_AZURE_BATCH_ENDPOINT" in check["todo"]


def test_a_wrong_key_is_3_and_a_missing_share_is_4(
    cloudbench: Cloudbench, rehearsal: AzureRehearsal, environment: dict[str, str]
) -> None:
    [failed] = [check for check in checks(cloudbench, 4, "--azure", "share=elsewhere") if check["state"] == "failed"]
    assert "has no share elsewhere" in failed["what"]
    assert "az storage share-rm create" in failed["todo"]
    environment["CLOUDBENCH_AZURE_BATCH_KEY"] = environment["CLOUDBENCH_AZURE_STORAGE_KEY"]
    failures = [check for check in checks(cloudbench, 3) if check["state"] == "failed"]
    assert all("refused the credentials" in check["what"] for check in failures)


def test_options_go_before_variables_and_variables_before_the_file(
    cloudbench: Cloudbench, rehearsal: AzureRehearsal, environment: dict[str, str], tmp_path: Path
) -> None:
    def share_of(*arguments: str) -> str:
        return next(check["what"] for check in checks(cloudbench, 4, *arguments) if "Batch account" in check["what"])

    del environment["CLOUDBENCH_AZURE_SHARE"]
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "config.toml").write_text('[azure]\nshare = "from-file"\n')
    assert "share from-file" in share_of()
    environment["AZURE_FILES_SHARE"] = "from-azure"
    assert "share from-azure" in share_of()
    environment["CLOUDBENCH_AZURE_SHARE"] = "from-ours"
    assert "share from-ours" in share_of()
    assert "share from-option" in share_of("--azure", "share=from-option")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[azure", "is not TOML"),
        ('[azure]\nshares = "x"', "did you mean 'share'?"),
        ("[azure]\nshare = 3", "azure.share: is not text"),
        ("azure = 3", "azure: is not a table"),
    ],
)
def test_a_file_that_makes_no_sense_is_a_usage_error(
    cloudbench: Cloudbench, tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(text)
    ended = cloudbench("doctor", "--provider", "azure")
    assert ended.returncode == 2
    assert told in ended.stderr
