"""The connections of a node to its peers.

Node 0 listens; every other node connects to it, retrying, and stays connected for the whole run. There is no
heartbeat: a connection that closes means that the node behind it is lost.
"""

from __future__ import annotations

import errno
import functools
import selectors
import socket
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from cloudbench.node.channel import Channel, ChannelClosedError, Credentials
from cloudbench.node.job import NodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cloudbench.node.place import Place

_GREETING_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 1.0
_RETRY_S = 0.2


class Peer(NamedTuple):
    """What a node tells the others about itself: its address, and ports that are free there."""

    node: int
    address: str
    hostname: str
    rank_ports: tuple[int, ...]
    ps_port: int
    master_port: int
    rendezvous_port: int

    @classmethod
    def from_message(cls, values: Mapping[str, Any]) -> Peer:
        """The peer that was sent as `_asdict()`."""
        return cls(**{**values, "rank_ports": tuple(values["rank_ports"])})


class Received(NamedTuple):
    """A message from a node."""

    node: int
    message: dict[str, Any]


class Lost(NamedTuple):
    """The connection to a node closed."""

    node: int
    why: str


class Cluster:
    """The authenticated connections of this node. Node 0 has one to each other node, they have one to node 0.

    Nothing here blocks for long: `selector` calls back when a socket is readable, and `tick` is to be called a
    few times a second. What happened is taken with `events`.

    Raises:
        NodeError: node 0 cannot listen on its port.
    """

    def __init__(
        self, place: Place, run: str, attempt: int, selector: selectors.BaseSelector, log: Callable[[str], None]
    ) -> None:
        self._place = place
        self._credentials = Credentials(place.secret, run, attempt)
        self._selector = selector
        self._log = log
        self._events: list[Received | Lost] = []
        self._channels: dict[int, Channel] = {}
        self._strangers: dict[Channel, float] = {}
        self._unsent: list[dict[str, Any]] = []
        self._retry_at = 0.0
        self._lost_main = False
        self.complaint = ""
        self._listener = self._listen() if place.node == 0 and place.nodes > 1 else None

    @property
    def connected(self) -> frozenset[int]:
        """The nodes with which a proven connection is open."""
        return frozenset(self._channels)

    @property
    def meeting_main(self) -> bool:
        """Whether this node and node 0 are proving to each other who they are."""
        return self._place.node != 0 and bool(self._strangers)

    def events(self) -> Iterable[Received | Lost]:
        """What happened since the last call, in order."""
        events, self._events = self._events, []
        return events

    def send(self, node: int, message: dict[str, Any]) -> None:
        """Send to one node; a node that is gone becomes a `Lost` event.

        What is meant for node 0 while the two prove who they are is sent as soon as they have: node 0 may count this
        node among its peers by then, and must learn why it ends.
        """
        channel = self._channels.get(node)
        if channel is None and node == 0 and self.meeting_main:
            self._unsent.append(message)
        elif channel is not None:
            try:
                channel.send(message)
            except ChannelClosedError as error:
                self._drop(channel, str(error))

    def broadcast(self, message: dict[str, Any]) -> None:
        """Send to every node that is connected."""
        for node in sorted(self._channels):
            self.send(node, message)

    def tick(self, now: float) -> None:
        """Connect to node 0 where that is still to be done; drop strangers that do not speak."""
        for channel, since in list(self._strangers.items()):
            if now - since > _GREETING_TIMEOUT_S:
                self._drop(channel, "it said nothing")
        unconnected = not self._channels and not self._strangers and not self._lost_main
        if self._place.node != 0 and unconnected and now >= self._retry_at:
            self._retry_at = now + _RETRY_S
            self._connect()

    def close(self) -> None:
        """Close every connection."""
        for channel in [*self._channels.values(), *self._strangers]:
            self._selector.unregister(channel.sock)
            channel.close()
        self._channels.clear()
        self._strangers.clear()
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _listen(self) -> socket.socket:
        address = (self._place.address, self._place.main_port)
        try:
            listener = listening_socket(*address)
        except OSError as error:
            raise NodeError(f"node 0 cannot listen on {address[0]}:{address[1]}: {error}") from error
        self._selector.register(listener, selectors.EVENT_READ, functools.partial(self._accept, listener))
        return listener

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError as error:
            self._log(f"a connection failed before it was accepted: {error}")
            return
        self._meet(sock, None)

    def _connect(self) -> None:
        try:
            sock = socket.create_connection(
                (self._place.main_address, self._place.main_port), timeout=_CONNECT_TIMEOUT_S
            )
        except OSError as error:
            self._complain(f"node 0 is not there yet: {error}")
            return
        self._meet(sock, self._place.node)

    def _meet(self, sock: socket.socket, node: int | None) -> None:
        try:
            channel = Channel(sock, self._credentials, node)
        except (ChannelClosedError, OSError) as error:
            self._complain(f"a connection closed at once: {error}")
            sock.close()
            return
        self._strangers[channel] = time.monotonic()
        self._selector.register(sock, selectors.EVENT_READ, functools.partial(self._readable, channel))

    def _readable(self, channel: Channel) -> None:
        try:
            messages = channel.receive()
        except ChannelClosedError as error:
            self._drop(channel, str(error))
            return
        if channel.peer is not None and channel.ready and channel in self._strangers:
            self._admit(channel, channel.peer)
        if channel.peer is not None and self._channels.get(channel.peer) is channel:
            self._events.extend(Received(channel.peer, message) for message in messages)

    def _admit(self, channel: Channel, peer: int) -> None:
        if peer in self._channels or not 0 <= peer < self._place.nodes or peer == self._place.node:
            self._drop(channel, f"it says that it is node {peer}, whose place is taken")
            return
        del self._strangers[channel]
        self._channels[peer] = channel
        self._log(f"connected with node {peer}")
        unsent, self._unsent = self._unsent, []
        for message in unsent:
            self.send(peer, message)

    def _drop(self, channel: Channel, why: str) -> None:
        try:
            where = channel.sock.getpeername()[0]
        except OSError:
            where = "an unknown address"
        self._selector.unregister(channel.sock)
        channel.close()
        if channel in self._strangers:
            del self._strangers[channel]
            self._unsent.clear()
            self._retry_at = time.monotonic() + _CONNECT_TIMEOUT_S
            self._complain(f"refused the connection with {where}: {why}")
        elif channel.peer is not None:
            del self._channels[channel.peer]
            self._lost_main = self._place.node != 0
            self._events.append(Lost(channel.peer, why))

    def _complain(self, text: str) -> None:
        if text != self.complaint:
            self.complaint = text
            self._log(text)


def listening_socket(address: str, port: int) -> socket.socket:
    """A socket that listens on this node's own address, or on all of them where the address is not its own.

    The latter is a node behind address translation. Port 0 is any free one.

    Raises:
        OSError: the port is taken, or the address has no meaning.
    """
    family, _, _, _, target = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(target)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            sock.bind(("", port))
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock
