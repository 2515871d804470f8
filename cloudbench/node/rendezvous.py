"""The key-value store over HTTP at which Horovod's ranks meet.

Horovod's gloo client (0.28) sends PUT, GET and DELETE for `/scope/key`. A GET of what is not there yet is answered
404, and asked again. Each rank puts its address under its rank in each scope; a DELETE of its rank says that it has
met the others of the scope.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cloudbench.node.cluster import listening_socket


class RendezvousStore:
    """The store, listening on a free port of `address` from the beginning and answering after `start`."""

    def __init__(self, address: str) -> None:
        self._server = _Server(address)
        self.port: int = self._server.server_address[1]
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Answer, in a thread of its own; requests that came before are answered now."""
        self._thread = threading.Thread(target=self._server.serve_forever, name="rendezvous", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering and listening."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: str) -> None:
        listener = listening_socket(address, 0)
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.lock = threading.Lock()
        self.scopes: dict[str, dict[str, bytes]] = {}
        self.left: dict[str, set[str]] = {}

    def leave(self, scope: str, key: str) -> None:
        """Note that a rank has met the others; forget the scope once all have.

        Nothing is deleted before, because another rank may still have to read it; and all of it is then, so
        that Horovod can be shut down and initialised again in the same run.
        """
        left = self.left.setdefault(scope, set())
        left.add(key)
        if {name for name in self.scopes.get(scope, {}) if name.isdigit()} <= left:
            self.scopes.pop(scope, None)
            del self.left[scope]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10
    disable_nagle_algorithm = True
    server: _Server

    def do_PUT(self) -> None:
        """Store the body."""
        scope, key = self._place()
        value = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.lock:
            self.server.scopes.setdefault(scope, {})[key] = value
        self._answer(200)

    def do_GET(self) -> None:
        """Answer with the value, or 404."""
        scope, key = self._place()
        with self.server.lock:
            value = self.server.scopes.get(scope, {}).get(key)
        if value is None:
            self._answer(404)
        else:
            self._answer(200, value)

    def do_DELETE(self) -> None:
        """Note that the rank `key` is done with `scope`."""
        with self.server.lock:
            self.server.leave(*self._place())
        self._answer(200)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: ranks that wait ask a hundred times a second."""

    def _place(self) -> tuple[str, str]:
        scope, _, key = self.path.lstrip("/").partition("/")
        return scope, key

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
