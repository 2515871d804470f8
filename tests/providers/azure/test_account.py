from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cloudbench.errors import CredentialsError, InfrastructureError, QuotaError
from cloudbench.providers.azure.account import Secret, batch_client, service_words, share_client, sign_in, translated
from cloudbench.rehearsal.azure_files import FilesStandIn
from cloudbench.rehearsal.clock import Clock
from tests.providers.azure.plans import ACCOUNT, BATCH_KEY, STORAGE_KEY


@pytest.fixture
def files(tmp_path: Path) -> Iterator[FilesStandIn]:
    service = FilesStandIn(tmp_path, Clock(), account="benchstore", key=STORAGE_KEY)
    service.start()
    yield service
    service.close()


def test_a_secret_is_told_to_nobody_who_does_not_ask_for_it() -> None:
    secret = Secret("open sesame")
    for told in (str(secret), repr(secret), f"{secret}", "".join([secret]), repr(ACCOUNT), str({"key": secret})):
        assert "sesame" not in told
        assert BATCH_KEY not in told
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)
    assert secret.reveal() == "open sesame"
    assert secret == Secret("open sesame")
    assert secret != Secret("another")


def test_the_account_of_a_service_has_a_name_without_its_keys() -> None:
    assert ACCOUNT.name("batch") == "bench/benchstore/cloudbench"
    assert msgspec.structs.replace(ACCOUNT, subscription="s").name("vm") == "s/benchstore/cloudbench"


def test_a_wrong_key_is_an_error_of_credentials(files: FilesStandIn) -> None:
    wrong = Secret(base64.b64encode(b"another key").decode())
    account = msgspec.structs.replace(ACCOUNT, files_endpoint=files.endpoint, storage_key=wrong)
    with (
        share_client(account) as client,
        pytest.raises(CredentialsError, match="looking: Azure refused") as caught,
        translated("looking"),
    ):
        client.get_share_properties()
    assert "AuthenticationFailed" in str(caught.value)
    assert wrong.reveal() not in str(caught.value)


def test_a_service_that_is_not_there_is_an_error_in_words() -> None:
    account = msgspec.structs.replace(ACCOUNT, batch_endpoint="http://127.0.0.1:9")  # the port where nobody listens
    from azure.core.rest import HttpRequest

    with (
        batch_client(account) as client,
        pytest.raises(InfrastructureError, match="looking: Azure does not answer"),
        translated("looking"),
    ):
        client.send_request(HttpRequest("GET", "/jobs"), retry_total=0)


def test_a_stand_in_is_never_sent_a_real_sign_in() -> None:
    account = msgspec.structs.replace(ACCOUNT, files_endpoint="http://127.0.0.1:1", storage_key=None)
    with pytest.raises(CredentialsError, match="a stand-in takes its own keys only"):
        sign_in(account)


class Response:
    """An answer of the service, as much of it as an error reads."""

    reason = "Conflict"

    def __init__(self, status_code: int, body: str) -> None:
        self.headers: dict[str, str] = {}
        self.status_code = status_code
        self._body = body

    def text(self) -> str:
        return self._body


def refused(status_code: int, body: object) -> Exception:
    from azure.core.exceptions import HttpResponseError

    return HttpResponseError(response=Response(status_code, msgspec.json.encode(body).decode()))


def test_the_words_of_batch_are_told_without_what_was_sent_to_it() -> None:
    error = refused(
        400,
        {
            "code": "InvalidPropertyValue",
            "message": {"lang": "en-US", "value": "One of the values is wrong.\nRequestId:1\nTime:2"},
            "values": [{"key": "PropertyName", "value": "accountKey"}, {"key": "PropertyValue", "value": STORAGE_KEY}],
        },
    )
    assert service_words(error) == "InvalidPropertyValue: One of the values is wrong.; PropertyName: accountKey"  # type: ignore[arg-type]


def test_the_words_of_resource_manager_are_told() -> None:
    error = refused(409, {"error": {"code": "QuotaExceeded", "message": "No more cores"}})
    assert service_words(error) == "QuotaExceeded: No more cores"  # type: ignore[arg-type]
    with pytest.raises(QuotaError, match="quota") as caught, translated("making it"):
        raise error
    assert caught.value.why == "QuotaExceeded: No more cores"
    assert caught.value.exit_code == 4
