"""mpirun on several nodes without an ssh server."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.node.conftest import NodePrograms, wait_until

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun (openmpi-bin) is not installed")
Make = Callable[..., NodePrograms]


def test_mpirun_starts_the_ranks_of_all_nodes(node_programs: Make) -> None:
    run = node_programs(
        2,
        'echo "$TMPDIR" >"$CLOUDBENCH_LOG_FOLDER/tmpdir"; '
        'echo "$CLOUDBENCH_RANK $OMPI_COMM_WORLD_RANK $CLOUDBENCH_LOCAL_RANK $CLOUDBENCH_NODE_INDEX $WORD"',
        launcher="mpirun",
        ranks_per_node=2,
        environment={"WORD": "two words"},
    )
    assert run.start().wait() == {0: 0, 1: 0}
    for rank in range(4):
        assert run.text(rank // 2, f"rank-{rank}.log") == f"{rank} {rank} {rank % 2} {rank // 2} two words\n"
    assert [rank["rank"] for rank in run.status(1)["ranks"]] == [2, 3]
    assert run.text(0, "tmpdir") != run.text(1, "tmpdir"), "the daemons of one machine would race for a folder"
    assert run.processes() == []


def test_dead_rank_is_named_with_its_last_lines(node_programs: Make) -> None:
    command = "[ $CLOUDBENCH_RANK = 3 ] && { echo bad luck; exit 7; }; sleep 300"
    run = node_programs(2, command, launcher="mpirun", ranks_per_node=2)
    assert run.start().wait() == {0: 1, 1: 1}
    assert run.processes() == []
    for node in range(2):
        status = run.status(node)
        assert (status["outcome"], status["exit_code"], status["failed_rank"]) == ("failed", 7, 3)
        assert status["reason"].startswith("rank 3 on node 1 (")
        assert status["last_lines"] == ["bad luck"]


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_node_program_leaves_nothing_running(node_programs: Make, victim: int) -> None:
    run = node_programs(2, "echo at work; sleep 300", launcher="mpirun", ranks_per_node=2).start()
    for rank in range(4):
        run.wait_for_text(rank // 2, f"rank-{rank}.log", "at work")
    run.programs[victim].kill()
    run.wait()
    wait_until(lambda: run.processes() == [], "the end of every process")
    assert run.status(1 - victim)["outcome"] == "infrastructure"


def test_a_long_path_of_temporary_files_is_in_nobody_s_way(node_programs: Make, tmp_path: Path) -> None:
    run = node_programs(2, "echo here", launcher="mpirun")
    folder = tmp_path / "long" / ("x" * 100)
    folder.mkdir(parents=True)
    run.environment["TMPDIR"] = str(folder)
    assert run.start().wait() == {0: 0, 1: 0}
    assert run.text(1, "rank-1.log") == "here\n"


def test_missing_mpirun_is_said(node_programs: Make) -> None:
    run = node_programs(1, "echo never", launcher="mpirun", environment={"PATH": "/nowhere"})
    assert run.start().wait() == {0: 1}
    assert run.status(0)["reason"].startswith("mpirun cannot be started on node 0")
