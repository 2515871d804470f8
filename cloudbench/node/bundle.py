"""Pack the node program and the training programs into one `.pyz`."""

from __future__ import annotations

import importlib.resources
import io
import zipfile
from typing import Any

_MAIN = "import sys\n\nfrom cloudbench.node.__main__ import main\n\nsys.exit(main())\n"


def bundle() -> bytes:
    """The bytes of the `.pyz` that runs on every node; the same sources always give the same bytes.

    Nothing is compressed: compressors of different versions give different bytes, and the whole is small.
    """
    package = importlib.resources.files("cloudbench")
    files = {"__main__.py": _MAIN.encode(), "cloudbench/__init__.py": (package / "__init__.py").read_bytes()}
    for name in ("node", "workloads"):
        _collect(package / name, f"cloudbench/{name}", files)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # Unix, also when packed elsewhere
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[path])
    return buffer.getvalue()


def _collect(folder: Any, prefix: str, files: dict[str, bytes]) -> None:
    for item in folder.iterdir():
        path = f"{prefix}/{item.name}"
        if item.is_dir():
            if item.name != "__pycache__":
                _collect(item, path, files)
        elif not item.name.endswith((".pyc", ".pyo")):
            files[path] = item.read_bytes()
