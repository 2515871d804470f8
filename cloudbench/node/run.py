"""One node's part in a run, from finding its peers to the verdict.

One thread, one loop: it waits for sockets and signals, looks at its processes first and at messages second (so that
a rank's own death is noted before its consequences are told), then at the clock.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudbench.node import facts, interpreter, launchers, remote_shell
from cloudbench.node.cluster import Cluster, Lost, Peer, Received
from cloudbench.node.coordinate import Cause, Coordinator, first_cause
from cloudbench.node.job import Job, NodeError
from cloudbench.node.logs import StepWatcher, last_lines
from cloudbench.node.network import ReservedPorts, interface_of
from cloudbench.node.place import Place
from cloudbench.node.rendezvous import RendezvousStore
from cloudbench.node.status import Status
from cloudbench.node.supervise import Child, Children, Exit
from cloudbench.node.watch import Lifeline, Signals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudbench.node.outbox import Outbox

_TICK_S = 0.2
_STOP_MARGIN_S = 10.0
_FACTS_TIMEOUT_S = 10.0  # after the verdict; a run that short has hardly begun
_PUSH_TIMEOUT_S = 30.0  # after the last word of a node
_PUSHES_TIMEOUT_S = 45.0  # after that of node 0, whose end is that of the other machines
_SIGKILL_CODE = 137
_LONGEST_TMPDIR = 79  # bytes: with `/cloudbench-` and 8 more, and `/rsh`, that is the 103 that a socket may have
_WORKERS = ("rank", "mpirun")
_TRAINING = (*_WORKERS, "ps", "remote", "prepare")
_FOR_NODE_0 = ("hello", "ready", "finished", "failure", "stopped")


class NodeRun:
    """Runs one job on one node; `run` returns when nothing of it is left."""

    def __init__(self, job: Job, place: Place, outbox: Outbox) -> None:
        if job.launcher not in launchers.LAUNCHERS:
            raise NodeError(f"the launcher {job.launcher!r} is none of {', '.join(sorted(launchers.LAUNCHERS))}")
        now = time.monotonic()
        self._job, self._place, self._outbox = job, place, outbox
        self._scratch = _make_scratch()
        self._children = Children(job.grace_s, self._scratch)
        self._lifeline = Lifeline(place.lifeline) if place.lifeline else None
        self._selector = selectors.DefaultSelector()
        self._signals = Signals(self._selector)
        self._status = Status(time.time())
        self._oom_kills = facts.out_of_memory_kills()
        self._cluster = Cluster(place, job.run, job.attempt, self._selector, outbox.log)
        stop_timeout_s = job.grace_s + _STOP_MARGIN_S
        self._coordinator = Coordinator(place.nodes, now, job.peers_timeout_s, stop_timeout_s)
        self._store = RendezvousStore(place.address) if place.node == 0 and job.launcher == "horovod" else None
        self._ports = ReservedPorts(launchers.ranks_per_node(job) + 2)
        self._environment = {**os.environ, **job.environment}
        search_path = self._environment.get("PATH", os.defpath)
        self._environment["PATH"] = interpreter.path_with_python(search_path, self._scratch)
        self._desk: remote_shell.Desk | None = None
        self._mpi_failure: Path | None = None
        self._worker = remote_shell.Worker(self._selector, self._start_remote, self._send)
        self._to_self: list[dict[str, Any]] = []
        self._peers: tuple[Peer, ...] = ()
        self._steps: list[StepWatcher] = []
        self._causes: list[Cause] = []
        self._started = now
        self._greeted = self._stopping = self._stopped = self._decided = False
        self._give_up_at: float | None = None
        self._verdict: Cause | None = None

    def run(self) -> int:
        """Do the job's part on this node; 0 where the whole job succeeded, else 1."""
        self._outbox.log(f"node {self._place.node} of {self._place.nodes}, run {self._job.run}, pid {os.getpid()}")
        out = str(self._outbox.path("facts.json"))
        ask = (sys.executable, "-m", "cloudbench.node", "facts", "--out", out)
        self._start("facts", "node", ask, {"PYTHONPATH": interpreter.archive()})
        self._status.state = "waiting-for-peers"
        try:
            while not self._decided or self._facts_pending():
                self._turn()
        except Exception as error:  # whatever it is, its reason must come home
            self._outbox.log(traceback.format_exc())
            self._verdict = Cause(time.monotonic(), "infrastructure", f"the node program failed: {error!r}")
        finally:
            self._end_processes()
        self._status.end(self._verdict, time.time())
        self._outbox.log(f"ended: {self._verdict.reason if self._verdict else 'succeeded'}")
        self._write_status()
        self._wait_for_pushes()
        self._cluster.close()
        return 1 if self._verdict else 0

    # The loop

    def _turn(self) -> None:
        self._write_status()
        self._wait(0 if self._to_self else _TICK_S)
        self._reap()
        self._take_messages()
        now = time.monotonic()
        self._cluster.tick(now)
        self._children.tick(now)
        if self._place.node == 0:
            self._announce(self._coordinator.tick(now))
        if not self._stopping:
            self._greet()
            self._check_ends(now)
        stepped = [watcher for watcher in self._steps if watcher.saw_step()]
        if stepped:
            self._status.saw_step(time.time())
        if self._stopping and not self._children.running(*_TRAINING):
            self._say_stopped(now)

    def _wait(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            if self._selector.get_map().get(key.fd) is key:  # not closed by what came before it
                key.data()

    def _take_messages(self) -> None:
        own, self._to_self = self._to_self, []
        for message in own:
            self._handle(self._place.node, message)
        for event in self._cluster.events():
            if isinstance(event, Received):
                self._handle(event.node, event.message)
            else:
                self._lose(event)

    def _handle(self, sender: int, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind in _FOR_NODE_0:
            self._announce(self._coordinator.receive(sender, message, time.monotonic()))
        elif kind == "exec":
            self._worker.execute(message)
        elif kind in ("output", "exit") and self._desk is not None:
            self._desk.deliver(message)
        elif kind == "peers":
            self._prepare(message)
        elif kind == "go" and not self._stopping:
            self._launch()
        elif kind in ("stop", "verdict"):
            cause = message["cause"] and Cause.from_message(message["cause"], time.monotonic())
            if kind == "stop":
                self._stop(cause)
            else:
                self._decide(cause)

    def _send(self, node: int, message: dict[str, Any]) -> None:
        if node == self._place.node:
            self._to_self.append(message)
        else:
            self._cluster.send(node, message)

    def _announce(self, messages: list[dict[str, Any]]) -> None:
        """Tell every node, this one included; only node 0 does."""
        for message in messages:
            self._cluster.broadcast(message)
            self._to_self.append(message)

    def _lose(self, event: Lost) -> None:
        name, now = self._name(event.node), time.monotonic()
        self._outbox.log(f"{name} is gone: {event.why}")
        if self._place.node == 0:
            self._announce(self._coordinator.lost(event.node, name, now))
        elif not self._decided:
            reason = f"{name} was lost: its node program or its machine is gone"
            self._fail(Cause(now, "infrastructure", reason, external=True))

    # From the first word to the ranks

    def _greet(self) -> None:
        """Tell node 0, as soon as it is there, what the others must know of this node."""
        if self._greeted or (self._place.node != 0 and 0 not in self._cluster.connected):
            return
        self._greeted = True
        *rank_ports, ps_port, master_port = self._ports.numbers
        peer = Peer(
            node=self._place.node,
            address=self._place.address,
            hostname=socket.gethostname(),
            rank_ports=tuple(rank_ports),
            ps_port=ps_port,
            master_port=master_port,
            rendezvous_port=self._store.port if self._store else master_port,
        )
        self._send(0, {"type": "hello", "peer": peer._asdict()})

    def _prepare(self, message: dict[str, Any]) -> None:
        self._peers = tuple(Peer.from_message(values) for values in message["peers"])
        self._status.stamps["peers_found"] = time.time()
        self._status.state = "preparing"
        self._layout = launchers.Layout(
            node=self._place.node,
            peers=self._peers,
            job=self._job,
            gpus=self._find_gpus(),
            interface=interface_of(self._place.address),
            agent=f"{sys.executable} -m cloudbench.node rsh",
        )
        self._environment = launchers.node_environment(self._layout, self._environment, interpreter.archive())
        self._environment["CLOUDBENCH_LOG_FOLDER"] = str(self._outbox.folder)
        if self._job.prepare is None:
            self._send(0, {"type": "ready"})
        elif not self._stopping:
            self._start("prepare", "prepare", ("/bin/sh", "-c", self._job.prepare))

    def _find_gpus(self) -> tuple[str, ...] | None:
        """The devices of this node; None where there are none and nobody said so."""
        found = facts.gpu_indexes() or None if self._place.gpus is None else self._place.gpus
        wanted = self._job.gpus_per_node
        if found and len(found) < wanted:
            reason = f"{self._name(self._place.node)} has {len(found)} GPUs, the job needs {wanted} on each node"
            self._fail(Cause(time.monotonic(), "infrastructure", reason))
        return found[:wanted] if found else found

    def _launch(self) -> None:
        self._status.state = "running"
        ranks = launchers.ranks_of(self._place.node, self._place.nodes, self._job)
        self._status.ranks = dict.fromkeys(ranks)
        self._steps = [StepWatcher(self._outbox.path(f"rank-{rank}.log")) for rank in ranks]
        self._ports.release()
        if self._job.launcher == "mpirun":
            self._open_desk()
        for process in launchers.processes(self._layout):
            self._start(process.kind, process.name, process.command, process.environment, process.rank)
        if self._store is not None:
            self._store.start()  # after the ranks: a process that has threads had better not fork
        if not self._children.running(*_WORKERS):
            self._send(0, {"type": "finished"})

    def _open_desk(self) -> None:
        self._mpi_failure = self._scratch / "mpi-failure"
        self._environment.update(launchers.mpi_environment(self._layout))
        self._environment["CLOUDBENCH_MPI_FAILURE"] = str(self._mpi_failure)
        self._environment["TMPDIR"] = str(self._scratch)  # Open MPI's daemons of one machine race for their folder
        if self._place.node == 0:
            path = self._scratch / "rsh"
            names = {name: peer.node for peer in self._peers for name in (peer.hostname, peer.address)}
            self._desk = remote_shell.Desk(path, names, self._selector, self._send)
            self._environment[remote_shell.SOCKET_VARIABLE] = str(path)

    # Processes

    def _start(
        self,
        kind: str,
        name: str,
        command: tuple[str, ...],
        environment: Mapping[str, str] | None = None,
        rank: int | None = None,
    ) -> None:
        whole = {**self._environment, **(environment or {})}
        try:
            with self._outbox.open_log(f"{name}.log") as output:
                child = self._children.start(kind, name, command, whole, output.fileno(), rank)
        except OSError as error:
            reason = f"{command[0]} cannot be started on {self._name(self._place.node)}: {error.strerror}"
            self._fail(Cause(time.monotonic(), "failed", reason))
            return
        if rank is not None:
            self._status.ranks[rank] = child

    def _start_remote(self, command: str, output: int) -> Child:
        return self._children.start("remote", "remote", ("/bin/sh", "-c", command), self._environment, output)

    def _reap(self) -> None:
        if self._mpi_failure is not None:
            self._look_at_mpi_ranks(self._mpi_failure)
        ordered = self._stopping  # what ended together is looked at together, though the first of it stops the rest
        for child, end in self._children.reap():
            self._outbox.log(f"{child.kind} {child.name} ({child.pid}) {end}")
            if child.kind == "remote":
                self._worker.ended(child, end)
            elif child.kind in _TRAINING and (not ordered or self._was_killed(child, end)):
                self._ended(child, end)

    def _was_killed(self, child: Child, end: Exit) -> bool:
        """Whether somebody else killed a rank: its peers may have noticed, and failed, before it was seen to end."""
        return child.kind == "rank" and end.shell_code == _SIGKILL_CODE and not self._children.kills

    def _look_at_mpi_ranks(self, path: Path) -> None:
        """See whether a rank that mpirun started here has failed; its wrapper left a file then."""
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if not self._stopping and text.endswith("\n"):
            self._mpi_failure = None
            rank, code = map(int, text.split())
            age = time.time() - path.stat().st_mtime
            self._fail(self._blame(f"rank {rank}", f"rank-{rank}", Exit(code, None), time.monotonic() - age, rank))

    def _ended(self, child: Child, end: Exit) -> None:
        if end.exit_code != 0:
            names = {"rank": f"rank {child.rank}", "prepare": "the preparation", "ps": "the parameter server"}
            what = names.get(child.kind, child.kind)
            self._fail(self._blame(what, child.name, end, time.monotonic(), child.rank))
        elif child.kind == "prepare":
            self._send(0, {"type": "ready"})
        elif child.kind in _WORKERS and not self._children.running(*_WORKERS):
            self._send(0, {"type": "finished"})

    def _blame(self, what: str, name: str, end: Exit, now: float, rank: int | None) -> Cause:
        """The cause that lies in the end of a process with the log `name`."""
        reason = f"{what} on {self._name(self._place.node)} {end}"
        killed = facts.out_of_memory_kills()
        if killed is not None and self._oom_kills is not None and killed > self._oom_kills:
            reason += f"; memory ran out: the kernel killed {killed - self._oom_kills} process(es) of this node"
        return Cause(
            time=now,
            outcome="failed",
            reason=reason,
            external=end.shell_code == _SIGKILL_CODE,
            exit_code=end.shell_code,
            failed_rank=rank,
            last_lines=tuple(last_lines(self._outbox.path(f"{name}.log"))),
        )

    # The end

    def _check_ends(self, now: float) -> None:
        """Look whether anything but a process or a peer asks this node to end."""
        cause = None
        if self._signals.ending is not None:
            reason = f"node {self._place.node} got {self._signals.ending.name}"
            cause = Cause(now, "cancelled", reason, external=True)
        elif self._lifeline is not None and self._lifeline.is_lost(now):
            cause = Cause(now, "cancelled", "the client that started this run is gone", external=True)
        elif now - self._started >= self._job.deadline_s:
            reason = f"the run took longer than {self._job.deadline_s:g} s"
            cause = Cause(now, "timed-out", reason, external=True)
        elif not self._greeted and now - self._started >= self._job.peers_timeout_s:
            reason = (
                f"node 0 ({self._place.main_address}:{self._place.main_port}) did not answer node "
                f"{self._place.node} within {self._job.peers_timeout_s:g} s: {self._cluster.complaint}"
            )
            cause = Cause(now, "infrastructure", reason)
        if cause is not None:
            self._fail(cause)

    def _fail(self, cause: Cause) -> None:
        """Note a cause, tell node 0, and stop."""
        self._outbox.log(cause.reason)
        self._causes.append(cause)
        self._send(0, {"type": "failure", "causes": [cause.to_message(time.monotonic())]})
        self._stop(None)

    def _stop(self, cause: Cause | None) -> None:
        """End what runs here. `cause` is what node 0 knows, None where it is not told or there is none."""
        if not self._stopping:
            self._reap()  # what ended before is no consequence of what comes now
            self._stopping = True
            self._children.stop(time.monotonic(), *_TRAINING)
        if cause is not None:
            self._causes.append(cause)

    def _say_stopped(self, now: float) -> None:
        """Tell node 0 that nothing runs here; decide alone where it does not answer."""
        if not self._stopped:
            self._stopped = True
            self._give_up_at = now + self._job.grace_s + 2 * _STOP_MARGIN_S
            self._send(0, {"type": "stopped", "causes": [cause.to_message(now) for cause in self._causes]})
        alone = self._place.node != 0 and 0 not in self._cluster.connected and not self._cluster.meeting_main
        if not self._decided and (alone or (self._give_up_at is not None and now >= self._give_up_at)):
            silent = Cause(now, "infrastructure", f"{self._name(0)} did not say how the run ended")
            self._decide(first_cause(self._causes) or silent)

    def _decide(self, cause: Cause | None) -> None:
        self._decided = True
        self._verdict = cause
        self._give_up_at = time.monotonic() + _FACTS_TIMEOUT_S

    def _facts_pending(self) -> bool:
        waited = self._give_up_at is not None and time.monotonic() >= self._give_up_at
        return bool(self._children.running("facts")) and not waited

    def _wait_for_pushes(self) -> None:
        """Stay until this node's files are on the share; on node 0, until the others have said so by closing."""
        if self._place.pushed is None:
            return
        main = self._place.node == 0
        until = time.monotonic() + (_PUSHES_TIMEOUT_S if main else _PUSH_TIMEOUT_S)
        while not self._place.pushed.exists() or (main and self._cluster.connected):
            now = time.monotonic()
            if now >= until or (self._lifeline is not None and self._lifeline.is_lost(now)):
                self._outbox.log("not every file arrived on the share in time")
                return
            self._wait(_TICK_S)
            self._cluster.events()

    def _end_processes(self) -> None:
        if self._desk is not None:
            self._desk.close()
        self._children.close()
        if self._store is not None:
            self._store.stop()

    def _name(self, node: int) -> str:
        """A node as a person knows it; by its number alone before it has introduced itself."""
        found = [peer for peer in self._peers if peer.node == node]
        return f"node {node} ({found[0].hostname}, {found[0].address})" if found else f"node {node}"

    def _write_status(self) -> None:
        self._outbox.write_json("status.json", self._status.to_json())


def _make_scratch() -> Path:
    """A folder of this program's own. Where $TMPDIR is too long for the paths of sockets it lies elsewhere."""
    too_long = len(os.fsencode(tempfile.gettempdir())) > _LONGEST_TMPDIR
    return Path(tempfile.mkdtemp(prefix="cloudbench-", dir="/tmp" if too_long else None))  # noqa: S108  # mkdtemp is safe there
