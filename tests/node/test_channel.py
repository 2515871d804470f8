"""Two ends of a real connection."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator

import pytest

from cloudbench.node.channel import Channel, ChannelClosedError, Credentials, RefusedError

SECRET = Credentials(b"sesame", "run-1", 1)


class Tap(socket.socket):
    """A socket that keeps what passes through it."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self.sent: list[bytes] = []

    def sendall(self, data: bytes, flags: int = 0) -> None:  # type: ignore[override]
        self.sent.append(bytes(data))
        super().sendall(data, flags)


@contextlib.contextmanager
def connected() -> Iterator[tuple[Tap, Tap]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = Tap(socket.create_connection(server.getsockname()))
        other = Tap(server.accept()[0])
    with one, other:
        yield one, other


def pump(*channels: Channel) -> list[dict[str, object]]:
    """Let both ends read until nothing is on its way any more."""
    messages: list[dict[str, object]] = []
    while True:
        readable = select.select([channel.sock for channel in channels], [], [], 0.1)[0]
        if not readable:
            return messages
        for channel in channels:
            if channel.sock in readable:
                messages += channel.receive()


def test_both_ends_prove_themselves_and_talk() -> None:
    with connected() as (near, far):
        listens, connects = Channel(far, SECRET, None), Channel(near, SECRET, 3)
        assert pump(listens, connects) == []
        assert (listens.ready, connects.ready) == (True, True)
        assert (listens.peer, connects.peer) == (3, 0)
        connects.send({"text": "ü" * 100_000})
        listens.send({"number": 1})
        received = pump(listens, connects)
        assert {"number": 1} in received
        assert {"text": "ü" * 100_000} in received


def test_secret_is_not_on_the_wire() -> None:
    with connected() as (near, far):
        pump(Channel(far, SECRET, None), Channel(near, SECRET, 3))
        wire = b"".join(near.sent + far.sent)
        assert len(wire) > 200
        assert SECRET.secret not in wire


@pytest.mark.parametrize(
    "other", [Credentials(b"guess", "run-1", 1), Credentials(b"sesame", "run-2", 1), Credentials(b"sesame", "run-1", 2)]
)
def test_other_secret_run_or_attempt_is_refused_on_both_ends(other: Credentials) -> None:
    with connected() as (near, far):
        listens, connects = Channel(far, SECRET, None), Channel(near, other, 3)
        connects.receive()
        with pytest.raises(RefusedError, match="wrong secret"):
            pump(listens)
        with pytest.raises(RefusedError, match="refused this node"):
            connects.receive()
        assert (listens.ready, connects.ready) == (False, False)


def test_listener_that_does_not_know_the_secret_is_refused() -> None:
    with connected() as (near, far):
        connects = Channel(near, SECRET, 3)
        for greeting in (b'{"nonce": "00"}', b'{"proof": "00"}'):
            far.sendall(len(greeting).to_bytes(4, "big") + greeting)
        with pytest.raises(RefusedError):
            pump(connects)


def test_message_that_was_sent_before_is_not_taken_again() -> None:
    with connected() as (near, far):
        listens, connects = Channel(far, SECRET, None), Channel(near, SECRET, 3)
        pump(listens, connects)
        connects.send({"type": "exec"})
        assert pump(listens) == [{"type": "exec"}]
        near.sendall(near.sent[-1])
        with pytest.raises(RefusedError, match="not written by a node"):
            pump(listens)


def test_message_that_was_changed_is_not_taken() -> None:
    with connected() as (near, far), connected() as (middle_near, middle_far):
        listens, connects = Channel(far, SECRET, None), Channel(near, SECRET, 3)
        pump(listens, connects)
        connects.sock = middle_near
        connects.send({"type": "exec", "command": "true"})
        near.sendall(middle_far.recv(1 << 16).replace(b"true", b"halt"))
        with pytest.raises(RefusedError, match="not written by a node"):
            pump(listens)


def test_end_of_the_connection_is_told() -> None:
    with connected() as (near, far):
        listens, connects = Channel(far, SECRET, None), Channel(near, SECRET, 3)
        pump(listens, connects)
        near.close()
        with pytest.raises(ChannelClosedError, match="closed"):
            listens.receive()
