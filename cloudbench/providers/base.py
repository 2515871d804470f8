"""The contract between the engine and whatever runs the nodes.

Guarantees, which `tests/providers/conformance.py` checks for every provider:

- `render` is pure: the same plan gives the same request, and the request is all that is ever sent.
- Whatever `provision` makes was yielded as a handle before; the engine has journalled it when the generator goes on.
- `provision`, `submit`, `stop` and `release` may be called again at any time: they find instead of making twice.
- `poll` has a status for each of the jobs; one that is not there any more has ended.
- `collect` of a job that never began brings nothing, and is no error.
- `release` returns True only when the thing was seen to be gone.
- Nothing that carries another owner's mark is read, stopped or released.
- A job ends by its time limit with no client alive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from cloudbench.plan import RunPlan
from cloudbench.run import Handle, Status


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One request: what is done, the thing it makes, and the exact body that is sent (secrets redacted)."""

    action: str
    handle: Handle
    body: dict[str, Any]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one attempt of a run will ask of a provider, in order; the dry run prints it.

    The last step is the job itself; the steps before it are what the job needs.
    """

    plan: RunPlan
    attempt: int
    steps: tuple[Step, ...]

    @property
    def job(self) -> Handle:
        """The thing that is polled, collected and stopped."""
        return self.steps[-1].handle


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request cannot work, or (`severity` warning) what to know before it does.

    `exit_code` is what the command line ends with where the problem is an error.
    """

    severity: Literal["error", "warning"]
    what: str
    why: str | None = None
    todo: str | None = None
    exit_code: int = 4


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """One growing file of one node, such as `rank-0.log`."""

    node: int
    name: str
    size_bytes: int


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """What a log file holds from an offset on; `next_offset` is where to go on reading."""

    data: bytes
    next_offset: int


class Provider(Protocol):
    """Where runs run. `capacity` is how many at once do not disturb each other's figures; `None` is any number."""

    capacity: int | None
    poll_interval_s: float

    def render(self, plan: RunPlan, attempt: int) -> Request:
        """The exact requests for one attempt of a run. Pure."""

    def check(self, request: Request) -> Sequence[Problem]:
        """What stands against the request, and what to know. Reads only."""

    def provision(self, request: Request) -> Iterator[Handle]:
        """Make what the job needs; each handle comes before the thing is made."""

    def submit(self, request: Request) -> Handle:
        """Start the job."""

    def poll(self, jobs: Collection[Handle]) -> Mapping[Handle, Status]:
        """How the jobs stand, from one listing for all of them."""

    def stop(self, job: Handle) -> None:
        """Ask the job to end; `poll` tells when it has."""

    def logs(self, job: Handle) -> Sequence[LogFile]:
        """The log files that the nodes have written so far."""

    def read_log(self, job: Handle, node: int, name: str, offset: int) -> LogChunk:
        """The bytes of a log file from an offset on; empty where there is nothing new."""

    def collect(self, job: Handle, into: Path) -> None:
        """Bring every node's files home, as `node-K/…` below that folder; again adds what is new."""

    def release(self, handle: Handle) -> bool:
        """Remove the thing; True only when it was seen to be gone."""

    def find(self, owner: str) -> Iterable[Handle]:
        """What exists of that owner, from the provider alone."""
