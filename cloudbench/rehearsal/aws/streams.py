"""Log streams of CloudWatch that are fed while a container runs; moto alone fills them once it has ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudbench.rehearsal.aws.world import AwsWorld


class LogStream:
    """What one container prints, line by line."""

    def __init__(self, world: AwsWorld, group: str, name: str) -> None:
        self.group = group
        self.name = name
        self._world = world
        self._read = 0

    def open(self) -> None:
        """Make it, and AWS Batch's own group where it is missing.

        Raises:
            LookupError: another group is named, and there is none.
        """
        logs = self._world.cloud.backend("logs")
        if self.group == "/aws/batch/job":
            logs.ensure_log_group(self.group)
        elif self.group not in logs.groups:
            raise LookupError(f"ResourceNotFoundException: The specified log group does not exist: {self.group}")
        logs.ensure_log_stream(self.group, self.name)

    def follow(self, file: Path, *, to_the_end: bool = False) -> None:
        """Put what the file has more now; a line that is not complete only at the end."""
        try:
            with file.open("rb") as opened:
                opened.seek(self._read)
                text = opened.read()
        except FileNotFoundError:
            return  # the machine is gone
        if not to_the_end:
            text = text[: text.rfind(b"\n") + 1]
        self._read += len(text)
        lines = [line for line in text.decode("utf-8", "replace").splitlines() if line]
        if not lines:
            return
        with self._world.lock:
            at = int(self._world.timers.clock.now() * 1000)
            events = [{"timestamp": at, "message": line} for line in lines]
            # Past the service's check of the time, which is not that of a turned clock.
            self._world.cloud.backend("logs").groups[self.group].put_log_events(self.name, events)
