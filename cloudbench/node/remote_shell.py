"""How mpirun starts its daemons on the other nodes without an ssh server.

mpirun calls `python -m cloudbench.node rsh HOST COMMAND…`. That client hands the command to the node program on
node 0 over a socket in a private folder; node 0 hands it over the authenticated connection to the node program on
HOST, which runs it and sends output and exit code back the same way.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import selectors
import socket
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cloudbench.node.supervise import Child, Exit

SOCKET_VARIABLE = "CLOUDBENCH_RSH_SOCKET"
UNREACHABLE = 255  # what ssh says when it cannot run the command


class Desk:
    """On node 0: takes commands from rsh clients, and gives them what comes back.

    Args:
        path: where to listen; its folder must be nobody else's.
        nodes: the node index of each name and address that a client may ask for.
        send: sends a message to a node, this one included.
    """

    def __init__(
        self,
        path: Path,
        nodes: dict[str, int],
        selector: selectors.BaseSelector,
        send: Callable[[int, dict[str, Any]], None],
    ) -> None:
        self._nodes = nodes
        self._selector = selector
        self._send = send
        self._clients: dict[int, socket.socket] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(128)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def deliver(self, message: dict[str, Any]) -> None:
        """Pass an `output` or `exit` message on to the client that waits for it."""
        client = self._clients.get(message["id"])
        if client is not None:
            try:
                client.sendall(json.dumps(message).encode() + b"\n")
            except OSError:
                self._forget(message["id"])

    def close(self) -> None:
        """Turn every client away, and take no more."""
        for number in list(self._clients):
            self._forget(number)
        self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        number = client.fileno()
        self._clients[number] = client
        self._selector.register(client, selectors.EVENT_READ, functools.partial(self._read, number, bytearray()))

    def _read(self, number: int, buffer: bytearray) -> None:
        try:
            data = self._clients[number].recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._forget(number)
            return
        buffer += data
        if not buffer.endswith(b"\n"):
            return
        request = json.loads(buffer)
        node = self._nodes.get(request["host"])
        if node is None:
            text = f"no node of this run is called {request['host']}\n"
            self.deliver({"type": "output", "id": number, "data": _encode(text.encode())})
            self.deliver({"type": "exit", "id": number, "code": UNREACHABLE})
        else:
            self._send(node, {"type": "exec", "id": number, "command": request["command"]})

    def _forget(self, number: int) -> None:
        client = self._clients.pop(number)
        self._selector.unregister(client)
        client.close()


class Worker:
    """On every node: runs the commands that node 0 hands over.

    Args:
        start: starts a shell command with a descriptor as its output.
        send: sends a message to a node, this one included.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        start: Callable[[str, int], Child],
        send: Callable[[int, dict[str, Any]], None],
    ) -> None:
        self._selector = selector
        self._start = start
        self._send = send
        self._outputs: dict[int, tuple[int, int]] = {}

    def execute(self, message: dict[str, Any]) -> None:
        """Start the command of an `exec` message."""
        number = message["id"]
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        try:
            child = self._start(message["command"], write_end)
        finally:
            os.close(write_end)
        self._outputs[child.pid] = (number, read_end)
        self._selector.register(read_end, selectors.EVENT_READ, functools.partial(self._pump, number, read_end))

    def ended(self, child: Child, end: Exit) -> None:
        """Send the rest of the output and the exit code of a command that ended."""
        number, read_end = self._outputs.pop(child.pid)
        while self._pump(number, read_end):
            pass
        if read_end in self._selector.get_map():
            self._selector.unregister(read_end)
        os.close(read_end)
        self._send(0, {"type": "exit", "id": number, "code": end.shell_code})

    def _pump(self, number: int, read_end: int) -> bool:
        try:
            data = os.read(read_end, 1 << 16)
        except BlockingIOError:
            return False
        if data:
            self._send(0, {"type": "output", "id": number, "data": _encode(data)})
        elif read_end in self._selector.get_map():
            self._selector.unregister(read_end)
        return bool(data)


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def ask(host: str, command: str) -> int:
    """Be the client: run `command` on `host`, print its output, and return its exit code."""
    path = os.environ.get(SOCKET_VARIABLE)
    if not path:
        print(f"{SOCKET_VARIABLE} is not set: this command is for mpirun in a run", file=sys.stderr)
        return UNREACHABLE
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(path)
        sock.sendall(json.dumps({"host": host, "command": command}).encode() + b"\n")
        for line in sock.makefile("rb"):
            message = json.loads(line)
            if message["type"] == "exit":
                code: int = message["code"]
                return code
            sys.stdout.buffer.write(base64.b64decode(message["data"]))
            sys.stdout.buffer.flush()
    print(f"the node program went away while {host} worked", file=sys.stderr)
    return UNREACHABLE
