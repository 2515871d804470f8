"""User data of stand-in machines as a guest: on a rented machine it is the root user's, here it must change nothing.

A machine finds programs of ours before this machine's own: those that end it leave a request, those that would change
this machine do nothing and say so.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

REQUESTS = "shutdown-requests"
"""The file in a machine's folder with the arguments of each `shutdown`, a line each."""

# A script knows nothing of the lifeline: whoever can lock that has outlived the rehearsal, and ends the script.
LIVES_WITH_THE_REHEARSAL = """\
if command -v flock >flock-is-here; then (flock --shared "$CLOUDBENCH_LIFELINE" true; kill -KILL 0) & fi
"""
"""What a machine's command begins with that is to end with a rehearsal that is killed."""

_ENDS = ("shutdown", "poweroff", "halt", "reboot")
_TOUCHES = (
    *("apt", "apt-get", "dnf", "yum", "snap", "systemctl", "service", "sysctl", "modprobe", "hostnamectl"),
    *("mkfs", "mkfs.ext4", "mkfs.xfs", "mdadm", "umount", "swapon", "swapoff", "losetup", "parted", "sfdisk"),
    *("useradd", "usermod", "groupadd", "iptables", "nft", "ip", "ifconfig"),
)
_GOES_AROUND = re.compile(
    rf"/s?bin/(?:{'|'.join(map(re.escape, (*_ENDS, *_TOUCHES, 'mount')))})\b|^\s*(?:export\s+)?PATH=", re.MULTILINE
)


def way_around(user_data: str) -> str | None:
    """What in a script would go around the programs of its machine: one named by its path, or another PATH."""
    match = _GOES_AROUND.search(user_data)
    return match[0].strip() if match else None


def install_programs(folder: Path) -> None:
    """Write the programs into `folder / "bin"`, which the machine finds first."""
    requests = shlex.quote(str(folder / REQUESTS))
    for name in _ENDS:
        words = '"$*"' if name == "shutdown" else "now"
        write_program(folder / "bin" / name, f"printf '%s\\n' {words} >> {requests}\n")
    for name in _TOUCHES:
        told = f"echo 'rehearsal: {name} would change this machine: left out' >&2\nexit 1\n"
        write_program(folder / "bin" / name, told)


def write_program(path: Path, text: str) -> None:
    """A shell script that can be run."""
    path.write_text(f"#!/bin/sh\n{text}", "utf-8")
    path.chmod(0o755)
