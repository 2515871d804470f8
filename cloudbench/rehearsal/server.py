"""HTTP on the loopback interface for the stand-ins: whole requests in, whole responses out, a thread a connection.

A stand-in gives one function from `Request` to `Response`. The function runs in the connection's thread; where it must
hold a caller up it waits for `HttpServer.closing` at the same time, so that the server can always end.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import msgspec

LARGEST_BODY = 64 * 1024 * 1024


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request, read to its end.

    Args:
        method: in capitals.
        path: as it was sent, still percent-encoded (signatures are made over it); begins with a slash.
        query: decoded, in the order sent; of a name that comes twice, the first value.
        headers: names in lower case.
        query_string: the query as it was sent, for services where a name may come twice.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    query_string: str = ""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered; Content-Length is added where `headers` lack it, and a HEAD gets the headers only."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""


Answer = Callable[[Request], "Response | None"]


class HttpServer:
    """Serves `answer` on a free port of 127.0.0.1; None as an answer drops the connection without a word.

    An exception of `answer` is a fault of the stand-in: the caller gets a 500 that names it, `faults` keeps it.
    """

    def __init__(self, answer: Answer) -> None:
        self.closing = threading.Event()
        self.faults: list[Exception] = []
        self._answer = answer
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self, port: int = 0) -> str:
        """Begin to serve; `http://127.0.0.1:PORT`."""
        self._server = _Server(("127.0.0.1", port), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="stand-in", daemon=True)
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """End all connections and their threads; returns when they have ended."""
        self.closing.set()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.hang_up()
            self._server.server_close()
            self._server = self._thread = None

    def answer(self, request: Request) -> Response | None:
        """What the stand-in answers, or the 500 for its fault."""
        try:
            return self._answer(request)
        except Exception as error:
            self.faults.append(error)
            return Response(status=500, body=f"the stand-in failed: {type(error).__name__}: {error}".encode())

    def _handler(self) -> type[_Handler]:
        owner = self

        class Handler(_Handler):
            server_of = owner

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing joins them
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: set[socket.socket] = set()
        self._open_changes = threading.Lock()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # The base class asks the resolver for this machine's name, which can take seconds.
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def hang_up(self) -> None:
        """End every connection, also those that wait for their next request."""
        with self._open_changes:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        with self._open_changes:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        with self._open_changes:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up in the middle is no event."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "cloudbench-rehearsal"
    sys_version = ""
    disable_nagle_algorithm = True
    server_of: HttpServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing is printed: a stand-in speaks in its answers."""

    def _serve(self) -> None:
        body = self._body()
        if body is None:
            return
        parts = urlsplit(self.path)
        query: dict[str, str] = {}
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            query.setdefault(name, value)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(
            method=self.command,
            path=parts.path,
            query=query,
            headers=headers,
            body=body,
            query_string=parts.query,
        )
        response = self.server_of.answer(request)
        if response is None:
            self.close_connection = True
        else:
            self._send(response)

    def _body(self) -> bytes | None:
        """The whole body, decoded where it comes in chunks; None when it was refused."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            chunks = bytearray()
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return bytes(chunks)
        length = int(self.headers.get("Content-Length") or 0)
        if length > LARGEST_BODY:
            self.close_connection = True
            self._send(Response(status=413))
            return None
        return self.rfile.read(length)

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        named = {name.lower() for name in response.headers}
        if "content-length" not in named and response.status not in (204, 304):
            self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _serve  # noqa: N815
