"""What virtual machines say beside their files on the share: that they have ended, and that they were to.

runs/NAME.ended-K    made by node K when its script ends; holds the last lines of what that printed

All attempts are in one folder, so that one listing tells of every run which nodes have ended.
"""

from __future__ import annotations

import re
from typing import Any

from cloudbench.providers.azure.account import Secret, translated
from cloudbench.providers.azure.share import Share

STOPPED = "cloudbench_stopped"
"""Metadata of an attempt's folder: how many nodes it had when it was stopped from this side."""

_RUNS = "runs"
_ENDED = re.compile(r"(.+)\.ended-(\d+)")


class VmShare(Share):
    """The share, with what only virtual machines need of it."""

    def ended_address(self, name: str, node: int, *, lifetime_s: float) -> Secret:
        """A URL with which a node can make the file of its end, and nothing else."""
        return self._signed(f"{_RUNS}/{name}.ended-{node}", "cw", lifetime_s)

    def ended(self, prefix: str | None = None) -> dict[str, set[int]]:
        """The nodes that have ended of every attempt, from one listing; names in lower case."""
        from azure.core.exceptions import ResourceNotFoundError

        options: dict[str, Any] = {"name_starts_with": prefix} if prefix else {}
        found: dict[str, set[int]] = {}
        with translated("listing which nodes have ended"):
            try:
                items = list(self._client.get_directory_client(_RUNS).list_directories_and_files(**options))
            except ResourceNotFoundError:
                return {}
        for item in items:
            match = _ENDED.fullmatch(item.name)
            if match and not item.is_directory:
                found.setdefault(match[1].lower(), set()).add(int(match[2]))
        return found

    def last_lines(self, name: str, node: int, count: int = 5) -> tuple[str, ...]:
        """The last lines that a machine's script printed, where it has ended."""
        lines = self._said(name, node).splitlines()
        return tuple(line for line in lines if line.strip())[-count:]

    def stop(self, name: str, nodes: int) -> None:
        """Write down that an attempt was stopped from this side; nothing where it has no folder, or was before."""
        marks = self.marks(name)
        if marks is not None and STOPPED not in marks:
            with translated(f"marking {_RUNS}/{name} as stopped"):
                self._folder(name).set_directory_metadata({**marks, STOPPED: str(nodes)})

    def remove(self, name: str) -> bool:
        """Remove an attempt's folder and what its nodes said beside it; True where nothing of it is left."""
        from azure.core.exceptions import ResourceNotFoundError

        for node in self.ended(f"{name}.ended-").get(name.lower(), ()):
            with translated(f"removing {_RUNS}/{name}.ended-{node}"):
                try:
                    self._client.get_file_client(f"{_RUNS}/{name}.ended-{node}").delete_file()
                except ResourceNotFoundError:
                    continue
        return super().remove(name)

    def _said(self, name: str, node: int) -> str:
        from azure.core.exceptions import HttpResponseError

        with translated(f"reading {_RUNS}/{name}.ended-{node}"):
            try:
                data = self._client.get_file_client(f"{_RUNS}/{name}.ended-{node}").download_file().readall()
            except HttpResponseError as error:
                if error.status_code in (404, 416):  # not there, or not written yet
                    return ""
                raise
        return data.rstrip(b"\0").decode("utf-8", "replace")
