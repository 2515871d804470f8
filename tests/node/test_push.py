"""Files that follow a node to the share, sent to a real server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudbench.node.job import Job, NodeError
from cloudbench.node.push import Order, Pusher, Wire, file_names, read_order
from tests.node.conftest import PATIENCE_S, wait_until
from tests.node.share import SIGNATURE, Share, open_share, unused_port

NAMES = ("rank-0.log", "facts.json", "status.json")


@pytest.fixture
def share() -> Iterator[Share]:
    with open_share() as opened:
        yield opened


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire()
    yield made
    made.close()


@pytest.fixture
def pusher(share: Share, wire: Wire, tmp_path: Path) -> Pusher:
    return Pusher(tmp_path, Order("azure-files", {name: share.url(name) for name in NAMES}), wire)


def test_growing_log_is_sent_piece_by_piece_and_never_twice(share: Share, pusher: Pusher, tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    written = b""
    for piece in (b"", b"one\n", b"two\n", b"x" * (9 << 20)):
        with log.open("ab") as file:
            file.write(piece)
        written += piece
        assert pusher.sweep()
        assert bytes(share.files["rank-0.log"]) == written
    ranges = [request for request in share.requests if request == ("range", "rank-0.log")]
    assert len(ranges) == 2 + 3  # no request may write more than 4 MiB
    assert share.requests.count(("create", "rank-0.log")) == 1
    before = len(share.requests)
    assert pusher.sweep()
    assert len(share.requests) == before


def test_log_begins_with_the_same_bytes_at_every_moment(share: Share, pusher: Pusher, tmp_path: Path) -> None:
    for number in range(5):
        with (tmp_path / "rank-0.log").open("a") as file:
            file.write(f"line {number}\n")
        assert pusher.sweep()
    whole = bytes(share.files["rank-0.log"])
    assert all(whole.startswith(moment.rstrip(b"\0")) for moment in share.seen["rank-0.log"])


def test_document_is_replaced_by_one_request_so_that_it_can_be_read_at_every_moment(
    share: Share, pusher: Pusher, tmp_path: Path
) -> None:
    for number in (0, 12345, 7):
        (tmp_path / "status.json").write_text(json.dumps({"state": "running", "number": number}))
        assert pusher.sweep()
    first, *rest = share.seen["status.json"]
    assert first.strip(b"\0") == b""
    assert [json.loads(moment)["number"] for moment in rest] == [0, 12345, 7]
    assert share.requests.count(("create", "status.json")) == 1


def test_document_grows_beyond_its_page(share: Share, pusher: Pusher, tmp_path: Path) -> None:
    for text in ("x", "x" * 10_000, "y"):
        (tmp_path / "facts.json").write_text(json.dumps(text))
        assert pusher.sweep()
        assert json.loads(bytes(share.files["facts.json"])) == text


def test_end_is_told_when_everything_else_is_there(share: Share, pusher: Pusher, tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_text("trained\n")
    (tmp_path / "status.json").write_text('{"state": "ended"}')
    share.refused["rank-0.log"] = 403
    assert not pusher.sweep()
    assert "status.json" not in share.files
    assert not (tmp_path / ".pushed").exists()
    share.refused.clear()
    assert pusher.sweep()
    assert (share.text("rank-0.log"), share.text("status.json")) == ("trained\n", '{"state": "ended"}')
    assert (tmp_path / ".pushed").exists()


def test_last_sweep_tells_the_end_although_a_log_is_refused(share: Share, pusher: Pusher, tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_text("trained\n")
    (tmp_path / "status.json").write_text('{"state": "ended"}')
    share.refused["rank-0.log"] = 403
    assert not pusher.sweep(final=True, last=True)
    assert share.text("status.json") == '{"state": "ended"}'


def test_file_that_vanished_from_the_share_is_made_again(share: Share, pusher: Pusher, tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text("one\n")
    assert pusher.sweep()
    share.remove("rank-0.log")
    with log.open("a") as file:
        file.write("two\n")
    assert not pusher.sweep()
    assert pusher.sweep()
    assert share.text("rank-0.log") == "one\ntwo\n"


def test_refused_file_holds_up_no_other_and_its_address_is_not_told(
    share: Share, pusher: Pusher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in NAMES:
        (tmp_path / name).write_text("{}")
    share.refused["rank-0.log"] = 403
    for _ in range(3):
        assert not pusher.sweep()
    assert share.text("facts.json") == "{}"
    printed = capsys.readouterr().out
    assert printed == "rank-0.log: HTTP 403 AuthorizationPermissionMismatch; trying again\n"


def test_nobody_there_is_asked_once_a_sweep(wire: Wire, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = unused_port("127.0.0.1")
    urls = {name: f"http://127.0.0.1:{port}/{name}?{SIGNATURE}" for name in NAMES}
    pusher = Pusher(tmp_path, Order("azure-files", urls), wire)
    for name in NAMES:
        (tmp_path / name).write_text("{}")
    assert not pusher.sweep()
    assert capsys.readouterr().out == "rank-0.log: Connection refused; trying again\n"


def test_unusable_address_is_not_told(wire: Wire, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pusher = Pusher(tmp_path, Order("azure-files", {"rank-0.log": f"http://host:port/x?{SIGNATURE}"}), wire)
    (tmp_path / "rank-0.log").write_text("trained\n")
    assert not pusher.sweep()
    assert SIGNATURE not in capsys.readouterr().out


def test_whole_objects_are_replaced(share: Share, wire: Wire, tmp_path: Path) -> None:
    pusher = Pusher(tmp_path, Order("http-put", {name: share.url(name) for name in NAMES}), wire)
    log = tmp_path / "rank-0.log"
    log.write_text("one\n")
    (tmp_path / "status.json").write_text('{"state": "running"}')
    assert pusher.sweep()
    log.write_text("one\ntwo\n")
    assert pusher.sweep(final=True)
    assert (share.text("rank-0.log"), share.text("status.json")) == ("one\ntwo\n", '{"state": "running"}')
    assert pusher.sweep(final=True)
    assert share.requests.count(("whole", "rank-0.log")) == 2


def push_program(pyz: Path, share: Share, folder: Path) -> subprocess.Popen[bytes]:
    order = folder.parent / "push.json"
    nodes = [{}, {name: share.url(name) for name in NAMES}]
    order.write_text(json.dumps({"version": 1, "kind": "azure-files", "nodes": nodes}))
    command = [sys.executable, pyz, "push", "--folder", folder, "--push", order, "--node", "1"]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_program_follows_and_brings_the_rest_when_it_is_told_to_finish(pyz: Path, share: Share, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    log = folder / "rank-0.log"
    log.write_text("one\n")
    with push_program(pyz, share, folder) as program:
        wait_until(lambda: share.text("rank-0.log") == "one\n", "the first line")
        with log.open("a") as file:
            file.write("two\n")
        program.send_signal(signal.SIGTERM)
        assert program.wait(PATIENCE_S) == 0
        assert share.text("rank-0.log") == "one\ntwo\n"


@pytest.mark.slow
def test_program_survives_a_share_that_hangs(pyz: Path, share: Share, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "rank-0.log").write_text("one\n")
    share.hangs.set()
    with push_program(pyz, share, folder) as program:
        wait_until(lambda: len(share.requests) >= 2, "a second try")
        share.recover()
        wait_until(lambda: share.text("rank-0.log") == "one\n", "the first line")
        program.send_signal(signal.SIGTERM)
        assert program.wait(PATIENCE_S) == 0
        assert program.stdout is not None
        assert program.stdout.read().startswith(b"rank-0.log: no answer within 10 s; trying again\n")


def test_log_that_is_written_meanwhile_arrives_whole(share: Share, pusher: Pusher, tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.touch()
    done = threading.Event()

    def write() -> None:
        for number in range(200):
            with log.open("a") as file:
                file.write(f"{number}\n")
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        pusher.sweep()
    writer.join()
    assert pusher.sweep()
    assert share.text("rank-0.log").split() == [str(number) for number in range(200)]


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 1, "kind": "azure-files", "nodes": []}'])
def test_order_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(NodeError, match="does not tell where the files of node 0 go"):
        read_order(text, 0)


def test_order_of_another_kind_is_refused_without_its_addresses() -> None:
    order = {"version": 1, "kind": "pigeons", "nodes": [{"rank-0.log": SIGNATURE}]}
    with pytest.raises(NodeError, match="kind 'pigeons'") as caught:
        read_order(json.dumps(order), 0)
    assert SIGNATURE not in str(caught.value)


def job(launcher: str, prepare: str | None = None) -> Job:
    return Job("run", 1, launcher, "true", prepare, 2, 0, {}, 60.0, 60.0, 1.0)


COMMON = ("node.log", "start.log", "push.log", "facts.json", "status.json")


@pytest.mark.parametrize(
    ("launcher", "prepare", "names"),
    [
        ("single", None, [("rank-0.log",), ()]),
        ("horovod", "true", [("rank-0.log", "rank-1.log", "prepare.log"), ("rank-2.log", "rank-3.log", "prepare.log")]),
        (
            "parameter-server",
            None,
            [("rank-0.log", "rank-1.log", "ps-0.log"), ("rank-2.log", "rank-3.log", "ps-1.log")],
        ),
        ("mpirun", None, [("rank-0.log", "rank-1.log", "mpirun.log"), ("rank-2.log", "rank-3.log")]),
    ],
)
def test_names_are_those_that_a_node_writes(launcher: str, prepare: str | None, names: list[tuple[str, ...]]) -> None:
    for node in range(2):
        assert file_names(node, 2, job(launcher, prepare)) == (*names[node], *COMMON)
