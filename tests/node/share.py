"""The three requests of Azure Files that a node sends, as a real HTTP server; and objects that are put as a whole."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

SIGNATURE = "sig=unmistakable"


class Share:
    """Files by name, and what was asked for. `hangs` while it is set: requests get no answer."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.seen: dict[str, list[bytes]] = {}  # everything that each file ever was
        self.requests: list[tuple[str, str]] = []
        self.refused: dict[str, int] = {}
        self.hangs = threading.Event()
        self.goes_on = threading.Event()
        self._lock = threading.Lock()
        share = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if share.hangs.is_set():
                    share.requests.append(("hangs", ""))
                    share.goes_on.wait()
                    self.close_connection = True
                    return
                url = urlsplit(self.path)
                status, code = share.answer(url.path.lstrip("/"), url.query, dict(self.headers.items()), body)
                self.send_response(status)
                if code:
                    self.send_header("x-ms-error-code", code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def answer(self, name: str, query: str, headers: dict[str, str], body: bytes) -> tuple[int, str]:
        """The status and the error code of one request."""
        with self._lock:
            component = parse_qs(query).get("comp", ["create"])[0]
            if SIGNATURE not in query:
                return 403, "AuthenticationFailed"
            if name in self.refused:
                self.requests.append(("refused", name))
                return self.refused[name], "AuthorizationPermissionMismatch"
            if headers.get("x-ms-type") != "file" and component == "create":
                self.requests.append(("whole", name))
                self.files[name] = bytearray(body)
            elif component == "create":
                self.requests.append((component, name))
                self.files[name] = bytearray(int(headers["x-ms-content-length"]))
            elif name not in self.files:
                return 404, "ResourceNotFound"
            elif component == "properties":
                self._resize(self.files[name], int(headers["x-ms-content-length"]))
            else:
                first, last = map(int, headers["x-ms-range"].partition("=")[2].split("-"))
                if last - first + 1 != len(body) or len(body) > 4 << 20 or headers["x-ms-write"] != "update":
                    return 400, "InvalidHeaderValue"
                if last >= len(self.files[name]):
                    return 416, "InvalidRange"
                self.requests.append((component, name))
                self.files[name][first : last + 1] = body
            self.seen.setdefault(name, []).append(bytes(self.files[name]))
            return 201, ""

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/{name}?{SIGNATURE}"

    def text(self, name: str) -> str:
        """What a file holds, without what only fills it up."""
        return bytes(self.files.get(name, b"")).decode().rstrip(" \0")

    def remove(self, name: str) -> None:
        with self._lock:
            del self.files[name]

    def recover(self) -> None:
        """Answer again."""
        self.hangs.clear()
        self.goes_on.set()

    def close(self) -> None:
        self.goes_on.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @staticmethod
    def _resize(data: bytearray, size: int) -> None:
        data[size:] = b""
        data.extend(bytes(size - len(data)))


@contextlib.contextmanager
def open_share() -> Iterator[Share]:
    share = Share()
    try:
        yield share
    finally:
        share.close()


def unused_port(address: str) -> int:
    """A port of `address` on which nobody listens."""
    with socket.socket() as sock:
        sock.bind((address, 0))
        return int(sock.getsockname()[1])
