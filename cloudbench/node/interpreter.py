"""The Python that ranks get: where `python` and our own package are found."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def archive() -> str:
    """The `.pyz` (or the folder) that this package was loaded from."""
    return str(Path(__file__).absolute().parents[2])


def path_with_python(path: str, scratch: Path) -> str:
    """`path`, so that `python` is found on it.

    In a virtual environment that is the environment's own. Where only `python3` exists, as on Debian, a link to
    this interpreter is made in `scratch`.
    """
    if sys.prefix == sys.base_prefix and shutil.which("python", path=path):
        return path
    path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), path)))
    if shutil.which("python", path=path):
        return path
    (scratch / "python").symlink_to(sys.executable)
    return os.pathsep.join((str(scratch), path))
