"""What a person sets about an account is read, or refused with what is wrong and where to correct it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloudbench.cli.aws_settings import aws_account
from cloudbench.cli.azure_settings import azure_account, parse_azure_options
from cloudbench.errors import CredentialsError, UsageError

AZURE = {"batch_endpoint": "https://bench.eastus.batch.azure.com", "storage_account": "benchstore"}
AWS = {"region": "us-east-1", "bucket": "bench"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that nobody else uses, and nothing set."""
    monkeypatch.setenv("CLOUDBENCH_HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith(("AZURE_", "AWS_", "CLOUDBENCH_A"))]:
        monkeypatch.delenv(name)
    return tmp_path


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("share", "expected KEY=VALUE, and there is no value"),
        ("sharing=x", "did you mean 'share'?"),
        ("batch_key", "keys and passwords are not given on the command line"),
        ("batch_key=x", "keys and passwords are not given on the command line"),
    ],
)
def test_an_option_that_makes_no_sense_is_told_what_is_wrong_with_it(assignment: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_azure_options([assignment])
    assert told in error.value.what
    assert ("did you mean" in error.value.what) == ("did you mean" in told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[azur]\nshare = "x"', "azur: there is no such table; did you mean 'azure'?"),
        ('share = "x"', "share: there is no such table"),
        ('[azure]\nshar = "x"', "azure.shar: there is no such setting; did you mean 'share'?"),
    ],
)
def test_a_file_with_a_name_that_means_nothing_is_refused_with_what_is_near(home: Path, text: str, told: str) -> None:
    (home / "config.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        azure_account({}, "batch", complete=False)
    assert told in error.value.what


def test_the_same_goes_for_aws(home: Path) -> None:
    (home / "config.toml").write_text('[aws]\nbuckt = "x"')
    with pytest.raises(UsageError, match="did you mean 'bucket'"):
        aws_account({}, complete=False)


@pytest.mark.parametrize("service", ["batch", "vm"])
@pytest.mark.parametrize("setting", ["batch_key", "storage_key"])
@pytest.mark.parametrize("held", ["abcde", "k\u00e9y=", "open sesame"])
def test_a_key_that_is_none_is_an_error_of_credentials_that_does_not_tell_it(
    monkeypatch: pytest.MonkeyPatch, setting: str, held: str, service: str
) -> None:
    monkeypatch.setenv(f"CLOUDBENCH_AZURE_{setting.upper()}", held)
    with pytest.raises(CredentialsError, match=f"{setting} is not a key") as error:
        azure_account(AZURE, service, complete=False)
    assert f"$CLOUDBENCH_AZURE_{setting.upper()}" in str(error.value)
    assert held not in str(error.value)


def test_a_key_with_the_end_of_its_line_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDBENCH_AZURE_STORAGE_KEY", "c2hhcmU=\n")
    assert azure_account(AZURE, "batch").storage_key


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_endpoint": "http://[bad"},
        {"batch_endpoint": "https://"},
        {"batch_endpoint": "ftp://bench.eastus.batch.azure.com"},
        {"batch_endpoint": "https://bench..batch.azure.com"},
        {"files_endpoint": "https://bench:port"},
        {"resources_endpoint": "https://two words"},
        {"storage_account": "Foo/../x"},
        {"storage_account": "ab"},
        {"storage_account": "benchstore\n"},
        {"share": "Bench"},
        {"share": "my--share"},
        {"share": "s" * 64},
    ],
    ids=str,
)
def test_a_setting_of_azure_that_cannot_be_right_is_named_before_anything_is_asked(wrong: dict[str, str]) -> None:
    [setting] = wrong
    with pytest.raises(UsageError, match=f"^{setting} is not") as error:
        azure_account({**AZURE, **wrong}, "batch", complete=False)
    assert f"$CLOUDBENCH_AZURE_{setting.upper()}" in str(error.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoint": "bad"},
        {"endpoint": "http://[bad"},
        {"endpoint": "http://a_b"},
        {"region": "us east 1"},
        {"bucket": "ab"},
        {"bucket": "s3://bench"},
    ],
    ids=str,
)
def test_a_setting_of_aws_that_cannot_be_right_is_named_before_anything_is_asked(wrong: dict[str, str]) -> None:
    [setting] = wrong
    with pytest.raises(UsageError, match=f"^{setting} is not") as error:
        aws_account({**AWS, **wrong}, complete=False)
    assert f"$CLOUDBENCH_AWS_{setting.upper()}" in str(error.value)


@pytest.mark.parametrize(
    "endpoint", ["bench.eastus.batch.azure.com", "https://Bench.EastUS.batch.azure.com/", "http://127.0.0.1:8080"]
)
def test_an_endpoint_is_a_host_or_a_url(endpoint: str) -> None:
    account = azure_account({**AZURE, "batch_endpoint": endpoint}, "batch")
    assert account.batch_endpoint.endswith(endpoint)
