"""One request to Azure Files after its signature has been checked: what the operations work on."""

from __future__ import annotations

import msgspec

from cloudbench.rehearsal.azure_files.authorization import Grant
from cloudbench.rehearsal.azure_files.shares import Item, Share, Shares, segments
from cloudbench.rehearsal.server import Request


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request, where its path leads, what its signature lets it do, and the time in seconds since 1970."""

    request: Request
    shares: Shares
    share_name: str
    path: str
    grant: Grant
    endpoint: str
    now: float

    @property
    def share(self) -> Share:
        """The share named; a refusal where there is none."""
        return self.shares.get(self.share_name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the path inside the share; () is its root."""
        return segments(
            self.path, keep_trailing_dots=self.request.headers.get("x-ms-allow-trailing-dot", "").lower() == "true"
        )

    @property
    def file(self) -> Item:
        """The file named; a refusal where there is none."""
        return self.share.get(self.names, directory=False)

    @property
    def directory(self) -> Item:
        """The directory named; a refusal where there is none."""
        return self.share.get(self.names, directory=True)
