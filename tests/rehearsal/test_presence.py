"""What other commands find of a rehearsal, and what the next one makes of a dead one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cloudbench.rehearsal.machines import Machines
from cloudbench.rehearsal.presence import find_endpoints, remove_dead, tell_endpoints


class Somewhere(msgspec.Struct, forbid_unknown_fields=True):
    url: str


class Elsewhere(msgspec.Struct, forbid_unknown_fields=True):
    address: str


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "rehearsals"


def killed(root: Path, name: str) -> Machines:
    """A rehearsal with one machine, whose process let go of everything without a word."""
    machines = Machines(root / name / "nodes", containers=False)
    machine = machines.start("node")
    for folder in (machine.folder, machine.folder / "tmp" / "cloudbench-x" / "out"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "node.log").write_text(f"12:00:00 node 1 of 2, run {name}, pid 7\n")
    tell_endpoints(root / name, Somewhere("http://127.0.0.1:1"))
    return machines


def test_a_rehearsal_is_found_while_its_process_lives(root: Path) -> None:
    machines = killed(root, "one")
    assert find_endpoints(root / "one", Somewhere) == Somewhere("http://127.0.0.1:1")
    assert find_endpoints(root / "one", Elsewhere) is None
    machines.close()
    assert find_endpoints(root / "one", Somewhere) is None


def test_a_living_rehearsal_is_left_alone(root: Path) -> None:
    machines = killed(root, "one")
    remove_dead(root, lambda *node: pytest.fail("its files are its own"))
    assert (root / "one" / "nodes" / "node" / "node.log").exists()
    machines.close()


def test_of_a_dead_one_the_nodes_files_are_kept_and_nothing_else(root: Path) -> None:
    machines = killed(root, "one")
    temporary = (root / "one" / "nodes" / "node" / "tmp").resolve()
    machines._machines.clear()  # its end ends no machine
    machines.close()
    kept: list[tuple[str, int, str]] = []
    remove_dead(root, lambda run, node, folder: kept.append((run, node, (folder / "node.log").read_text())))
    assert kept == [("one", 1, "12:00:00 node 1 of 2, run one, pid 7\n")] * 2
    assert list(root.iterdir()) == []
    assert not temporary.exists()
