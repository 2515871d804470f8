from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from cloudbench.errors import UsageError
from cloudbench.providers.azure.share import Share
from cloudbench.rehearsal.azure_files import FilesStandIn
from cloudbench.rehearsal.clock import Clock
from tests.providers.azure.plans import ACCOUNT, STORAGE_KEY, azure_plan


def asked(address: str, method: str = "GET", headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    """What the service answers to who has nothing but the address."""
    url = urlsplit(address)
    connection = http.client.HTTPConnection(url.netloc)
    versioned = {"x-ms-version": "2022-11-02", "Content-Length": "0", **(headers or {})}
    connection.request(method, f"{url.path}?{url.query}", headers=versioned)
    with connection.getresponse() as answer:
        found = answer.status, answer.read()
    connection.close()
    return found


PLAN = azure_plan(id="run")


@pytest.fixture
def files(tmp_path: Path) -> Iterator[FilesStandIn]:
    service = FilesStandIn(tmp_path / "shares", Clock(), account="benchstore", key=STORAGE_KEY)
    service.start()
    service.make_share("cloudbench")
    yield service
    service.close()


@pytest.fixture
def share(files: FilesStandIn) -> Iterator[Share]:
    share = Share(msgspec.structs.replace(ACCOUNT, files_endpoint=files.endpoint))
    yield share
    share.close()


@pytest.fixture
def folder(files: FilesStandIn, share: Share) -> Path:
    """The folder of an attempt, where it really lies."""
    share.make("run-a1", PLAN, 1, lifetime_s=600)
    return files.folder("cloudbench") / "runs" / "run-a1"


def test_a_folder_has_what_nodes_are_given(folder: Path) -> None:
    assert (folder / "cloudbench-node.pyz").read_bytes().startswith(b"PK")
    assert json.loads((folder / "job.json").read_text())["run"] == "run"
    assert len((folder / "secret").read_text()) >= 32
    assert sorted(path.name for path in folder.glob("node-*")) == ["node-0", "node-1"]


def test_a_folder_that_is_whole_stays_as_it_is(share: Share, folder: Path) -> None:
    before = (folder / "secret").read_text()
    share.make("run-a1", PLAN, 1, lifetime_s=600)
    assert (folder / "secret").read_text() == before


def test_a_folder_that_a_client_left_half_made_is_completed(files: FilesStandIn, share: Share) -> None:
    client = share._client
    client.create_directory("runs")
    marks = {"cloudbench_owner": PLAN.owner, "cloudbench_run": "run", "cloudbench_attempt": "1"}
    client.get_directory_client("runs/run-a1").create_directory(metadata={**marks, "cloudbench_service": "batch"})
    client.get_file_client("runs/run-a1/secret").create_file(64)  # made, and never written
    share.make("run-a1", PLAN, 1, lifetime_s=600)
    assert "\0" not in (files.folder("cloudbench") / "runs/run-a1/secret").read_text()


def test_a_folder_of_another_owner_is_refused(share: Share, folder: Path) -> None:
    theirs = msgspec.structs.replace(PLAN, owner="somebody-else")
    with pytest.raises(UsageError, match="belongs to another run"):
        share.make("run-a1", theirs, 1, lifetime_s=600)
    assert list(share.find("somebody-else", "batch")) == []
    [marks] = share.find(PLAN.owner, "batch")
    assert marks["cloudbench_run"] == "run"
    assert list(share.find(PLAN.owner, "vm")) == []


def test_an_address_is_good_for_one_file_and_one_use(share: Share, folder: Path) -> None:
    address = share.address("run-a1", "job.json", lifetime_s=60)
    assert asked(address.reveal()) == (200, (folder / "job.json").read_bytes())
    for refused in (
        share.address("run-a1", "job.json", lifetime_s=60, permission="w").reveal(),
        share.address("run-a1", "job.json", lifetime_s=-60).reveal(),
        address.reveal().replace("job.json", "secret"),
    ):
        assert asked(refused)[0] == 403
    assert "sig=" not in str(address)


def test_a_node_has_an_address_for_each_file_that_it_may_write(folder: Path) -> None:
    order = json.loads((folder / "push.json").read_text())
    assert (order["version"], order["kind"], len(order["nodes"])) == (1, "azure-files", 2)
    assert {"rank-1.log", "node.log", "status.json", "facts.json"} <= order["nodes"][1].keys()
    assert "rank-0.log" not in order["nodes"][1]
    address = order["nodes"][1]["rank-1.log"]
    assert asked(address, "PUT", {"x-ms-type": "file", "x-ms-content-length": "3"})[0] == 201
    assert asked(address)[0] == 403, "what a node writes, it cannot read with that address"


def test_logs_are_listed_and_read_from_any_offset(share: Share, folder: Path) -> None:
    assert share.logs("run-a1") == []
    (folder / "node-1" / "rank-1.log").write_bytes(b"one\ntwo\n")
    [log] = share.logs("run-a1")
    assert (log.node, log.name, log.size_bytes) == (1, "rank-1.log", 8)
    chunk = share.read_log("run-a1", 1, "rank-1.log", 4)
    assert (chunk.data, chunk.next_offset) == (b"two\n", 8)
    for node, name, offset in ((1, "rank-1.log", 8), (1, "rank-1.log", 99), (0, "rank-0.log", 0), (7, "rank-7.log", 0)):
        assert share.read_log("run-a1", node, name, offset).data == b""
    with pytest.raises(UsageError):
        share.read_log("run-a1", 0, "../../secret", 0)


def test_zeros_at_the_end_of_a_log_are_bytes_that_have_not_come_yet(share: Share, folder: Path, tmp_path: Path) -> None:
    log = folder / "node-0" / "rank-0.log"
    log.write_bytes(b"one\n\0\0\0\0")
    assert share.read_log("run-a1", 0, "rank-0.log", 0).next_offset == 4
    share.collect("run-a1", tmp_path / "home")
    log.write_bytes(b"one\ntwo\n")
    assert share.read_log("run-a1", 0, "rank-0.log", 4).data == b"two\n"
    share.collect("run-a1", tmp_path / "home")
    assert (tmp_path / "home" / "node-0" / "rank-0.log").read_bytes() == b"one\ntwo\n"


def test_a_long_log_comes_home_whole(share: Share, folder: Path, tmp_path: Path) -> None:
    data = b"".join(b"%07d\n" % line for line in range(300_000))
    (folder / "node-0" / "rank-0.log").write_bytes(data)
    share.collect("run-a1", tmp_path / "home")
    assert (tmp_path / "home" / "node-0" / "rank-0.log").read_bytes() == data


def test_a_small_file_that_changed_comes_home_again(share: Share, folder: Path, tmp_path: Path) -> None:
    for text in ("aaa", "bbb"):
        (folder / "node-0" / "status.json").write_text(text)
        share.collect("run-a1", tmp_path / "home")
        assert (tmp_path / "home" / "node-0" / "status.json").read_text() == text


def test_what_a_node_said_is_read_once_it_is_whole(share: Share, folder: Path) -> None:
    assert share.status("run-a1", 0) is None
    (folder / "node-0" / "status.json").write_bytes(b"\0" * 40)
    assert share.status("run-a1", 0) is None
    (folder / "node-0" / "status.json").write_text('{"state": "running", "stamps": {"start": 1.0}}')
    found = share.status("run-a1", 0)
    assert found
    assert found.state == "running"


def test_a_folder_that_was_removed_is_gone(share: Share, folder: Path) -> None:
    (folder / "node-0" / "rank-0.log").write_text("line\n")
    assert share.remove("run-a1")
    assert not folder.exists()
    assert share.remove("run-a1")
    assert share.logs("run-a1") == []


def test_a_share_that_is_not_there_is_told(share: Share, files: FilesStandIn) -> None:
    assert share.exists()
    other = Share(msgspec.structs.replace(ACCOUNT, files_endpoint=files.endpoint, share="elsewhere"))
    assert not other.exists()
    other.close()
