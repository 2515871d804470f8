"""Bytes of a log as they come, into clean blocks of whole lines; and the rank that a line's prefix names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

BLOCK_BYTES = 1 << 20
"""Blocks are cut from the bytes themselves, never from the chunks they came in, so chunking changes nothing."""

PREFIX_BYTES = 512
"""More than any launcher writes in front of a line."""

_LINE_END = ord("\n")
_ANSI = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    rb"|\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC: window titles, links
    rb"|[ -/]+[0-~]"  # character sets
    rb"|[0-Z\\^-~])"
)
_TAG = re.compile(rb"\[(?:([^\[\]\n:]+)\]<std(?:out|err)>:|([^\[\]\n]+)::std(?:out|err)\])")
_RANK = re.compile(rb"(?:\d+,|)(\d{1,9})|.*/(\d{1,9})-of-\d+")


def blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    r"""Cut `chunks` into blocks of at most `BLOCK_BYTES`, without colours and NUL bytes, each line after a `\n`.

    A block ends at a line end. A line that is longer than a block is read in pieces which end at white space
    where it has any, so that no number is ever cut in two. CR LF and a bare CR are line ends as well.
    """
    pending = bytearray()
    for chunk in chunks:
        for start in range(0, len(chunk), BLOCK_BYTES):
            pending += chunk[start : start + BLOCK_BYTES]
            while len(pending) >= BLOCK_BYTES:
                end = _end_of_block(pending)
                yield _clean(bytes(pending[:end]))
                del pending[:end]
    if pending:
        yield _clean(bytes(pending))


def _end_of_block(pending: bytearray) -> int:
    # The last byte is left out of the search for a bare CR, because a LF may follow it.
    end = pending.rfind(b"\n", 0, BLOCK_BYTES) + 1 or pending.rfind(b"\r", 0, BLOCK_BYTES - 1) + 1
    blank = max(pending.rfind(b" ", 0, BLOCK_BYTES), pending.rfind(b"\t", 0, BLOCK_BYTES)) + 1
    return end or blank or BLOCK_BYTES


def _clean(block: bytes) -> bytes:
    if b"\x00" in block:
        block = block.replace(b"\x00", b"")
    if b"\x1b" in block:
        block = _ANSI.sub(b"", block)
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return b"\n" + block


def found(pattern: re.Pattern[bytes], literal: bytes, block: bytes) -> Iterator[re.Match[bytes]]:
    """The matches of a pattern that begins with a literal, the last one first: so they are found much faster."""
    end = len(block)
    while (end := block.rfind(literal, 0, end)) >= 0:
        if match := pattern.match(block, end):
            yield match


def tag_of(prefix: bytes) -> bytes | None:
    """What a launcher wrote in front of a line to tell ranks apart, None where it wrote nothing of the kind.

    Open MPI writes `[1,0]<stdout>:`, Horovod on gloo `[0]<stdout>:`, KungFu `[127.0.0.1/00/00-of-04::stdout]`.
    """
    found = _TAG.search(prefix)
    return (found[1] or found[2]) if found else None


def tag_at(block: bytes, position: int) -> bytes | None:
    """`tag_of` whatever stands on the line in front of `position`."""
    return None if block[position - 1] == _LINE_END else tag_of(prefix_at(block, position))


def rank_of(tag: bytes | None) -> int | None:
    """The rank in a tag, None where it names a process by other means."""
    found = _RANK.fullmatch(tag) if tag else None
    return int(found[1] or found[2]) if found else None


class Lines:
    """Counts lines through the blocks of a log, for positions that are asked for in order."""

    def __init__(self) -> None:
        self._line = self._position = 0

    def at(self, block: bytes, position: int) -> int:
        """The number of the line at `position`, from 1."""
        self._line += block.count(b"\n", self._position, position)
        self._position = position
        return self._line

    def end(self, block: bytes) -> None:
        """`block` has been read."""
        self.at(block, len(block))
        self._line -= 1  # a block begins with a line end that is not the log's
        self._position = 0


def prefix_at(block: bytes, position: int) -> bytes:
    """What stands in front of `position` on its line; of a long line, what stands just in front of it."""
    nearest = max(0, position - PREFIX_BYTES)
    return block[max(nearest, block.rfind(b"\n", nearest, position) + 1) : position]
