"""What the node itself reads in the ranks' logs: their last lines, and when training steps appear."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# A step of tf_cnn_benchmarks ("10\timages/sec: 28.3 …", whatever stands before it) or of Horovod's synthetic
# benchmarks ("Iter #9: 1489.0 …"). "total images/sec" is no step: no number stands before the words.
_STEP = re.compile(rb"\d[ \t]+images/sec:|Iter #\d+:")
_LONGEST_STEP = 64
_CHUNK = 1 << 18


def last_lines(path: Path, count: int = 20, width: int = 500) -> list[str]:
    """The last lines of a log, each cut to its last `width` characters; none where there is no log."""
    reach = 1 << 16
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - reach))
            text = file.read(reach).decode("utf-8", "replace")
    except OSError:
        return []
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    return [line[-width:] for line in lines if line.strip()][-count:]


class Echo:
    """Prints the lines that the ranks' logs in a folder gain, each after the name of its log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}

    def tell(self) -> bool:
        """Print what is new, to the last whole line of each log and at most a chunk; whether there was any."""
        told = False
        for path in sorted(self._folder.glob("rank-*.log")):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                lines = file.read(_CHUNK).splitlines(keepends=True)
            if lines and not lines[-1].endswith(b"\n") and sum(map(len, lines)) < _CHUNK:
                del lines[-1]
            for line in lines:
                print(f"{path.stem}: {line.decode('utf-8', 'replace').rstrip()}")
            self._offsets[path] = self._offsets.get(path, 0) + sum(map(len, lines))
            told = told or bool(lines)
        return told


class StepWatcher:
    """Tells whether a growing log gained lines that look like training steps.

    Only what is new is read, in chunks of bounded size.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def saw_step(self) -> bool:
        """Whether a step was printed since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                return self._read(file.read)
        except OSError:
            return False

    def _read(self, read: Callable[[int], bytes]) -> bool:
        found = False
        for chunk in iter(lambda: read(_CHUNK), b""):
            self._offset += len(chunk)
            data = self._rest + chunk
            end = 0
            for match in _STEP.finditer(data) if b"images/sec:" in data or b"Iter #" in data else ():
                found, end = True, match.end()
            # What may be the beginning of a step is looked at again, what was counted is not.
            self._rest = data[max(end, len(data) - _LONGEST_STEP) :]
        return found
