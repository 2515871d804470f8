"""What `status.json` tells of one node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudbench.node.coordinate import Cause
    from cloudbench.node.supervise import Child


class Status:
    """The state of this node; `to_json` is the content of `status.json`."""

    def __init__(self, start: float) -> None:
        self.state = "starting"
        self.ranks: dict[int, Child | None] = {}
        self.stamps: dict[str, float | None] = {
            "start": start,
            "peers_found": None,
            "first_step": None,
            "last_step": None,
            "end": None,
        }
        self._outcome: str | None = None
        self._cause: Cause | None = None

    def end(self, cause: Cause | None, now: float) -> None:
        """Nothing runs any more; no cause is success."""
        self.state = "ended"
        self.stamps["end"] = now
        self._outcome = "succeeded" if cause is None else cause.outcome
        self._cause = cause

    def saw_step(self, now: float) -> None:
        """A training step was printed."""
        self.stamps["first_step"] = self.stamps["first_step"] or now
        self.stamps["last_step"] = now

    def to_json(self) -> dict[str, Any]:
        """The exit code is that of a shell: 128 + n where signal n killed the rank."""
        cause = self._cause
        succeeded = self._outcome == "succeeded"
        return {
            "state": self.state,
            "outcome": self._outcome,
            "exit_code": 0 if succeeded else cause and cause.exit_code,
            "reason": cause and cause.reason,
            "failed_rank": cause and cause.failed_rank,
            "last_lines": list(cause.last_lines) if cause else [],
            "stamps": dict(self.stamps),
            "ranks": [_rank(rank, child) for rank, child in sorted(self.ranks.items())],
        }


def _rank(rank: int, child: Child | None) -> dict[str, Any]:
    """A rank that mpirun started is not ours to see: its process is None."""
    ended = child.exit if child else None
    return {
        "rank": rank,
        "pid": child and child.pid,
        "exit_code": ended and ended.exit_code,
        "signal": ended and ended.signal,
    }
