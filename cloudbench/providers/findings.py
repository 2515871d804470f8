"""What somebody finds who looks whether an account is ready for runs."""

from __future__ import annotations

from typing import Literal

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was looked at. `exit_code` is 3 where credentials are the reason of a failure, else 4."""

    state: Literal["ok", "note", "failed"]
    what: str
    why: str | None = None
    todo: str | None = None
    exit_code: int = 4
