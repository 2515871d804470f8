"""Who gets in: the account's key, and SAS for one share or one file."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.storage.fileshare import (
    FileSasPermissions,
    ShareClient,
    ShareSasPermissions,
    ShareServiceClient,
    generate_file_sas,
    generate_share_sas,
)

from cloudbench.rehearsal.azure_files import FilesStandIn
from cloudbench.rehearsal.clock import Clock

from .conftest import ACCOUNT, KEY, VERSION, Answer, send

HOUR = timedelta(hours=1)
LOG = ["runs", "1", "rank 0.log"]

Urls = Callable[..., str]


@pytest.fixture
def file_url(stand_in: FilesStandIn, share: ShareClient, clock: Clock) -> Urls:
    """The URL of LOG with a SAS for this one file."""
    share.create_directory("1")

    def url(permission: str, **more: Any) -> str:
        now = datetime.fromtimestamp(clock.now(), timezone.utc)
        given = {"account_key": KEY, "expiry": now + HOUR, "permission": permission} | more
        share_name, *path = LOG
        sas = generate_file_sas(ACCOUNT, share_name, path, **given)
        return f"{stand_in.endpoint}/runs/1/rank%200.log?{sas}"

    return url


@pytest.fixture
def share_url(stand_in: FilesStandIn, share: ShareClient, clock: Clock) -> Urls:
    """A URL inside the share with a SAS for all of the share."""

    def url(permission: str, path: str = "", query: str = "restype=directory") -> str:
        expiry = datetime.fromtimestamp(clock.now(), timezone.utc) + HOUR
        sas = generate_share_sas(ACCOUNT, "runs", KEY, ShareSasPermissions.from_string(permission), expiry)
        return f"{stand_in.endpoint}/runs{path}?{query}&{sas}"

    return url


def create(url: str, size: int = 0) -> Answer:
    return send("PUT", url, {"x-ms-type": "file", "x-ms-content-length": str(size), "x-ms-version": VERSION})


def append(url: str, first: int, data: bytes) -> list[Answer]:
    """Grow a file and write into what is new, as nodes do."""
    size = {"x-ms-content-length": str(first + len(data)), "x-ms-version": VERSION}
    span = {"x-ms-range": f"bytes={first}-{first + len(data) - 1}", "x-ms-write": "update", "x-ms-version": VERSION}
    return [send("PUT", f"{url}&comp=properties", size), send("PUT", f"{url}&comp=range", span, data)]


def test_the_accounts_key_opens_everything_in_either_form_of_credential(stand_in, service):
    service.create_share("runs")
    credential = {"account_name": ACCOUNT, "account_key": KEY}
    with ShareServiceClient(stand_in.endpoint, credential, retry_total=0) as other:
        assert [share.name for share in other.list_shares()] == ["runs"]


@pytest.mark.parametrize(("account", "key"), [(ACCOUNT, base64.b64encode(b"another").decode()), ("another", KEY)])
def test_another_key_or_account_is_refused(stand_in, account, key):
    with (
        ShareServiceClient(stand_in.endpoint, AzureNamedKeyCredential(account, key), retry_total=0) as client,
        pytest.raises(ClientAuthenticationError) as refused,
    ):
        client.create_share("runs")
    assert refused.value.error_code == "AuthenticationFailed"
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("x-ms-meta-owner", "another"), ("x-ms-share-quota", "7"), ("Content-Type", "text/plain"), ("Range", "bytes=0-1")],
)
def test_a_signed_request_that_was_changed_on_its_way_is_refused(service, share, name, value):
    signed: list[Any] = []
    share.set_share_metadata({"owner": "me"}, raw_response_hook=lambda exchange: signed.append(exchange.http_request))
    url, headers = signed[0].url, dict(signed[0].headers)
    assert send("PUT", url, headers).status == 200
    assert send("PUT", url, headers | {name: value}).code == "AuthenticationFailed"
    assert send("PUT", f"{url}&timeout=5", headers).code == "AuthenticationFailed"
    assert share.get_share_properties().metadata == {"owner": "me"}


def test_a_request_that_was_signed_long_ago_is_refused(service, share):
    def date(request: Any) -> None:
        sent_at = datetime.now(timezone.utc) - timedelta(minutes=16)
        request.http_request.headers["x-ms-date"] = format_datetime(sent_at, usegmt=True)

    with pytest.raises(ClientAuthenticationError, match="date header too old"):
        share.get_share_properties(raw_request_hook=date)


def test_headers_may_be_signed_in_the_order_of_their_characters(stand_in, service):
    headers = {
        "x-ms-date": format_datetime(datetime.now(timezone.utc), usegmt=True),
        "x-ms-meta-z": "first by its characters",
        "x-ms-metab": "first as a word",
        "x-ms-version": VERSION,
    }
    own = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    text = "PUT" + "\n" * 12 + own + f"/{ACCOUNT}/runs\nrestype:share"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()
    signed = headers | {"Authorization": f"SharedKey {ACCOUNT}:{signature}"}
    assert send("PUT", f"{stand_in.endpoint}/runs?restype=share", signed).status == 201


def test_nobody_gets_in_without_a_signature(stand_in, share):
    answer = send("GET", f"{stand_in.endpoint}/runs?restype=share", {"x-ms-version": VERSION})
    assert (answer.status, answer.code) == (401, "NoAuthenticationInformation")


@pytest.mark.parametrize("scheme", ["Bearer token", "SharedKeyLite rehearsal:abc", "SharedKey rehearsal"])
def test_another_scheme_is_refused(stand_in, scheme):
    headers = {"Authorization": scheme, "x-ms-version": VERSION}
    answer = send("GET", f"{stand_in.endpoint}/?comp=list", headers)
    assert (answer.status, answer.code) == (400, "InvalidAuthenticationInfo")


def test_a_node_creates_and_grows_its_file_with_a_url_for_this_file_alone(stand_in, file_url):
    url = file_url(FileSasPermissions(create=True, write=True))
    assert create(url).status == 201
    for first, data in ((0, b"step 1\n"), (7, b"step 2\n")):
        assert [answer.status for answer in append(url, first, data)] == [200, 201]
    assert (stand_in.folder("runs") / "1" / "rank 0.log").read_bytes() == b"step 1\nstep 2\n"
    assert send("GET", url).code == "AuthorizationPermissionMismatch"
    assert send("GET", file_url(FileSasPermissions(read=True))).body == b"step 1\nstep 2\n"


def test_a_url_for_one_file_opens_no_other(stand_in, file_url):
    url = file_url(FileSasPermissions(read=True, create=True, write=True, delete=True))
    assert create(url.replace("rank%200", "rank%201")).code == "AuthenticationFailed"
    assert create(url.replace("/1/rank", "/1/../1/rank")).code == "AuthenticationFailed"
    directory = url.replace("/rank%200.log?", "?restype=directory&comp=list&")
    assert send("GET", directory).code == "AuthenticationFailed"
    assert send("DELETE", f"{url}&restype=directory").code == "AuthorizationResourceTypeMismatch"


def test_permission_to_create_does_not_overwrite(file_url):
    url = file_url(FileSasPermissions(create=True))
    assert create(url).status == 201
    assert create(url).code == "AuthorizationPermissionMismatch"
    assert append(url, 0, b"x")[0].code == "AuthorizationPermissionMismatch"
    assert create(file_url(FileSasPermissions(write=True)), size=3).status == 201


@pytest.mark.parametrize(
    ("name", "value"),
    [("sp", "rcwd"), ("se", "2099-01-01T00:00:00Z"), ("sv", "2019-02-02"), ("sig", "c2ln"), ("sig", "no base64!")],
)
def test_a_sas_that_was_changed_is_refused(file_url, name, value):
    parts = urlsplit(file_url(FileSasPermissions(read=True)))
    query = dict(parse_qsl(parts.query)) | {name: value}
    answer = create(parts._replace(query=urlencode(query)).geturl())
    assert (answer.status, answer.code) == (403, "AuthenticationFailed")
    assert b"Signature did not match" in answer.body


@pytest.mark.parametrize("name", ["sv", "sr", "se", "sp"])
def test_a_sas_without_one_of_its_fields_is_refused(file_url, name):
    parts = urlsplit(file_url(FileSasPermissions(read=True)))
    query = {key: value for key, value in parse_qsl(parts.query) if key != name}
    answer = send("GET", parts._replace(query=urlencode(query)).geturl())
    assert (answer.code, f"{name} is mandatory".encode() in answer.body) == ("AuthenticationFailed", True)


def test_a_sas_expires(clock, file_url):
    url = file_url(FileSasPermissions(create=True, write=True))
    assert create(url).status == 201
    clock.advance(2 * HOUR.total_seconds())
    answer = create(url)
    assert (answer.status, answer.code) == (403, "AuthenticationFailed")
    assert b"not valid in the specified time frame" in answer.body


def test_a_sas_does_not_open_before_its_time(clock, file_url):
    start = datetime.fromtimestamp(clock.now(), timezone.utc) + HOUR
    url = file_url(FileSasPermissions(create=True), start=start, expiry=start + HOUR)
    assert create(url).code == "AuthenticationFailed"
    clock.advance(HOUR.total_seconds() + 1)
    assert create(url).status == 201


def test_a_sas_for_https_does_not_open_http(file_url):
    assert create(file_url(FileSasPermissions(create=True), protocol="https")).code == "AuthorizationProtocolMismatch"
    assert create(file_url(FileSasPermissions(create=True), protocol="https,http")).status == 201


def test_a_sas_with_a_stored_policy_is_refused(file_url):
    answer = create(file_url(FileSasPermissions(create=True), policy_id="nodes"))
    assert (answer.code, b"no stored access policies" in answer.body) == ("AuthenticationFailed", True)


@pytest.mark.parametrize(
    ("method", "path", "query", "permission"),
    [
        ("GET", "", "restype=directory&comp=list", "l"),
        ("GET", "/1", "restype=directory", "r"),
        ("PUT", "/1", "restype=directory&comp=metadata", "w"),
        ("PUT", "/1/new", "restype=directory", "c"),
        ("PUT", "/1/other", "restype=directory", "w"),
        ("DELETE", "/1", "restype=directory", "d"),
        ("GET", "/2/file", "", "r"),
        ("HEAD", "/2/file", "", "r"),
        ("GET", "/2/file", "comp=rangelist", "r"),
        ("PUT", "/2/file", "comp=metadata", "w"),
        ("PUT", "/2/file", "comp=properties", "w"),
        ("DELETE", "/2/file", "", "d"),
    ],
)
def test_a_sas_for_a_share_allows_what_its_letters_say(share, share_url, method, path, query, permission):
    share.create_directory("1")
    share.create_directory("2").upload_file("file", b"data")
    others = "".join(letter for letter in "rcwdl" if letter != permission)
    if method == "PUT" and query == "restype=directory":
        others = "rdl"
    refused = send(method, share_url(others, path, query or "timeout=9"))
    assert (refused.status, refused.code) == (403, "AuthorizationPermissionMismatch")
    assert send(method, share_url(permission, path, query or "timeout=9")).status in (200, 201, 202)


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("GET", "", "restype=share"),
        ("DELETE", "", "restype=share"),
        ("PUT", "", "restype=share&comp=metadata"),
    ],
)
def test_no_sas_for_a_share_reaches_the_share_itself(share_url, method, path, query):
    assert send(method, share_url("rcwdl", path, query)).code == "AuthorizationFailure"


def test_the_sdk_reads_and_lists_with_a_sas(stand_in, share, share_url):
    share.get_file_client("a.log").upload_file(b"text")
    sas = share_url("rl").rpartition("?restype=directory&")[2]
    with ShareClient(stand_in.endpoint, "runs", credential=sas, retry_total=0) as reader:
        assert [item.name for item in reader.list_directories_and_files()] == ["a.log"]
        with reader.get_file_client("a.log") as file:
            assert file.download_file().readall() == b"text"
        with pytest.raises(HttpResponseError) as refused:
            reader.create_directory("b")
    assert refused.value.error_code == "AuthorizationPermissionMismatch"


@pytest.mark.parametrize("version", ["", "2018-11-09", "latest"])
def test_a_version_that_the_service_does_not_know_is_refused(share_url, version):
    answer = send("GET", share_url("l", query="restype=directory&comp=list"), {"x-ms-version": version})
    assert (answer.status, answer.code) == (400, "InvalidHeaderValue")
