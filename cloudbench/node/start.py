"""Starts the node program in the background, directly or in a container, and stays beside it until all is told.

A cloud's task calls `start`, which returns at once, and `wait`, which returns when the node has ended. What stays in
between, the host process, runs outside of any container: it sends the files to the share, and says how it ended where
the node program cannot. It holds the lock of `start.lock`, which is the node program's lifeline.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cloudbench.node.job import Job, NodeError, read_job
from cloudbench.node.logs import Echo, last_lines
from cloudbench.node.outbox import Outbox, write_whole
from cloudbench.node.place import Place, find_place
from cloudbench.node.push import FINISH_TIMEOUT_S, PUSHED, STATUS
from cloudbench.node.status import Status
from cloudbench.node.supervise import Child, Children, Exit
from cloudbench.node.watch import Lifeline, Signals

if TYPE_CHECKING:
    from collections.abc import Mapping

BUNDLE = "cloudbench-node.pyz"
LOCK = "start.lock"
_LOG = "start.log"
_TICK_S = 0.2
_PUSH_MARGIN_S = 15.0  # for the request that is on its way
_PUSHER_AGAIN_S = 5.0
_END_MARGIN_S = 90.0  # for a node program to stop, to tell the others, and to push
_SHM_SIZE = "2g"  # NCCL and input pipelines share memory there; an engine's own 64 MB is too little for them
_INFINIBAND = "/dev/infiniband"
_DOCKER_FAILED = 125  # docker's own exit code: the container never ran


class Order(NamedTuple):
    """What is to be started: `files` holds the bundle, `job.json`, `secret`, and `push.json` where there is a share.

    `mounts` are `SRC:DST` as docker takes them. `gpus` is `all` or `none`.
    """

    files: Path
    out: Path
    image: str | None = None
    mounts: tuple[str, ...] = ()
    gpus: str = "all"


def start(order: Order, *, foreground: bool = False) -> int:
    """Start this node once; 0 also where it runs already. In the foreground, the node's exit code.

    Raises:
        NodeError: the call makes no sense.
    """
    if order.mounts and order.image is None:
        raise NodeError("--mount needs --image: without a container every path is the machine's own")
    order = order._replace(files=order.files.absolute(), out=order.out.absolute())
    try:
        order.out.mkdir(parents=True, exist_ok=True)
        lock = _lock(order.out)
    except OSError as error:
        raise NodeError(f"{order.out} cannot be used: {error.strerror}") from error
    if lock is None:
        print(f"a node runs in {order.out} already", flush=True)
        return 0
    for name in (STATUS, PUSHED):  # of an earlier node, when the cloud runs a task again
        with contextlib.suppress(FileNotFoundError):
            (order.out / name).unlink()
    if not foreground and os.fork():
        os.close(lock)
        return 0
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    if foreground:
        return _stay(order)
    _leave_the_caller(order.out)
    code = 1
    try:
        code = _stay(order)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def wait(out: Path, *, tell: bool = False) -> int:
    """Wait until the node in `out` has ended and all is told; print how. Signals are passed on to it.

    Args:
        tell: print what its ranks print as well, while they do.

    Returns:
        0 where the run succeeded; else the failed rank's exit code, or 1 where it is no rank's fault.
    """
    lock = out / LOCK
    if not lock.exists():
        print(f"no node was started in {out}", flush=True)
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: _pass_on(lock, number))
    echo = Echo(out)
    with lock.open("rb") as file:
        while _is_held(file.fileno()):
            time.sleep(_TICK_S)
            if tell and echo.tell():
                sys.stdout.flush()
    while tell and echo.tell():
        pass
    if not _has_ended(out):
        declare_ended(out, "the process that watched over the node program is gone")
    status = _read_status(out)
    print(f"{status['outcome']}: {status['reason'] or 'the run is complete'}")
    for line in status["last_lines"]:
        print(f"  {line}")
    sys.stdout.flush()
    return 0 if status["outcome"] == "succeeded" else status["exit_code"] or 1


def declare_ended(out: Path, reason: str) -> None:
    """Write into `status.json` that the node ended for `reason`, which is nobody's fault but the machine's."""
    status = {**Status(time.time()).to_json(), **_read_status(out)}
    status.update(state="ended", outcome="infrastructure", exit_code=None, reason=reason)
    status["last_lines"] = last_lines(out / _LOG)
    status["stamps"] = {**status["stamps"], "end": time.time()}
    write_whole(out / STATUS, (json.dumps(status, indent=1) + "\n").encode())


def _stay(order: Order) -> int:
    """Run the node program and stay beside it; its exit code, or 1 where there is none."""
    try:
        job = read_job((order.files / "job.json").read_text(encoding="utf-8"))
        place = find_place({"CLOUDBENCH_SECRET_FILE": str(order.files / "secret"), **os.environ})
        lifeline = Lifeline(place.lifeline) if place.lifeline else None
    except (OSError, NodeError) as error:
        with Outbox(order.out).open_log(_LOG) as log:
            log.write(f"{error}\n".encode())
        declare_ended(order.out, str(error))
        return 1
    host = _Host(order, job, place, lifeline)
    try:
        return host.run()
    finally:
        host.close()


class _Host:
    """The process that stays beside the node program."""

    def __init__(self, order: Order, job: Job, place: Place, lifeline: Lifeline | None) -> None:
        self._order, self._job, self._place, self._lifeline = order, job, place, lifeline
        self._outbox = Outbox(order.out)
        self._selector = selectors.DefaultSelector()
        self._signals = Signals(self._selector)
        self._children = Children(job.grace_s + _END_MARGIN_S, Path(tempfile.mkdtemp(prefix="cloudbench-start-")))
        self._pusher: Child | None = None
        self._pusher_since = 0.0
        work = order.out / "work"
        work.mkdir(exist_ok=True)
        os.chdir(work)

    def run(self) -> int:
        """Run the node program and push what it writes; its exit code."""
        if (self._order.files / "push.json").exists():
            self._start_pusher()
        code = self._run_program()
        self._finish_pushing()
        return code

    def close(self) -> None:
        """Leave nothing running."""
        self._children.close()
        self._selector.close()

    def _run_program(self) -> int:
        order, out = self._order, self._order.out
        place = self._place._replace(lifeline=out / LOCK, pushed=out / PUSHED if self._pusher else None)
        environment = node_environment(order, self._job, place, os.environ)
        command: tuple[str, ...] = (sys.executable, *program_arguments(order))
        if order.image is not None:
            name = f"{self._job.run}-a{self._job.attempt}-node-{place.node}"
            gpus = order.gpus == "all" and shutil.which("nvidia-smi") is not None
            infiniband = Path(_INFINIBAND).exists()
            command = container_command(order, order.image, name, environment, gpus=gpus, infiniband=infiniband)
        said = (out / _LOG).stat().st_size if (out / _LOG).exists() else 0
        try:
            end = self._run(command, {**os.environ, **environment})
        except OSError as error:
            declare_ended(out, f"{command[0]} cannot be started: {error.strerror}")
            return 1
        if not _has_ended(out):
            reason = self._explain(end, said)
            self._say(reason)
            declare_ended(out, reason)
            return end.shell_code or 1
        return end.shell_code

    def _run(self, command: tuple[str, ...], environment: Mapping[str, str]) -> Exit:
        with self._outbox.open_log(_LOG) as output:
            program = self._children.start("program", "node", command, environment, output.fileno())
        while program.exit is None:
            self._wait()
            now = time.monotonic()
            if self._signals.ending is not None or (self._lifeline is not None and self._lifeline.is_lost(now)):
                self._children.stop(now, "program")
            self._children.tick(now)
            if self._pusher and self._pusher.exit is not None and now - self._pusher_since >= _PUSHER_AGAIN_S:
                self._start_pusher()  # the kernel may have killed it for lack of memory
        return program.exit

    def _explain(self, end: Exit, said: int) -> str:
        """Why the node program left no last word of its own: what it, or docker in its place, printed."""
        image = self._order.image
        with (self._order.out / _LOG).open("rb") as file:
            file.seek(said)
            printed = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
        of_docker = [line for line in printed if line.startswith("docker:")]
        words = [*(printed or ["it said nothing"]), *of_docker][-1]
        if image is not None and end.exit_code == _DOCKER_FAILED:
            return f"no container could be started from the image {image}: {words}"
        where = f" in the image {image}" if image is not None else ""
        return f"the node program{where} {end}, without having told how the run ended: {words}"

    def _start_pusher(self) -> None:
        files, out = self._order.files, self._order.out
        command = [sys.executable, str(files / BUNDLE), "push", "--folder", str(out)]
        command += ["--push", str(files / "push.json"), "--node", str(self._place.node)]
        self._pusher_since = time.monotonic()
        # A signal that comes before the pusher listens must wait, and not kill it: a new process inherits this.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            with self._outbox.open_log("push.log") as output:
                self._pusher = self._children.start("push", "push", tuple(command), os.environ, output.fileno())
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def _finish_pushing(self) -> None:
        if self._pusher is None:
            return
        if self._pusher.exit is not None:
            self._start_pusher()
        self._pusher.signal_group(signal.SIGTERM)
        until = time.monotonic() + FINISH_TIMEOUT_S + _PUSH_MARGIN_S
        while self._pusher.exit is None and time.monotonic() < until:
            self._wait()

    def _wait(self) -> None:
        for key, _ in self._selector.select(_TICK_S):
            key.data()
        self._children.reap()

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError), self._outbox.open_log(_LOG) as file:
            file.write(f"{text}\n".encode())


def program_arguments(order: Order) -> tuple[str, ...]:
    """What Python is given to be the node program."""
    files = order.files
    return (str(files / BUNDLE), "run", "--job", str(files / "job.json"), "--out", str(order.out))


def node_environment(order: Order, job: Job, place: Place, inherited: Mapping[str, str]) -> dict[str, str]:
    """All the CLOUDBENCH_ variables of the node program: those that are set on the host, and those of its place."""
    found = {name: value for name, value in inherited.items() if name.startswith("CLOUDBENCH_")}
    found.update(
        place.to_environment(),
        CLOUDBENCH_RUN_ID=job.run,
        CLOUDBENCH_ATTEMPT=str(job.attempt),
        CLOUDBENCH_SECRET_FILE=inherited.get("CLOUDBENCH_SECRET_FILE", str(order.files / "secret")),
    )
    if order.gpus == "none":
        found["CLOUDBENCH_GPUS"] = ""
    if order.image is not None:
        found["CLOUDBENCH_IMAGE"] = order.image
    return found


def container_command(
    order: Order, image: str, name: str, environment: Mapping[str, str], *, gpus: bool, infiniband: bool = False
) -> tuple[str, ...]:
    """The `docker run` of the node program. Folders have the paths of the host; variables go by their names alone."""
    files, out = order.files, order.out
    command = ["docker", "run", "--rm", "--init", "--name", name]
    command += ["--network", "host", "--shm-size", _SHM_SIZE, *(["--gpus", "all"] if gpus else [])]
    if infiniband:  # it is given memory that the kernel must not move
        command += ["--device", _INFINIBAND, "--ulimit", "memlock=-1"]
    command += ["--user", f"{os.getuid()}:{os.getgid()}", "--workdir", str(out / "work")]
    for mount in (f"{files}:{files}:ro", f"{out}:{out}", *order.mounts):
        command += ["-v", mount]
    for variable in sorted(environment):
        command += ["-e", variable]
    # A user id without a name in the image: programs that ask for a home or a name find one.
    command += ["-e", "HOME=/tmp", "-e", "USER=cloudbench", "--entrypoint", "python3"]
    return (*command, image, *program_arguments(order))


def _lock(out: Path) -> int | None:
    """A descriptor that holds the lock of the node in `out` as long as it is open; None where another one does."""
    descriptor = os.open(out / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _pass_on(lock: Path, number: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(lock.read_text()), number)


def _leave_the_caller(out: Path) -> None:
    """Have a session of one's own and none of the caller's files, so that it can end."""
    os.setsid()
    log = os.open(out / _LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(nothing)


def _read_status(out: Path) -> dict[str, Any]:
    try:
        status: dict[str, Any] = json.loads((out / STATUS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return status


def _has_ended(out: Path) -> bool:
    return _read_status(out).get("state") == "ended"
