from __future__ import annotations

from pathlib import Path

import pytest

from cloudbench.errors import UsageError
from cloudbench.providers.attempt_files import LONGEST_CHUNK, AttemptFiles


class Folder(AttemptFiles):
    """A storage that is a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, name: str, file: str, offset: int = 0) -> bytes:
        path = self.root / name / file
        return path.read_bytes()[offset : offset + LONGEST_CHUNK] if path.is_file() else b""

    def _node_files(self, name: str) -> list[tuple[str, str, int]]:
        files = sorted((self.root / name).glob("node-*/*"))
        return [(path.parent.name, path.name, path.stat().st_size) for path in files]


@pytest.fixture
def files(tmp_path: Path) -> Folder:
    folder = tmp_path / "storage" / "run-a1" / "node-1"
    folder.mkdir(parents=True)
    (folder / "rank-1.log").write_bytes(b"line\n" * LONGEST_CHUNK)
    (folder / "node.log").touch()
    (folder / "status.json").write_text('{"state": "running"}')
    return Folder(tmp_path / "storage")


def test_logs_are_those_that_have_something_in_them(files: Folder) -> None:
    assert [(log.node, log.name, log.size_bytes) for log in files.logs("run-a1")] == [
        (1, "rank-1.log", 5 * LONGEST_CHUNK)
    ]


def test_a_log_is_read_in_chunks_from_where_the_last_one_ended(files: Folder) -> None:
    first = files.read_log("run-a1", 1, "rank-1.log", 0)
    assert first.next_offset == len(first.data) == LONGEST_CHUNK
    rest = files.read_log("run-a1", 1, "rank-1.log", 5 * LONGEST_CHUNK - 5)
    assert (rest.data, rest.next_offset) == (b"line\n", 5 * LONGEST_CHUNK)
    assert files.read_log("run-a1", 1, "rank-1.log", rest.next_offset).data == b""


@pytest.mark.parametrize("file", ["../secret", "secret", "node-1/rank-1.log"])
def test_only_logs_are_read_as_logs(files: Folder, file: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a log file"):
        files.read_log("run-a1", 1, file, 0)


def test_what_a_node_said_last_is_none_where_it_said_nothing_or_half_of_it(files: Folder) -> None:
    status = files.status("run-a1", 1)
    assert status is not None
    assert status.state == "running"
    assert files.status("run-a1", 0) is None
    (files.root / "run-a1" / "node-1" / "status.json").write_text('{"sta')
    assert files.status("run-a1", 1) is None


def test_collecting_again_writes_only_what_is_new(files: Folder, tmp_path: Path) -> None:
    home = tmp_path / "home"
    files.collect("run-a1", home)
    assert (home / "node-1" / "rank-1.log").stat().st_size == 5 * LONGEST_CHUNK
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*.*")}
    (files.root / "run-a1" / "node-1" / "status.json").write_text('{"state": "ended"}')
    files.collect("run-a1", home)
    changed = [path.name for path, at in before.items() if path.stat().st_mtime_ns != at]
    assert changed == ["status.json"]
