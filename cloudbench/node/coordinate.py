"""What node 0 decides for all: when the ranks start, when they stop, and what the cause was.

`Coordinator` is pure: messages go in, and the messages that every node is to get come out. The protocol, from the
side of a node: `hello` with its `Peer` → `peers`; `ready` after its preparation → `go`; `finished` when its ranks
ended well. The first `failure`, or the last `finished`, gives `stop`; `stopped` when nothing runs → `verdict`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

# A node that is lost, or a rank that somebody killed, is never the consequence of another failure within the
# time in which the others notice; a failing rank may be.
_CONCURRENT_S = 2.0


class Cause(NamedTuple):
    """Why a run ended otherwise than by success.

    `time` is on this node's monotonic clock. `external` says that it came from outside: it cannot be the consequence
    of another rank's failure. The rest is what `status.json` shows.
    """

    time: float
    outcome: str
    reason: str
    external: bool = False
    exit_code: int | None = None
    failed_rank: int | None = None
    last_lines: tuple[str, ...] = ()

    def to_message(self, now: float) -> dict[str, Any]:
        """As sent to another node, whose clock is another one."""
        values = self._asdict()
        return {**values, "age": now - values.pop("time")}

    @classmethod
    def from_message(cls, values: dict[str, Any], now: float) -> Cause:
        """The cause that was sent by `to_message` just now."""
        rest = {name: value for name, value in values.items() if name not in ("age", "time")}
        return cls(time=now - values["age"], **{**rest, "last_lines": tuple(values["last_lines"])})


def first_cause(causes: Iterable[Cause]) -> Cause | None:
    """The cause of the others: the earliest, or one at about that time that cannot be a consequence."""
    ordered = sorted(causes, key=lambda cause: cause.time)
    if not ordered:
        return None
    concurrent = [cause for cause in ordered if cause.time - ordered[0].time < _CONCURRENT_S]
    return min(concurrent, key=lambda cause: (not cause.external, cause.time))


class Coordinator:
    """The state of the whole run, on node 0.

    Args:
        nodes: the number of nodes.
        now: monotonic seconds; every method takes it.
        peers_timeout_s: how long nodes are waited for.
        stop_timeout_s: how long a node may take to stop before the others end without it.
    """

    def __init__(self, nodes: int, now: float, peers_timeout_s: float, stop_timeout_s: float) -> None:
        self._all = frozenset(range(nodes))
        self._peers_timeout_s = peers_timeout_s
        self._peers_until = now + peers_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._stop_until: float | None = None
        self._said: dict[str, set[int]] = {}
        self._peers: dict[int, dict[str, Any]] = {}
        self._gone: set[int] = set()
        self._causes: list[Cause] = []
        self._decided = False

    def receive(self, node: int, message: dict[str, Any], now: float) -> list[dict[str, Any]]:
        """What all nodes are to be told after `node` said `message`."""
        kind = message["type"]
        before = self._everyone(kind)
        self._said.setdefault(kind, set()).add(node)
        complete = self._everyone(kind) and not before
        if kind == "hello":
            self._peers[node] = message["peer"]
            if self._stop_until is not None:
                return self._end(now)  # for one that comes late
            if complete:
                return [{"type": "peers", "peers": [self._peers[k] for k in sorted(self._peers)]}]
        elif kind == "ready" and complete and self._stop_until is None:
            return [{"type": "go"}]
        elif kind == "finished" and complete:
            return self._stop(now)
        elif kind in ("failure", "stopped"):
            self._causes += [Cause.from_message(values, now) for values in message["causes"]]
            return self._stop(now) if kind == "failure" else self._verdict(now)
        return []

    def lost(self, node: int, name: str, now: float) -> list[dict[str, Any]]:
        """What all nodes are to be told when `node` is gone without having stopped."""
        if self._decided or node in self._said.get("stopped", ()):
            return []
        self._gone.add(node)
        self._causes.append(
            Cause(now, "infrastructure", f"{name} was lost: its node program or its machine is gone", external=True)
        )
        return [*self._stop(now), *self._verdict(now)]

    def tick(self, now: float) -> list[dict[str, Any]]:
        """What all nodes are to be told because time passed."""
        missing = sorted(self._all - set(self._peers))
        if missing and self._stop_until is None and now >= self._peers_until:
            names = ("node " if len(missing) == 1 else "nodes ") + ", ".join(map(str, missing))
            reason = f"{names} did not arrive within {self._peers_timeout_s:g} s"
            self._causes.append(Cause(now, "infrastructure", reason, external=True))
            return self._stop(now)
        if self._stop_until is not None and now >= self._stop_until:
            self._gone.update(self._all - self._said.get("stopped", set()))
            return self._verdict(now)
        return []

    def _everyone(self, kind: str) -> bool:
        return self._said.get(kind, set()) | self._gone >= self._all

    def _stop(self, now: float) -> list[dict[str, Any]]:
        if self._stop_until is not None:
            return []
        self._stop_until = now + self._stop_timeout_s
        self._gone.update(self._all - set(self._peers))
        return self._end(now)

    def _verdict(self, now: float) -> list[dict[str, Any]]:
        if self._decided or not self._everyone("stopped"):
            return []
        self._decided = True
        return self._end(now)[1:]

    def _end(self, now: float) -> list[dict[str, Any]]:
        """How the run ends, as far as it is known."""
        cause = first_cause(self._causes)
        kinds = ("stop", "verdict") if self._decided else ("stop",)
        return [{"type": kind, "cause": cause and cause.to_message(now)} for kind in kinds]
