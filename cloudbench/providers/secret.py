"""Texts that must not be told."""

from __future__ import annotations


class Secret(str):
    """A text that is `(redacted)` to everyone who prints or joins it; only `reveal` gives what it holds."""

    _held: str

    def __new__(cls, held: str) -> Secret:
        """Hide the text."""
        made = super().__new__(cls, "(redacted)")
        made._held = held
        return made

    def reveal(self) -> str:
        """What it holds, for the moment in which it is sent."""
        return self._held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._held == self._held

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._held)
