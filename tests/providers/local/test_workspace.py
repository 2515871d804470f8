from __future__ import annotations

import fcntl
import json
import os
import stat
from pathlib import Path

import msgspec
import pytest

from cloudbench.errors import UsageError
from cloudbench.providers.local.workspace import Workspace
from cloudbench.run import Outcome
from tests.providers.local.world import LocalWorld


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """One of a run with two nodes, made and not used."""
    plan = LocalWorld(tmp_path).plan("true", owner="somebody")
    workspace = Workspace(root=tmp_path / "workspaces", run=plan.id, attempt=1)
    workspace.make(plan, service="process")
    return workspace


def test_it_holds_what_the_nodes_are_given_and_others_cannot_read_it(workspace: Workspace) -> None:
    names = {path.name for path in workspace.folder.iterdir()}
    given = {"cloudbench-node.pyz", "job.json", "lifeline", "secret", "workspace.json"}
    assert names == given | {"node-0", "node-1", "work-0", "work-1"}
    assert stat.S_IMODE(workspace.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE((workspace.folder / name).stat().st_mode) for name in given} == {0o600}
    assert json.loads((workspace.folder / "job.json").read_bytes())["run"] == workspace.run


def test_made_again_it_stays_as_it_is(workspace: Workspace, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in workspace.folder.iterdir() if path.is_file()}
    plan = msgspec.structs.replace(LocalWorld(tmp_path).plan("true", owner="somebody"), id=workspace.run)
    workspace.make(plan, service="process")
    assert {path: path.read_bytes() for path in workspace.folder.iterdir() if path.is_file()} == before


def test_another_owners_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    plan = msgspec.structs.replace(LocalWorld(tmp_path).plan("true", owner="another"), id=workspace.run)
    with pytest.raises(UsageError, match=workspace.name):
        workspace.make(plan, service="process")
    assert workspace.record
    assert workspace.record.owner == "somebody"


def test_all_that_exist_are_listed(workspace: Workspace) -> None:
    (workspace.root / "stray").mkdir()
    (workspace.root / "stray" / "workspace.json").write_text("{}")
    assert list(Workspace.all(workspace.root)) == [workspace]
    assert list(Workspace.all(workspace.root / "nowhere")) == []


def test_a_lock_tells_who_lives(workspace: Workspace) -> None:
    assert not workspace.locked(0)
    descriptor = os.open(workspace.node_folder(0) / "node.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert workspace.locked(0)
    os.close(descriptor)
    assert not workspace.locked(0)


def test_a_node_that_died_speaks_through_its_log(workspace: Workspace) -> None:
    (workspace.node_folder(1) / "node.log").write_text("the node program starts\n")
    assert workspace.see(1, alive=False).last_lines == ("the node program starts",)
    (workspace.node_folder(1) / "rank-1.log").write_text("step 1\nstep 2\n")
    assert workspace.see(1, alive=False).last_lines == ("step 1", "step 2")
    assert workspace.see(1, alive=True).last_lines == ()


def test_the_first_reason_to_end_stays(workspace: Workspace) -> None:
    assert workspace.ending is None
    assert workspace.begin_ending(Outcome.CANCELLED, "first")
    assert not workspace.begin_ending(Outcome.INFRASTRUCTURE, "second")
    ending = workspace.ending
    assert ending
    assert (ending.outcome, ending.reason) == (Outcome.CANCELLED, "first")


def test_logs_are_read_in_bounded_pieces(workspace: Workspace) -> None:
    data = os.urandom((1 << 20) + 7)
    (workspace.node_folder(0) / "rank-0.log").write_bytes(data)
    [log] = workspace.logs()
    assert (log.node, log.name, log.size_bytes) == (0, "rank-0.log", len(data))
    first = workspace.read_log(0, "rank-0.log", 0)
    second = workspace.read_log(0, "rank-0.log", first.next_offset)
    assert (len(first.data), first.data + second.data) == (1 << 20, data)
    assert workspace.read_log(0, "rank-0.log", second.next_offset).data == b""


@pytest.mark.parametrize("name", ["../../secret", "../secret.log", "status.json", "/etc/passwd"])
def test_only_logs_are_read(workspace: Workspace, name: str) -> None:
    with pytest.raises(UsageError):
        workspace.read_log(0, name, 0)


def test_collecting_takes_results_and_leaves_locks_links_and_halves(workspace: Workspace, tmp_path: Path) -> None:
    node = workspace.node_folder(0)
    (node / "rank-0.log").write_text("line\n")
    (node / "deeper").mkdir()
    (node / "deeper" / "profile.bin").write_bytes(b"\0")
    (node / "node.lock").touch()
    (node / ".status.json.17").write_text("half")
    (node / "link").symlink_to("/etc/passwd")
    (workspace.folder / "work-0" / "checkpoint").touch()

    workspace.collect(tmp_path / "home")

    files = {str(path.relative_to(tmp_path / "home")) for path in (tmp_path / "home").rglob("*") if not path.is_dir()}
    assert files == {"node-0/rank-0.log", "node-0/deeper/profile.bin"}


def test_a_removed_one_is_gone(workspace: Workspace) -> None:
    assert workspace.remove()
    assert workspace.record is None
    assert workspace.logs() == []
    assert workspace.remove()
