"""Sends a node's files to the share while they grow.

It runs beside the node program, as a process of its own: a share that stops answering holds up nobody. Each file has
an address that allows to write this one file; that address is a secret and is never printed.
"""

from __future__ import annotations

import http.client
import json
import os
import selectors
import signal
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from cloudbench.node import launchers
from cloudbench.node.job import NodeError
from cloudbench.node.watch import Signals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Protocol

    from cloudbench.node.job import Job

    class Remote(Protocol):
        """The file on the share."""

        def send(self, data: bytes) -> None:
            """Replace all of it by `data`, where it differs."""

        def follow(self, path: Path, final: bool) -> bool:
            """Bring what is new in the growing file at `path`; whether that was all. `final`: no time for pauses."""


STATUS = "status.json"
PUSHED = ".pushed"
FINISH_TIMEOUT_S = 30.0
_VERSION = 1
_TIMEOUT_S = 10.0
_EVERY_S, _LONGEST_PAUSE_S = 1.0, 15.0
_PIECE = 4 << 20  # the most that one request may write to Azure Files
_PIECES_IN_A_ROW = 8  # so that one long log does not hold up the others
_PAGE = 4096
_REPLACE_EVERY_S = 5.0


class PushError(Exception):
    """Something could not be sent; the text does not name the address."""


class RefusedError(PushError):
    """The service answered that it did not take it."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"HTTP {status} {code}".strip())
        self.status = status


class Order(NamedTuple):
    """What `push.json` says of one node: the kind of storage, and the address of each file."""

    kind: str
    files: Mapping[str, str]


def file_names(node: int, nodes: int, job: Job) -> tuple[str, ...]:
    """The names of all files that `node` may write, which is what the client makes addresses for."""
    names = [f"rank-{rank}.log" for rank in launchers.ranks_of(node, nodes, job)]
    names += [f"ps-{node}.log"] if job.launcher == "parameter-server" else []
    names += ["mpirun.log"] if job.launcher == "mpirun" and node == 0 else []
    names += ["prepare.log"] if job.prepare is not None else []
    return (*names, "node.log", "start.log", "push.log", "facts.json", STATUS)


def read_order(text: str, node: int) -> Order:
    """Read the text of `push.json`; the addresses in it never get into an error.

    Raises:
        NodeError: the text is not usable.
    """
    try:
        values = json.loads(text)
        version, kind, files = values["version"], values["kind"], dict(values["nodes"][node])
    except (ValueError, KeyError, IndexError, TypeError):
        raise NodeError(f"push.json does not tell where the files of node {node} go") from None
    if version != _VERSION or kind not in _KINDS:
        raise NodeError(f"push.json has version {version!r} and kind {kind!r}, which this program does not know")
    return Order(kind, files)


class Wire:
    """Sends PUT requests, over one kept connection a service."""

    def __init__(self) -> None:
        self._connections: dict[str, http.client.HTTPConnection] = {}

    def put(self, url: str, headers: Mapping[str, str], data: bytes = b"") -> None:
        """Send `data`.

        Raises:
            RefusedError: the service refused.
            PushError: it did not answer, or not in time.
        """
        parts = urlsplit(url)
        service = f"{parts.scheme}://{parts.netloc}"
        try:
            connection = self._connections.get(service) or _connection(parts.scheme, parts.netloc)
            self._connections[service] = connection
            connection.request("PUT", f"{parts.path}?{parts.query}".rstrip("?"), body=data, headers=dict(headers))
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            broken = self._connections.pop(service, None)
            if broken is not None:
                broken.close()
            silent = isinstance(error, socket.timeout)
            said = getattr(error, "strerror", None) or type(error).__name__
            raise PushError(f"no answer within {_TIMEOUT_S:g} s" if silent else said) from None
        if answer.status >= 300:
            raise RefusedError(answer.status, answer.headers.get("x-ms-error-code") or answer.reason)

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def _connection(scheme: str, netloc: str) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(netloc, timeout=_TIMEOUT_S)
    return http.client.HTTPSConnection(netloc, timeout=_TIMEOUT_S, context=ssl.create_default_context())


class ShareFile:
    """A file of Azure Files.

    A request either resizes it or writes a range, so a log that grows ends in zero bytes for a moment. A document is
    filled up with blanks to a round size instead: as long as that fits, one request replaces all of it.
    """

    def __init__(self, wire: Wire, url: str) -> None:
        self._wire = wire
        self._url = url
        self._size: int | None = None  # None: not known to be there
        self._sent: bytes | None = None

    def send(self, data: bytes) -> None:
        """Replace all of it by `data`, where it differs."""
        if self._size is not None and data == self._sent:
            return
        size = -(-len(data) // _PAGE) * _PAGE
        if size != self._size:
            self._create(size)
        self._sent = None  # until it is known to have arrived
        self._write(0, data.ljust(size))
        self._sent = data

    def follow(self, path: Path, final: bool) -> bool:
        """Bring what is new in the growing file at `path`; whether that was all."""
        with path.open("rb") as file:
            end = os.fstat(file.fileno()).st_size
            if self._size is None or end < self._size:
                self._create(0)
            at = file.seek(self._size or 0)
            for _ in range(_PIECES_IN_A_ROW):
                data = file.read(min(_PIECE, end - at))
                if not data:
                    return True
                self._put("properties", {"x-ms-content-length": str(at + len(data))})
                self._write(at, data)
                at += len(data)
                self._size = at
        return at == end

    def _create(self, size: int) -> None:
        self._put("", {"x-ms-type": "file", "x-ms-content-length": str(size)})
        self._size = size

    def _write(self, at: int, data: bytes) -> None:
        where = f"bytes={at}-{at + len(data) - 1}"
        self._put("range", {"x-ms-range": where, "x-ms-write": "update"}, data)

    def _put(self, component: str, headers: Mapping[str, str], data: bytes = b"") -> None:
        separator = "&" if "?" in self._url else "?"
        url = f"{self._url}{separator}comp={component}" if component else self._url
        try:
            self._wire.put(url, headers, data)
        except RefusedError as error:
            if error.status in (404, 416):  # somebody removed or cut it: it is made again from the start
                self._size = None
            raise


class WholeObject:
    """An object that can only be replaced as a whole."""

    def __init__(self, wire: Wire, url: str) -> None:
        self._wire = wire
        self._url = url
        self._sent: bytes | None = None
        self._size: int | None = None
        self._again_at = 0.0

    def send(self, data: bytes) -> None:
        """Replace it by `data`, where it differs."""
        if data != self._sent:
            self._wire.put(self._url, {}, data)
            self._sent = data

    def follow(self, path: Path, final: bool) -> bool:
        """Replace it by the grown file at `path`, at most every few seconds."""
        size = path.stat().st_size
        if size != self._size and (final or time.monotonic() >= self._again_at):
            self._wire.put(self._url, {}, path.read_bytes())
            self._size, self._again_at = size, time.monotonic() + _REPLACE_EVERY_S
        return True


_KINDS = {"azure-files": ShareFile, "http-put": WholeObject}


class Pusher:
    """Keeps the files on the share like those in `folder`."""

    def __init__(self, folder: Path, order: Order, wire: Wire) -> None:
        self._folder = folder
        kind: Any = _KINDS[order.kind]
        self._remotes: dict[str, Remote] = {name: kind(wire, url) for name, url in order.files.items()}
        self._said: dict[str, str] = {}
        self.failed: Exception | None = None

    def sweep(self, *, final: bool = False, last: bool = False) -> bool:
        """Send what is new; whether everything that was there at the beginning is on the share now.

        That the node ended is told last, when everything else is there, or when this is the `last` sweep of all:
        who reads it may count on the rest.
        """
        self.failed = None
        status = self._read(STATUS)
        brought = [self._bring(name, final) for name in self._remotes if name != STATUS]
        complete = all(brought)
        ended = _says_ended(status)
        if status and STATUS in self._remotes and (complete or last or not ended):
            complete &= self._try(STATUS, lambda: self._send(STATUS, status))
        if complete and ended:
            (self._folder / PUSHED).touch()
        return complete

    def _bring(self, name: str, final: bool) -> bool:
        path = self._folder / name
        if not path.exists():
            return True
        if name.endswith(".json"):
            return self._try(name, lambda: self._send(name, self._read(name)))
        return self._try(name, lambda: self._remotes[name].follow(path, final))

    def _send(self, name: str, data: bytes) -> bool:
        self._remotes[name].send(data)
        return True

    def _try(self, name: str, action: Callable[[], bool]) -> bool:
        """Whether `action` brought everything; a file that fails again and again is told once."""
        if type(self.failed) is PushError:
            return False  # nobody answers: the others need not wait for it one by one
        try:
            done = action()
        except (PushError, OSError) as error:
            self.failed = error
            text = str(error) if isinstance(error, PushError) else str(error.strerror)
            if self._said.get(name) != text:
                print(f"{name}: {text}; trying again", flush=True)
            self._said[name] = text
            return False
        self._said.pop(name, None)
        return done

    def _read(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except OSError:
            return b""


def push(folder: Path, order_path: Path, node: int) -> int:
    """Send what `folder` gets until SIGTERM comes, then everything that is left; 0 where all of it arrived.

    Raises:
        NodeError: `push.json` is not usable.
    """
    try:
        order = read_order(order_path.read_text(encoding="utf-8"), node)
    except OSError as error:
        raise NodeError(f"push.json cannot be read: {error.strerror}") from None
    selector = selectors.DefaultSelector()
    signals = Signals(selector)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # see `start`: it may have come already
    wire = Wire()
    pusher = Pusher(folder, order, wire)
    pause_s = 0.0
    while signals.ending is None:
        complete = pusher.sweep()
        pause_s = _next_pause(pause_s, complete, pusher)
        _rest(selector, pause_s)
    until = time.monotonic() + FINISH_TIMEOUT_S
    pause_s = 0.0
    while not pusher.sweep(final=True):
        if time.monotonic() >= until:
            pusher.sweep(final=True, last=True)
            print(f"not everything arrived within {FINISH_TIMEOUT_S:g} s", flush=True)
            return 1
        pause_s = _next_pause(pause_s, False, pusher)
        _rest(selector, min(pause_s, _EVERY_S))
    wire.close()
    return 0


def _next_pause(pause_s: float, complete: bool, pusher: Pusher) -> float:
    if pusher.failed is not None:
        return min(max(2 * pause_s, _EVERY_S), _LONGEST_PAUSE_S)
    return _EVERY_S if complete else 0.0


def _rest(selector: selectors.BaseSelector, pause_s: float) -> None:
    """Wait, or until a signal comes."""
    for key, _ in selector.select(pause_s):
        key.data()


def _says_ended(status: bytes) -> bool:
    try:
        return bool(json.loads(status)["state"] == "ended")
    except (ValueError, KeyError, TypeError):
        return False
