"""Messages between two nodes over one TCP connection, each side proving that it knows the shared secret.

The listening side sends a nonce; the other answers with its node index, a nonce of its own and an HMAC over both;
the listening side answers with its HMAC. The secret itself is never sent, and every later message carries an HMAC
under a key made for this connection, over its place in the sequence, so that nothing can be added or repeated.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
from typing import Any, NamedTuple

_LENGTH = struct.Struct("!I")
_MAC_SIZE = hashlib.sha256().digest_size
_LONGEST_GREETING = 4096
_LONGEST_MESSAGE = 1 << 24
_SEND_TIMEOUT_S = 10.0


class ChannelClosedError(Exception):
    """The other side is gone."""


class RefusedError(ChannelClosedError):
    """One side could not prove that it knows the secret, or broke the protocol."""


class Credentials(NamedTuple):
    """What both sides must share: the secret, and the run it is meant for."""

    secret: bytes
    run: str
    attempt: int

    def sign(self, *parts: object) -> bytes:
        """An HMAC over the run and `parts`."""
        text = json.dumps([self.run, self.attempt, *parts]).encode()
        return hmac.new(self.secret, text, hashlib.sha256).digest()


class Channel:
    """One end of a connection.

    Args:
        sock: a connected socket. Call `receive` when it is readable.
        credentials: what the other side must share.
        node: this node's index on the side that connected; None on the side that listens.
    """

    def __init__(self, sock: socket.socket, credentials: Credentials, node: int | None) -> None:
        sock.settimeout(_SEND_TIMEOUT_S)
        _notice_silent_death(sock)
        self.sock = sock
        self.ready = False
        self.peer = None if node is None else 0
        self._credentials = credentials
        self._node = node
        self._listens = node is None
        self._nonce = secrets.token_hex(32)
        self._session = b""
        self._transcript: list[object] = []
        self._sent = self._received = 0
        self._buffer = b""
        if self._listens:
            self._write(json.dumps({"nonce": self._nonce}).encode())

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; only after `ready`.

        Raises:
            ChannelClosedError: the other side is gone, or takes nothing for 10 s.
        """
        data = json.dumps(message).encode()
        mac = self._mac(self._listens, self._sent, data)
        self._sent += 1
        self._write(mac + data)

    def receive(self) -> list[dict[str, Any]]:
        """Read what has come, and return the whole messages in it; blocks unless the socket is readable.

        Raises:
            RefusedError: the other side does not know the secret, or refused this one.
            ChannelClosedError: the other side is gone.
        """
        try:
            data = self.sock.recv(1 << 16)
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        if not data:
            raise ChannelClosedError("the connection was closed")
        self._buffer += data
        messages: list[dict[str, Any]] = []
        while True:
            frame = self._frame()
            if frame is None:
                return messages
            if self.ready:
                messages.append(self._open(frame))
            else:
                self._greet(frame)

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()

    def _frame(self) -> bytes | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > (_LONGEST_MESSAGE if self.ready else _LONGEST_GREETING):
            raise RefusedError("not one of our nodes: a message is too long")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        frame, self._buffer = self._buffer[_LENGTH.size : end], self._buffer[end:]
        return frame

    def _greet(self, frame: bytes) -> None:
        try:
            greeting = json.loads(frame)
            if self._listens:
                self._check_newcomer(greeting)
            elif "nonce" in greeting:
                self._answer_challenge(greeting)
            else:
                self._check_listener(greeting)
        except (ValueError, KeyError, TypeError) as error:
            raise RefusedError("not one of our nodes: it does not speak the protocol") from error

    def _check_newcomer(self, greeting: dict[str, Any]) -> None:
        node = int(greeting["node"])
        self._transcript = [node, self._nonce, str(greeting["nonce"])]
        if not self._proves(greeting, "connects"):
            self._write(json.dumps({"refused": True}).encode())
            raise RefusedError("wrong secret, or a node of another run")
        self.peer = node
        self._write(json.dumps({"proof": self._credentials.sign("listens", *self._transcript).hex()}).encode())
        self._begin()

    def _answer_challenge(self, greeting: dict[str, Any]) -> None:
        self._transcript = [self._node, str(greeting["nonce"]), self._nonce]
        proof = self._credentials.sign("connects", *self._transcript).hex()
        self._write(json.dumps({"node": self._node, "nonce": self._nonce, "proof": proof}).encode())

    def _check_listener(self, greeting: dict[str, Any]) -> None:
        if "refused" in greeting:
            raise RefusedError("it refused this node: wrong secret, or another run")
        if not self._transcript or not self._proves(greeting, "listens"):
            raise RefusedError("wrong secret, or a node of another run")
        self._begin()

    def _proves(self, greeting: dict[str, Any], role: str) -> bool:
        expected = self._credentials.sign(role, *self._transcript)
        return hmac.compare_digest(bytes.fromhex(greeting["proof"]), expected)

    def _begin(self) -> None:
        self._session = self._credentials.sign("session", *self._transcript)
        self.ready = True

    def _open(self, frame: bytes) -> dict[str, Any]:
        mac, data = frame[:_MAC_SIZE], frame[_MAC_SIZE:]
        if not hmac.compare_digest(mac, self._mac(not self._listens, self._received, data)):
            raise RefusedError("a message was not written by a node that knows the secret")
        self._received += 1
        message: dict[str, Any] = json.loads(data)
        return message

    def _mac(self, from_listener: bool, number: int, data: bytes) -> bytes:
        place = struct.pack("!?Q", from_listener, number)
        return hmac.new(self._session, place + data, hashlib.sha256).digest()

    def _write(self, data: bytes) -> None:
        try:
            self.sock.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise ChannelClosedError(str(error)) from error


def _notice_silent_death(sock: socket.socket) -> None:
    """Have the kernel close the connection within half a minute when the other machine vanishes without a word."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
