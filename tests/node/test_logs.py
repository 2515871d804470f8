"""Reading the ranks' logs."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudbench.node.logs import Echo, StepWatcher, last_lines

STEPS = [
    b"10\timages/sec: 28.3 +/- 0.0 (jitter = 0.1)\t9.433\n",
    b"[1,0]<stdout>:20\timages/sec: 28.3\n",
    b"30  images/sec: 28.3\n",
    b"Iter #9: 1489.0 img/sec per GPU\n",
    b"\x1b[32m[0]<stdout>:Iter #10: 1489.0 img/sec per GPU\r\n",
]


@pytest.mark.parametrize("line", STEPS)
def test_step_is_seen_once(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "log"
    watcher = StepWatcher(path)
    assert not watcher.saw_step()
    path.write_bytes(b"warming up\n")
    assert not watcher.saw_step()
    with path.open("ab") as file:
        file.write(line)
    assert watcher.saw_step()
    assert not watcher.saw_step()


@pytest.mark.parametrize(
    "line", [b"total images/sec: 224.96\n", b"Step\timages/sec\n", b"Total img/sec on 2 GPU(s): 1\n"]
)
def test_other_lines_are_no_steps(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(line)
    assert not StepWatcher(path).saw_step()


@given(st.lists(st.integers(0, len(b"".join(STEPS))), max_size=8))
def test_steps_are_counted_alike_however_the_log_is_cut(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    data = b"".join(STEPS)
    path = tmp_path_factory.mktemp("cuts") / "log"
    watcher = StepWatcher(path)
    seen = 0
    edges = [0, *sorted(cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        with path.open("ab") as file:
            file.write(data[start:end])
        seen += watcher.saw_step()
    assert 1 <= seen <= len(STEPS)
    assert not watcher.saw_step()


def test_log_without_line_ends_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        for _ in range(64):
            file.write(b"x" * (1 << 20))
        file.write(b"7\timages/sec: 1.0\n")
    watcher = StepWatcher(path)
    tracemalloc.start()
    try:
        assert watcher.saw_step()
        assert last_lines(path) == [("x" * 500 + "7\timages/sec: 1.0")[-500:]]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes("".join(f"{number}\n" for number in range(100)).encode() + b"1 %\r2 %\r3 %\nb\xffd\r\n\nend")
    assert last_lines(path, count=5) == ["98", "99", "3 %", "b�d", "end"]
    assert last_lines(tmp_path / "none") == []


def test_whole_lines_of_ranks_are_told_once_with_the_name_of_their_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    echo, log = Echo(tmp_path), tmp_path / "rank-3.log"
    assert not echo.tell()
    (tmp_path / "node.log").write_text("not a rank's\n")
    log.write_bytes(b"first\nsec")
    assert echo.tell()
    assert not echo.tell()
    with log.open("ab") as file:
        file.write(b"ond \xff\r\nlast\n")
    assert echo.tell()
    assert capsys.readouterr().out == "rank-3: first\nrank-3: second \ufffd\nrank-3: last\n"


def test_a_long_log_is_told_piece_by_piece_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"line {number}" for number in range(60_000)]
    (tmp_path / "rank-0.log").write_text("".join(f"{line}\n" for line in lines))
    echo, turns = Echo(tmp_path), 0
    while echo.tell():
        turns += 1
    assert turns > 1
    assert "".join(line.removeprefix("rank-0: ") for line in capsys.readouterr().out.splitlines()) == "".join(lines)
