"""Files: created, written in ranges, resized, read in ranges, described, deleted."""

from __future__ import annotations

import base64
import hashlib
import os
import threading
from datetime import datetime, timedelta, timezone

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.storage.fileshare import ContentSettings, ShareSasPermissions, generate_share_sas

from .conftest import ACCOUNT, KEY, VERSION, send

MIB = 1024 * 1024


@pytest.fixture
def file(share):
    with share.get_file_client("rank-0.log") as client:
        yield client


@pytest.fixture
def folder(stand_in, share):
    """The share's folder, as a node has it mounted."""
    return stand_in.folder("runs")


@pytest.fixture
def url(stand_in, share, clock):
    """A URL inside the share that may do everything to what it names."""
    expiry = datetime.fromtimestamp(clock.now(), timezone.utc) + timedelta(hours=1)
    sas = generate_share_sas(ACCOUNT, "runs", KEY, ShareSasPermissions.from_string("rcwdl"), expiry)
    return lambda path: f"{stand_in.endpoint}/runs/{path}?{sas}"


def refused(call, *args, **kwargs):
    with pytest.raises(HttpResponseError) as caught:
        call(*args, **kwargs)
    return caught.value.status_code, caught.value.error_code


def test_a_new_file_is_zeros_of_its_size(file):
    file.create_file(1000)
    assert file.download_file().readall() == bytes(1000)
    assert list(file.list_ranges()) == []


def test_large_contents_go_and_come_in_ranges(file, folder):
    data = os.urandom(9 * MIB + 17)
    file.upload_file(data)
    assert (folder / "rank-0.log").read_bytes() == data
    assert file.download_file().readall() == data
    assert file.download_file(offset=5 * MIB, length=33).readall() == data[5 * MIB : 5 * MIB + 33]


def test_a_file_keeps_headers_metadata_attributes_and_times(file):
    settings = ContentSettings(content_type="text/plain", cache_control="no-cache", content_md5=bytearray(b"0" * 16))
    written_at = datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=timezone.utc)
    file.create_file(
        3,
        content_settings=settings,
        metadata={"rank": "0"},
        file_attributes="ReadOnly|Archive",
        file_creation_time=written_at,
        file_last_write_time=written_at,
    )
    first = file.get_file_properties()
    assert (first.content_settings.content_type, first.content_settings.cache_control) == ("text/plain", "no-cache")
    assert first.content_settings.content_md5 == b"0" * 16
    assert (first.metadata, first.file_attributes) == ({"rank": "0"}, "ReadOnly | Archive")
    assert (first.creation_time, first.last_write_time) == (written_at, written_at)
    file.set_file_metadata({"rank": "1"})
    file.set_http_headers(ContentSettings(content_type="text/csv"))
    second = file.get_file_properties()
    assert (second.content_settings.content_type, second.content_settings.cache_control) == ("text/csv", None)
    assert (second.metadata, second.size, second.file_id) == ({"rank": "1"}, 3, first.file_id)
    assert first.etag != second.etag


def test_every_change_gives_another_etag(file, folder):
    etags = [file.create_file(4)["etag"]]
    etags.append(file.upload_range(b"1234", 0, 4)["etag"])
    etags.append(file.upload_range(b"1234", 0, 4)["etag"])
    etags.append(file.resize_file(8)["etag"])
    etags.append(file.set_file_metadata({"a": "b"})["etag"])
    assert file.get_file_properties().etag == etags[-1]
    with (folder / "rank-0.log").open("ab") as grown:
        grown.write(b"by a node")
    etags.append(file.get_file_properties().etag)
    assert len(set(etags)) == 6


def test_creating_a_file_again_replaces_it(file):
    file.upload_file(b"first", metadata={"a": "b"})
    file.create_file(2)
    assert file.download_file().readall() == bytes(2)
    assert file.get_file_properties().metadata == {}


def test_names_are_found_in_any_case_and_keep_theirs(share, folder):
    share.create_directory("Node-0").upload_file("Rank-0.LOG", b"1")
    with share.get_file_client("NODE-0/rank-0.log") as file:
        assert file.download_file().readall() == b"1"
        file.upload_file(b"2")
    assert [path.name for path in (folder / "Node-0").iterdir()] == ["Rank-0.LOG"]


def test_files_that_differ_in_case_only_are_told_apart_when_a_node_made_them(share, folder):
    (folder / "a").write_text("small")
    (folder / "A").write_text("large")
    assert [share.get_file_client(name).download_file().readall() for name in ("a", "A")] == [b"small", b"large"]


def test_names_may_hold_what_urls_must_quote(share, folder):
    name = "späte Läufe 100% #1 &+=~.log"
    share.create_directory("a b").upload_file(name, b"1")
    assert (folder / "a b" / name).read_bytes() == b"1"
    assert [item.name for item in share.list_directories_and_files("a b")] == [name]


def test_a_file_where_there_is_none_is_refused(share, file):
    assert refused(file.get_file_properties)[0] == 404
    assert refused(file.download_file) == (404, "ResourceNotFound")
    assert refused(file.delete_file) == (404, "ResourceNotFound")
    assert refused(share.get_file_client("a/b").create_file, 1) == (404, "ParentNotFound")
    assert not file.exists()


def test_a_file_of_a_share_that_is_not_there_is_refused(service):
    with service.get_share_client("none").get_file_client("a") as file:
        assert refused(file.create_file, 1) == (404, "ShareNotFound")


def test_a_directory_is_no_file(share):
    share.create_directory("a")
    with share.get_file_client("a") as file:
        with pytest.raises(ResourceExistsError) as caught:
            file.create_file(1)
        assert caught.value.error_code == "ResourceTypeMismatch"
        with pytest.raises(ResourceNotFoundError):
            file.download_file()


def test_a_deleted_file_is_gone(file, folder):
    file.upload_file(b"1", metadata={"a": "b"})
    file.delete_file()
    assert list(folder.iterdir()) == []
    assert refused(file.download_file) == (404, "ResourceNotFound")


def test_a_file_grows_and_shrinks(file):
    file.upload_file(b"123456")
    file.resize_file(3)
    assert file.download_file().readall() == b"123"
    file.resize_file(5)
    assert file.download_file().readall() == b"123\0\0"


def test_ranges_are_written_cleared_and_listed(file):
    file.create_file(4096)
    file.upload_range(b"x" * 512, 512, 512)
    file.upload_range(b"y" * 1024, 2048, 1024)
    assert [(span["start"], span["end"]) for span in file.list_ranges()] == [(512, 1023), (2048, 3071)]
    file.clear_range(2048, 512)
    assert [(span["start"], span["end"]) for span in file.list_ranges(offset=1024, length=2048)] == [(2560, 3071)]
    assert file.download_file(offset=2048, length=1024).readall() == bytes(512) + b"y" * 512


def test_a_write_outside_the_file_is_refused(file):
    file.create_file(10)
    assert refused(file.upload_range, b"12345", 6, 5) == (416, "InvalidRange")
    assert refused(file.clear_range, 512, 512) == (416, "InvalidRange")
    assert file.download_file().readall() == bytes(10)


def test_a_write_of_more_than_four_mebibytes_is_refused(file):
    file.create_file(5 * MIB)
    file.upload_range(bytes(4 * MIB), 0, 4 * MIB)
    assert refused(file.upload_range, bytes(4 * MIB + 1), 0, 4 * MIB + 1) == (413, "RequestBodyTooLarge")


def test_a_write_keeps_the_time_of_the_last_one_when_told_to(file):
    file.create_file(4)
    before = file.get_file_properties().last_write_time
    file.upload_range(b"1234", 0, 4, file_last_write_mode="preserve")
    assert abs((file.get_file_properties().last_write_time - before).total_seconds()) < 1e-4


def test_a_body_that_is_not_what_was_sent_is_refused(url):
    range_url = f"{url('a')}&comp=range"
    assert send("PUT", url("a"), {"x-ms-type": "file", "x-ms-content-length": "4"}).status == 201
    headers = {"x-ms-range": "bytes=0-3", "x-ms-write": "update"}
    digest = base64.b64encode(hashlib.md5(b"1234", usedforsecurity=False).digest()).decode()
    sent = send("PUT", range_url, headers | {"Content-MD5": digest}, b"1234")
    assert (sent.status, sent.headers["content-md5"]) == (201, digest)
    assert send("PUT", range_url, headers | {"Content-MD5": digest}, b"1235").code == "Md5Mismatch"
    assert send("PUT", range_url, headers, b"123").code == "InvalidHeaderValue"
    assert send("GET", url("a")).body == b"1234"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "MissingRequiredHeader"),
        ({"x-ms-range": "bytes=0-3"}, "MissingRequiredHeader"),
        ({"x-ms-write": "update"}, "MissingRequiredHeader"),
        ({"x-ms-range": "bytes=0-3", "x-ms-write": "append"}, "InvalidHeaderValue"),
        ({"x-ms-range": "bytes=3-0", "x-ms-write": "update"}, "InvalidHeaderValue"),
        ({"x-ms-range": "bytes=0-", "x-ms-write": "update"}, "InvalidHeaderValue"),
        ({"x-ms-range": "0-3", "x-ms-write": "update"}, "InvalidHeaderValue"),
        ({"x-ms-range": "bytes=0-3", "x-ms-write": "clear"}, "InvalidHeaderValue"),
    ],
)
def test_a_write_that_is_not_well_formed_is_refused(url, headers, code):
    assert send("PUT", url("a"), {"x-ms-type": "file", "x-ms-content-length": "4"}).status == 201
    assert send("PUT", f"{url('a')}&comp=range", headers, b"1234").code == code


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"x-ms-type": "file"}, "MissingRequiredHeader"),
        ({"x-ms-content-length": "4"}, "MissingRequiredHeader"),
        ({"x-ms-content-length": "4", "x-ms-type": "BlockBlob"}, "InvalidHeaderValue"),
        ({"x-ms-content-length": "-4", "x-ms-type": "file"}, "InvalidHeaderValue"),
        ({"x-ms-content-length": str(4 * MIB * MIB + 1), "x-ms-type": "file"}, "OutOfRangeInput"),
        ({"x-ms-content-length": "4", "x-ms-type": "file", "x-ms-meta-a-b": "1"}, "InvalidMetadata"),
        ({"x-ms-content-length": "4", "x-ms-type": "file", "x-ms-meta-a": "1" * 8192}, "MetadataTooLarge"),
        ({"x-ms-content-length": "4", "x-ms-type": "file", "If-Match": "*"}, "ConditionHeadersNotSupported"),
        (
            {"x-ms-content-length": "4", "x-ms-type": "file", "x-ms-file-creation-time": "yesterday"},
            "InvalidHeaderValue",
        ),
    ],
)
def test_a_creation_that_is_not_well_formed_is_refused(url, folder, headers, code):
    assert send("PUT", url("a"), headers).code == code
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "status", "body", "said"),
    [
        (None, 200, b"0123456789", None),
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=7-99", 206, b"789", "bytes 7-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=x-", 400, None, None),
    ],
)
@pytest.mark.parametrize("header", ["Range", "x-ms-range"])
def test_ranges_are_read_as_asked(share, url, header, asked, status, body, said):
    share.get_file_client("a").upload_file(b"0123456789")
    answer = send("GET", url("a"), {header: asked} if asked else {})
    assert (answer.status, answer.headers.get("content-range")) == (status, said)
    assert body in (None, answer.body)


def test_a_range_comes_with_its_digest_when_asked(share, url):
    share.get_file_client("a").upload_file(bytes(5 * MIB))
    digest = base64.b64encode(hashlib.md5(bytes(8), usedforsecurity=False).digest()).decode()
    wanted = {"x-ms-range-get-content-md5": "true"}
    assert send("GET", url("a"), wanted | {"x-ms-range": "bytes=8-15"}).headers["content-md5"] == digest
    assert send("GET", url("a"), wanted | {"x-ms-range": "bytes=0-"}).code == "InvalidHeaderValue"
    assert send("GET", url("a"), wanted).code == "MissingRequiredHeader"


def test_a_head_tells_the_size_without_the_bytes(share, url):
    share.get_file_client("a").upload_file(b"12345")
    answer = send("HEAD", url("a"))
    assert (answer.headers["content-length"], answer.headers["x-ms-type"], answer.body) == ("5", "File", b"")


@pytest.mark.parametrize(
    "path",
    [
        *("../secret", "a/../../secret", "%2e%2e/secret", "..%2fsecret", "a/%2E%2E/%2e%2e/secret", "..%5csecret"),
        *("a%01b", "a%00b", "a:b", "a%3Fb", "a%22", "x" * 256, "...", "./secret"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_no_path_leads_out_of_a_share(folder, url, path, method):
    secret = folder.parent / "secret"
    secret.write_text("secret")
    (folder / "a").mkdir()
    answer = send(method, url(path), {"x-ms-type": "file", "x-ms-content-length": "4"})
    assert (answer.status, answer.code) == (400, "InvalidFileOrDirectoryPathName")
    assert secret.read_text() == "secret"
    assert sorted(entry.name for entry in folder.parent.iterdir()) == ["runs", "secret"]


@pytest.mark.parametrize("path", ["%ff", "a/%c3%28"])
def test_a_path_that_is_no_text_is_refused(url, path):
    answer = send("PUT", url(path), {"x-ms-type": "file", "x-ms-content-length": "4"})
    assert (answer.status, answer.code) == (400, "InvalidUri")


def test_trailing_dots_are_dropped_unless_they_are_allowed(folder, url):
    headers = {"x-ms-type": "file", "x-ms-content-length": "0", "x-ms-version": VERSION}
    assert send("PUT", url("log.."), headers).status == 201
    assert send("PUT", url("kept."), headers | {"x-ms-allow-trailing-dot": "true"}).status == 201
    assert sorted(entry.name for entry in folder.iterdir()) == ["kept.", "log"]


def test_nodes_that_write_at_once_do_not_disturb_each_other(url, folder):
    def push(node):
        target = url(f"{node}.log")
        sent.append(send("PUT", target, {"x-ms-type": "file", "x-ms-content-length": "0"}).status)
        for step in range(5):
            sent.append(send("PUT", f"{target}&comp=properties", {"x-ms-content-length": str(step + 1)}).status)
            span = {"x-ms-range": f"bytes={step}-{step}", "x-ms-write": "update"}
            sent.append(send("PUT", f"{target}&comp=range", span, str(step).encode()).status)

    sent: list[int] = []
    nodes = [threading.Thread(target=push, args=(node,)) for node in range(4)]
    for node in nodes:
        node.start()
    for node in nodes:
        node.join()
    assert sorted(set(sent)) == [200, 201]
    assert {path.read_bytes() for path in folder.iterdir()} == {b"01234"}
