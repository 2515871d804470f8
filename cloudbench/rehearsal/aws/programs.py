"""Programs that an instance finds before this machine's own, so that its user data ends the instance and nothing else.

User data is the root user's on a rented machine; here it is a guest.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from cloudbench.rehearsal.aws.wire import AwsError

REQUESTS = "shutdown-requests"

_ENDS = ("shutdown", "poweroff", "halt", "reboot")
_TOUCHES = (
    *("apt", "apt-get", "dnf", "yum", "snap", "systemctl", "service", "sysctl", "modprobe", "hostnamectl"),
    *("mkfs", "mkfs.ext4", "mkfs.xfs", "mdadm", "mount", "umount", "swapon", "swapoff", "losetup", "parted", "sfdisk"),
    *("useradd", "usermod", "groupadd", "iptables", "nft", "ip", "ifconfig"),
)


def check(user_data: str) -> None:
    """Refuse a script that would go around the programs of its instance.

    Raises:
        AwsError: it names one by its path, or sets PATH.
    """
    names = "|".join(map(re.escape, (*_ENDS, *_TOUCHES)))
    if match := re.search(rf"/s?bin/(?:{names})\b|^\s*(?:export\s+)?PATH=", user_data, re.MULTILINE):
        message = f"user data with {match[0].strip()!r} would reach the machine that rehearses: name programs alone"
        raise AwsError("InvalidUserData.NotForRehearsal", message)


def install(folder: Path) -> None:
    """Write them into the machine's `bin`."""
    requests = shlex.quote(str(folder / REQUESTS))
    for name in _ENDS:
        words = '"$*"' if name == "shutdown" else "now"
        _write(folder / "bin" / name, f"printf '%s\\n' {words} >> {requests}\n")
    for name in _TOUCHES:
        _write(folder / "bin" / name, f"echo 'rehearsal: {name} would change this machine: left out' >&2\nexit 1\n")


def minutes_left(arguments: Sequence[str]) -> float | None:
    """How long a `shutdown` with these arguments waits; None where it calls one off."""
    words = [word for word in arguments if not word.startswith("-")]
    if "-c" in arguments:
        return None
    when = words[0] if words else "+1"
    return 0.0 if when == "now" else float(when.removeprefix("+"))


def _write(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
