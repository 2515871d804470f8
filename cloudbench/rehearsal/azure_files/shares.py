"""Shares as folders: names in any case, and what the service knows of a file beside its bytes.

The bytes are the folder's alone, so that a node that has the share mounted and a client see the same at any moment.
Metadata, headers and versions are kept here, for the inode that they were set for.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from cloudbench.rehearsal.azure_files.errors import RefusedError
from cloudbench.rehearsal.clock import Clock

DELETING_S = 30
SHARE_NAME = re.compile(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")

_FORBIDDEN = re.compile(r'["\\/:|<>*?\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]')
_LONGEST_NAME = 255
_LONGEST_PATH = 2048


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says of a file or directory; None leaves it as it is. Times in seconds since 1970."""

    metadata: Mapping[str, str] | None = None
    http_headers: Mapping[str, str] | None = None
    attributes: str | None = None
    created_at: float | None = None
    written_at: float | None = None


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """All that was said of a file or directory, and when last; times in seconds since 1970."""

    inode: int
    created_at: float
    changed_at: float
    attributes: str
    revision: int = 0
    metadata: Mapping[str, str] = {}
    http_headers: Mapping[str, str] = {}


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory at one moment; times in seconds since 1970, `size` in bytes (0 of a directory)."""

    name: str
    path: Path
    is_directory: bool
    size: int
    written_at: float
    modified_at: float
    etag: str
    number: int
    parent_number: int
    known: Known


def segments(path: str, *, keep_trailing_dots: bool = False) -> tuple[str, ...]:
    """The names of a decoded path inside a share, outermost first; () is the share's root.

    Raises:
        RefusedError: a name that Azure Files cannot hold, `..` among them.
    """
    given = [name for name in path.split("/") if name]
    names = given if keep_trailing_dots else [name.rstrip(".") for name in given]
    if len(path) > _LONGEST_PATH or not all(is_name(name) for name in names):
        raise RefusedError("InvalidFileOrDirectoryPathName")
    return tuple(names)


def is_name(name: str) -> bool:
    """Whether Azure Files could hold a file of this name."""
    return name not in ("", ".", "..") and len(name) <= _LONGEST_NAME and not _FORBIDDEN.search(name)


class Share:
    """One share: a folder, and what is known of what lies in it."""

    def __init__(self, name: str, folder: Path, clock: Clock, metadata: Mapping[str, str], quota_gib: int) -> None:
        self.name = name
        self.folder = folder
        self.quota_gib = quota_gib
        self.metadata = metadata
        self.modified_at = clock.now()
        self.revision = 0
        self._clock = clock
        self._known: dict[Path, Known] = {}

    @property
    def etag(self) -> str:
        """Another one after every change of the share's own properties."""
        return _etag(self.name, self.modified_at, self.revision)

    def change(self, *, metadata: Mapping[str, str] | None = None, quota_gib: int | None = None) -> None:
        """Set the share's own properties, those that are given."""
        self.metadata = self.metadata if metadata is None else metadata
        self.quota_gib = self.quota_gib if quota_gib is None else quota_gib
        self.modified_at = self._clock.now()
        self.revision += 1

    def find(self, names: tuple[str, ...]) -> Item | None:
        """What has this name, in any case."""
        path = self._locate(names)
        return None if path is None else self.look(path)

    def get(self, names: tuple[str, ...], *, directory: bool) -> Item:
        """The directory or the file of this name; a refusal where there is none, or none of this kind."""
        item = self.find(names)
        if item is None:
            raise RefusedError("ResourceNotFound" if self._locate(names[:-1]) else "ParentNotFound")
        if item.is_directory != directory:
            raise RefusedError("ResourceNotFound")
        return item

    def place(self, names: tuple[str, ...]) -> Path:
        """Where something new of this name goes, its name written as given; its parent is there."""
        parent = self._locate(names[:-1])
        if parent is None or not parent.is_dir():
            raise RefusedError("ParentNotFound")
        return parent / names[-1]

    def look(self, path: Path) -> Item:
        """The file or directory at a path, as it is now."""
        facts = path.stat(follow_symlinks=False)
        is_directory = stat.S_ISDIR(facts.st_mode)
        known = self._known.get(path)
        if known is None or known.inode != facts.st_ino:
            known = Known(
                inode=facts.st_ino,
                created_at=min(facts.st_ctime, facts.st_mtime),
                changed_at=facts.st_mtime,
                attributes="Directory" if is_directory else "Archive",
            )
        modified_at = max(facts.st_mtime, known.changed_at)
        size = 0 if is_directory else facts.st_size
        return Item(
            name="" if path == self.folder else path.name,
            path=path,
            is_directory=is_directory,
            size=size,
            written_at=facts.st_mtime,
            modified_at=modified_at,
            etag=_etag(str(facts.st_ino), facts.st_mtime_ns, size, known.changed_at, known.revision),
            number=facts.st_ino,
            parent_number=0 if path == self.folder else path.parent.stat().st_ino,
            known=known,
        )

    def note(self, path: Path, said: Said) -> Item:
        """Remember what a request says of what it has changed; the item as it is then."""
        if said.written_at is not None:
            os.utime(path, (said.written_at, said.written_at))
        known = self.look(path).known
        self._known[path] = msgspec.structs.replace(
            known,
            changed_at=self._clock.now(),
            revision=known.revision + 1,
            metadata=known.metadata if said.metadata is None else said.metadata,
            http_headers=known.http_headers if said.http_headers is None else said.http_headers,
            attributes=said.attributes or known.attributes,
            created_at=known.created_at if said.created_at is None else said.created_at,
        )
        return self.look(path)

    def forget(self, path: Path) -> None:
        """Drop what is known of a path: what lies there now, if anything, is another thing."""
        self._known.pop(path, None)

    def items(self, directory: Item) -> Iterator[Item]:
        """What lies in a directory, sorted by name, without what Azure Files could not hold."""
        for path in sorted(_entries(directory.path), key=lambda path: (path.name.casefold(), path.name)):
            try:
                yield self.look(path)
            except FileNotFoundError:  # a node has removed it this moment
                continue

    def usage_bytes(self) -> int:
        """The size of all files together."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def _locate(self, names: tuple[str, ...]) -> Path | None:
        path = self.folder
        for name in names:
            exact = path / name
            if _is_held(exact):
                path = exact
                continue
            folded = name.casefold()
            alike = [entry for entry in _entries(path) if entry.name.casefold() == folded]
            if not alike:
                return None
            path = min(alike)
        return path


class Shares:
    """The shares of one account, each a folder of `root`."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._shares: dict[str, Share] = {}
        self._deleting_until: dict[str, float] = {}

    def __iter__(self) -> Iterator[Share]:
        return iter(sorted(self._shares.values(), key=lambda share: share.name))

    def get(self, name: str) -> Share:
        """The share of this name; a refusal where there is none."""
        share = self._shares.get(name.lower())
        if share is None:
            raise RefusedError("ShareNotFound" if SHARE_NAME.fullmatch(name.lower()) else "InvalidResourceName")
        return share

    def create(self, name: str, *, metadata: Mapping[str, str], quota_gib: int) -> Share:
        """A new share, empty; the same name is taken for a while after a deletion."""
        if not SHARE_NAME.fullmatch(name):
            raise RefusedError("InvalidResourceName")
        if name in self._shares:
            raise RefusedError("ShareAlreadyExists")
        if self._clock.now() < self._deleting_until.get(name, 0):
            raise RefusedError("ShareBeingDeleted")
        folder = self._root / name
        folder.mkdir(parents=True)
        self._shares[name] = Share(name, folder, self._clock, metadata, quota_gib)
        return self._shares[name]

    def delete(self, share: Share) -> None:
        """Remove a share with all that lies in it."""
        del self._shares[share.name]
        self._deleting_until[share.name] = self._clock.now() + DELETING_S
        shutil.rmtree(share.folder, ignore_errors=True)


def _entries(folder: Path) -> list[Path]:
    """Files and directories: a link could lead out of the share, and a share over SMB holds none."""
    try:
        with os.scandir(folder) as entries:
            return [folder / entry.name for entry in entries if is_name(entry.name) and _is_held(folder / entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_held(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


def _etag(*parts: object) -> str:
    text = " ".join(str(part) for part in parts)
    return f'"0x{hashlib.blake2b(text.encode(), digest_size=8).hexdigest().upper()}"'
