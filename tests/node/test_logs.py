"""Reading the ranks' logs."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudbench.node.logs import StepWatcher, last_lines

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
