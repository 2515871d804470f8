"""Folders for the temporary files of programs that may be killed: a link beside what they belong to leads to each.

They lie at short paths of their own, since the path of a socket in them must not have more than 103 bytes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "cloudbench-"
_LONGEST_PARENT = 59  # bytes: the name of the folder, that of a node program's own and that of a socket have 44


def make_temporary(link: Path) -> Path:
    """The folder that `link` leads to, which only this user can enter; made where there is none.

    Raises:
        OSError: it cannot be made.
    """
    if (found := find_temporary(link)) is not None:
        return found
    too_long = len(os.fsencode(tempfile.gettempdir())) > _LONGEST_PARENT
    made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp" if too_long else None))  # noqa: S108  # mkdtemp is safe there
    link.unlink(missing_ok=True)
    link.symlink_to(made)
    return made


def find_temporary(link: Path) -> Path | None:
    """The folder that `link` leads to; None where there is none, or it is not one of these."""
    folder = link.resolve()
    return folder if link.is_symlink() and folder.name.startswith(_PREFIX) and folder.is_dir() else None


def remove_temporary(link: Path) -> bool:
    """Remove the folder that `link` leads to; True where it is not there any more."""
    folder = find_temporary(link)
    if folder is None:
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()
