"""HTTP as the stand-ins speak it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import pytest

from cloudbench.rehearsal.server import Answer, HttpServer, Request, Response


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[HttpServer, http.client.HTTPConnection]]:
    server = HttpServer(answer)
    port = urlsplit(server.start()).port
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            yield server, connection
    finally:
        server.close()


def test_a_request_arrives_whole_and_the_connection_stays_open() -> None:
    seen: list[Request] = []

    def answer(request: Request) -> Response:
        seen.append(request)
        return Response(status=201, headers={"x-answer": "yes"}, body=b"made")

    with serving(answer) as (_, connection):
        for _ in range(2):
            connection.request("PUT", "/a%20b/c?x=1&x=2&empty=&y=%2F", body=b"text", headers={"X-Name": "Value"})
            response = connection.getresponse()
            assert (response.status, response.headers["x-answer"], response.read()) == (201, "yes", b"made")
    assert len(seen) == 2
    assert (seen[0].method, seen[0].path, seen[0].body) == ("PUT", "/a%20b/c", b"text")
    assert seen[0].query == {"x": "1", "empty": "", "y": "/"}
    assert seen[0].headers["x-name"] == "Value"


def test_a_body_in_chunks_is_put_together() -> None:
    with serving(lambda request: Response(status=200, body=request.body)) as (_, connection):
        connection.request("POST", "/", body=iter([b"one", b"two"]), encode_chunked=True)
        assert connection.getresponse().read() == b"onetwo"
        connection.request("GET", "/")
        assert connection.getresponse().read() == b""


def test_head_gets_headers_only() -> None:
    with serving(lambda _: Response(status=200, headers={"Content-Length": "9"}, body=b"")) as (_, connection):
        for _ in range(2):
            connection.request("HEAD", "/")
            response = connection.getresponse()
            assert (response.headers["Content-Length"], response.read()) == ("9", b"")


def test_no_answer_drops_the_connection() -> None:
    with serving(lambda _: None) as (_, connection):
        connection.request("GET", "/")
        with pytest.raises(http.client.RemoteDisconnected):
            connection.getresponse()


def test_a_fault_of_the_stand_in_is_a_500_that_names_it() -> None:
    with serving(lambda _: Response(status=1 // 0)) as (server, connection):
        connection.request("GET", "/")
        response = connection.getresponse()
        assert response.status == 500
        assert b"ZeroDivisionError" in response.read()
        assert [type(fault) for fault in server.faults] == [ZeroDivisionError]


def test_closing_ends_the_threads_of_open_connections() -> None:
    before = threading.active_count()
    with serving(lambda _: Response(status=200)) as (server, connection):
        connection.request("GET", "/")
        connection.getresponse().read()
        assert threading.active_count() > before
        server.close()
        assert threading.active_count() <= before
