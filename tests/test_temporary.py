"""Temporary files lie at short paths, and are found and removed by a link."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudbench.temporary import find_temporary, make_temporary, remove_temporary


@pytest.fixture
def link(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "tmp"
    yield path
    remove_temporary(path)


def test_a_folder_of_this_user_alone_is_made_once(link: Path) -> None:
    made = make_temporary(link)
    assert made.stat().st_mode & 0o777 == 0o700
    assert make_temporary(link) == find_temporary(link) == made


def test_it_is_removed_with_what_is_in_it(link: Path) -> None:
    made = make_temporary(link)
    (made / "socket").touch()
    assert remove_temporary(link)
    assert not made.exists()
    assert find_temporary(link) is None
    assert remove_temporary(link), "there is nothing left to remove"


def test_its_path_is_short_where_that_of_temporary_files_is_long(
    link: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 60)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert len(os.fsencode(make_temporary(link))) < 80


def test_one_that_is_gone_is_made_anew(link: Path) -> None:
    make_temporary(link).rmdir()  # as by the start of the machine
    assert make_temporary(link).is_dir()


def test_what_is_not_one_is_left_alone(link: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    link.symlink_to(theirs)
    assert find_temporary(link) is None
    assert remove_temporary(link)
    assert theirs.exists()
