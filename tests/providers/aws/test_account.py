"""The AWS account: who it is, what must not be told, and AWS's errors in our words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from cloudbench.errors import CapacityError, CloudbenchError, CredentialsError, InfrastructureError, QuotaError
from cloudbench.providers.aws.account import Clients, identified, translated
from cloudbench.providers.aws.checks import check_credentials
from cloudbench.providers.aws.readiness import find_out
from cloudbench.providers.base import Problem
from cloudbench.providers.secret import Secret
from tests.providers.aws.plans import ACCOUNT
from tests.providers.aws.world import account_at


def refused(code: str, message: str = "no") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "RunInstances")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refused("UnauthorizedOperation"), CredentialsError),
        (refused("ExpiredTokenException"), CredentialsError),
        (NoCredentialsError(), CredentialsError),
        (refused("VcpuLimitExceeded"), QuotaError),
        (refused("MaxSpotInstanceCountExceeded"), QuotaError),
        (refused("InsufficientInstanceCapacity"), CapacityError),
        (refused("ClientException"), InfrastructureError),
        (EndpointConnectionError(endpoint_url="https://nowhere.example"), InfrastructureError),
    ],
)
def test_errors_of_aws_are_told_in_our_words(error: Exception, kind: type[CloudbenchError]) -> None:
    with pytest.raises(CloudbenchError, match="running the instances") as told, translated("running the instances"):
        raise error
    assert type(told.value) is kind
    assert told.value.why


def test_what_only_aws_can_read_is_left_out() -> None:
    message = "You are not authorized. Encoded authorization failure message: AAAABBBB"
    with pytest.raises(CredentialsError) as told, translated("running the instances"):
        raise refused("UnauthorizedOperation", message)
    assert told.value.why == "UnauthorizedOperation: You are not authorized."


def test_an_account_is_named_by_its_number_its_region_and_its_bucket() -> None:
    assert ACCOUNT.name == "aws:123456789012:us-east-1/bench"


def test_keys_are_not_told() -> None:
    account = account_at("http://127.0.0.1:1")
    assert account.secrets
    for secret in account.secrets:
        assert secret.reveal() not in repr(account)


def test_a_stand_in_is_never_sent_a_persons_own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "my own")
    account = msgspec.structs.replace(account_at("http://127.0.0.1:1"), access_key=None)
    with pytest.raises(CredentialsError, match="its own keys only"):
        Clients(account).get("s3")


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials anywhere."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("changes", [{}, {"profile": "nobody"}], ids=["none", "no-profile"])
def test_nobody_is_told_how_to_become_somebody(changes: dict[str, Any]) -> None:
    unknown = msgspec.structs.replace(ACCOUNT, account_id="(account)", **changes)
    missing = identified(unknown).missing
    assert missing is not None
    assert missing.exit_code == 3


@pytest.mark.usefixtures("nobody")
def test_only_what_is_about_credentials_ends_the_doctor_with_3() -> None:
    refused_us = identified(msgspec.structs.replace(ACCOUNT, account_id="(account)"))
    no_answer = Problem(severity="error", what="AWS does not answer", exit_code=InfrastructureError.exit_code)
    for account, code in ((refused_us, 3), (msgspec.structs.replace(ACCOUNT, missing=no_answer), 4)):
        [finding] = find_out(account, owner="anna", service="batch")
        assert (finding.state, finding.exit_code) == ("failed", code)


@pytest.mark.usefixtures("nobody")
def test_temporary_credentials_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ASIAMINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "my own")
    assert check_credentials(ACCOUNT, Clients(ACCOUNT)) == []
    monkeypatch.setenv("AWS_SESSION_TOKEN", "for an hour")
    [warning] = check_credentials(ACCOUNT, Clients(ACCOUNT))
    assert (warning.severity, "temporary" in warning.what) == ("warning", True)
    assert check_credentials(account_at("http://127.0.0.1:1"), Clients(ACCOUNT)) == []


def test_a_secret_is_told_only_when_it_is_asked_for() -> None:
    assert (str(Secret("a")), Secret("a").reveal()) == ("(redacted)", "a")
