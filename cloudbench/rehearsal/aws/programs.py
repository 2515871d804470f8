"""Programs that an instance finds before this machine's own, so that its user data ends the instance and nothing else.

User data is the root user's on a rented machine; here it is a guest.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from cloudbench.rehearsal.aws.wire import AwsError
from cloudbench.rehearsal.guest import REQUESTS, install_programs, way_around, write_program

__all__ = ["REQUESTS", "check", "hear", "install", "minutes_left", "placed"]

_HEARD = "shutdown-requests-heard"
_OWN_PLACES = re.compile(r"(?<![\w.}/-])/(?:mnt|opt)(?=/|\b)")

# It returns when it was heard, as the real one does.
_SHUTDOWN = """\
printf '%s\\n' "$*" >> {requests}
count=$(wc -l < {requests})
until [ "$(cat {heard} 2>/dev/null || echo 0)" -ge "$count" ]; do sleep 0.05; done
"""

# mount -t nfs4 -o OPTIONS ID.efs.REGION.amazonaws.com:/ PLACE; mount -t efs ID:/ PLACE
_MOUNT = """\
for word; do source=$place place=$word; done
id=${{source%%[.:]*}}
case "$id" in
{cases}  *) echo "mount.nfs4: Failed to resolve server ${{source%%:*}}: Name or service not known" >&2; exit 32;;
esac
case "$place" in
  {root}*) rmdir "$place" && ln -s "$folder" "$place";;
  *) echo "rehearsal: $place is not this instance's: not mounted" >&2; exit 32;;
esac
"""


def check(user_data: str) -> None:
    """Refuse a script that would go around the programs of its instance.

    Raises:
        AwsError: it names one by its path, or sets PATH.
    """
    if (found := way_around(user_data)) is not None:
        message = f"user data with {found!r} would reach the machine that rehearses: name programs alone"
        raise AwsError("InvalidUserData.NotForRehearsal", message)


def placed(user_data: str, folder: Path) -> str:
    """The script with the places that a root user makes below the root folder in the machine's own folder."""
    return _OWN_PLACES.sub(lambda found: f"{folder}{found[0]}", user_data)


def install(folder: Path, file_systems: Path | None) -> None:
    """Write them into the machine's `bin`; `mount` shows the folders of EFS, by their names."""
    for place in ("mnt", "opt"):
        (folder / place).mkdir(exist_ok=True)
    install_programs(folder)
    requests, heard = (shlex.quote(str(folder / name)) for name in (REQUESTS, _HEARD))
    write_program(folder / "bin" / "shutdown", _SHUTDOWN.format(requests=requests, heard=heard))
    known = sorted(file_systems.iterdir()) if file_systems and file_systems.is_dir() else []
    cases = "".join(f"  {shlex.quote(at.name)}) folder={shlex.quote(str(at))};;\n" for at in known)
    write_program(folder / "bin" / "mount", _MOUNT.format(cases=cases, root=shlex.quote(f"{folder}/")))


def hear(folder: Path, count: int) -> None:
    """Tell the machine's `shutdown`, which may read it at any moment, how many of the requests were heard."""
    beside = folder / f".{_HEARD}"
    beside.write_text(f"{count}\n")
    beside.replace(folder / _HEARD)


def minutes_left(arguments: Sequence[str]) -> float | None:
    """How long a `shutdown` with these arguments waits; None where it calls one off."""
    words = [word for word in arguments if not word.startswith("-")]
    if "-c" in arguments:
        return None
    when = words[0] if words else "+1"
    return 0.0 if when == "now" else float(when.removeprefix("+"))
