"""A node as a cloud's task starts it: in the background, under the variables of Azure Batch, with a share."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudbench.node.job import read_job
from cloudbench.node.push import file_names
from cloudbench.node.start import Order, container_command
from cloudbench.rehearsal.addresses import Addresses
from tests.node.conftest import PATIENCE_S, WAIT_FOR_FACTS, told_by_process, wait_until
from tests.node.share import SIGNATURE, Share, open_share
from tests.node.test_bundle import old_python

FOREVER = "echo at work; while :; do sleep 0.1; done"


class Task:
    """One multi-instance task of Azure Batch: a folder a node, with what the client sends to each of them."""

    def __init__(self, pyz: Path, folder: Path, share: Share, nodes: int, command: str, **job: Any) -> None:
        # Addresses that no other test has: nodes listen on a port that is always the same.
        self._held = Addresses()
        self.addresses = [self._held.take() for _ in range(nodes)]
        self.folder, self.share, self.nodes = folder, share, nodes
        self.secret, self.run_id = secrets.token_hex(16), f"test-{secrets.token_hex(6)}"
        self.environment: dict[str, str] = {}
        self.interpreter = sys.executable
        values = {
            "version": 1,
            "run": self.run_id,
            "attempt": 1,
            "launcher": "tf-config",
            "command": command,
            "prepare": None,
            "ranks_per_node": 1,
            "gpus_per_node": 0,
            "environment": {},
            "deadline_s": 120.0,
            "peers_timeout_s": 60.0,
            "grace_s": 0.5,
        }
        text = json.dumps({**values, **job})
        names = [file_names(node, nodes, read_job(text)) for node in range(nodes)]
        urls = [{name: share.url(f"node-{node}/{name}") for name in names[node]} for node in range(nodes)]
        push = {"version": 1, "kind": "azure-files", "nodes": urls}
        for node in range(nodes):
            files = self.files(node)
            files.mkdir(parents=True)
            (files / "cloudbench-node.pyz").write_bytes(pyz.read_bytes())
            (files / "job.json").write_text(text)
            (files / "secret").write_text(self.secret)
            (files / "push.json").write_text(json.dumps(push))

    def files(self, node: int) -> Path:
        return self.folder / f"machine-{node}"

    def out(self, node: int) -> Path:
        return self.files(node) / "out"

    def call(self, node: int, *arguments: object) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CLOUDBENCH_")}
        environment.update(
            AZ_BATCH_TASK_ID="node",
            AZ_BATCH_HOST_LIST=",".join(self.addresses),
            AZ_BATCH_MASTER_NODE=f"{self.addresses[0]}:6000",
            AZ_BATCH_IS_CURRENT_NODE_MASTER="true" if node == 0 else "false",
            CLOUDBENCH_NODE_ADDRESS=self.addresses[node],
            **self.environment,
        )
        command = [self.interpreter, self.files(node) / "cloudbench-node.pyz", *arguments]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def start(self, *options: str) -> Task:
        """Run the coordination command on every node; it returns at once."""
        for node in range(self.nodes):
            with self.call(node, "start", "--files", self.files(node), "--out", self.out(node), *options) as program:
                printed = program.communicate(timeout=PATIENCE_S)[0]
            assert (program.returncode, printed) == (0, "")
        return self

    def wait(self, node: int = 0) -> tuple[int, str]:
        """Run the application command: its exit code, and what it printed."""
        with self.call(node, "wait", "--out", self.out(node)) as program:
            printed = program.communicate(timeout=2 * PATIENCE_S)[0]
        return program.returncode, printed

    def status(self, node: int) -> dict[str, Any]:
        path = self.out(node) / "status.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def text(self, node: int, name: str) -> str:
        path = self.out(node) / name
        return path.read_text() if path.exists() else ""

    def wait_for_work(self) -> None:
        for node in range(self.nodes):
            wait_until(lambda node=node: "at work" in self.text(node, f"rank-{node}.log"), f"rank {node}")

    def processes(self) -> list[int]:
        """Every process of the task: those that were started, and those that stay beside them."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                entries = (folder / "environ").read_bytes().split(b"\0")
                if f"AZ_BATCH_HOST_LIST={','.join(self.addresses)}".encode() in entries:
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def close(self) -> None:
        def nothing_left() -> bool:
            found = self.processes()
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            return not found

        wait_until(nothing_left, "the end of every process")
        self._held.close()


@pytest.fixture
def share() -> Iterator[Share]:
    with open_share() as opened:
        yield opened


@pytest.fixture
def task(pyz: Path, share: Share, tmp_path: Path) -> Iterator[Callable[..., Task]]:
    made: list[Task] = []

    def make(nodes: int, command: str, **job: Any) -> Task:
        made.append(Task(pyz, tmp_path / f"task-{len(made)}", share, nodes, command, **job))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_two_nodes_train_and_everything_they_wrote_is_on_the_share_when_the_primary_ends(
    task: Callable[..., Task], share: Share
) -> None:
    two = task(2, f"echo $CLOUDBENCH_RANK of $CLOUDBENCH_WORLD_SIZE; {WAIT_FOR_FACTS}").start()
    assert two.wait() == (0, "succeeded: the run is complete\n")
    assert [share.text(f"node-{node}/rank-{node}.log") for node in range(2)] == ["0 of 2\n", "1 of 2\n"]
    for node in range(2):
        status = json.loads(share.text(f"node-{node}/status.json"))
        assert (status["state"], status["outcome"]) == ("ended", "succeeded")
        assert json.loads(share.text(f"node-{node}/facts.json"))["kernel"] == os.uname().release
        assert "ended: succeeded" in share.text(f"node-{node}/node.log")
    wait_until(lambda: not two.processes(), "the end of node 1")


def test_exit_code_and_last_lines_are_those_of_the_failed_rank(task: Callable[..., Task], share: Share) -> None:
    two = task(2, '[ "$CLOUDBENCH_RANK" = 0 ] && sleep 300; echo no gradient; exit 7').start()
    code, printed = two.wait()
    assert code == 7
    assert printed.startswith("failed: rank 1 on node 1 (")
    assert printed.endswith("exited with code 7\n  no gradient\n")
    assert json.loads(share.text("node-1/status.json"))["failed_rank"] == 1


def test_second_start_finds_the_first(task: Callable[..., Task]) -> None:
    one = task(1, FOREVER).start()
    one.wait_for_work()
    with one.call(0, "start", "--files", one.files(0), "--out", one.out(0)) as again:
        printed = again.communicate(timeout=PATIENCE_S)[0]
    assert (again.returncode, printed) == (0, f"a node runs in {one.out(0)} already\n")
    assert one.text(0, "rank-0.log") == "at work\n"


def test_foreground_stays_and_has_the_exit_code_of_the_node(task: Callable[..., Task]) -> None:
    one = task(1, "exit 3")
    with one.call(0, "start", "--foreground", "--files", one.files(0), "--out", one.out(0)) as program:
        assert program.wait(PATIENCE_S) == 1
    assert one.wait()[0] == 3


def test_share_that_hangs_delays_no_rank(task: Callable[..., Task], share: Share) -> None:
    share.hangs.set()
    two = task(2, "echo trained").start()
    for node in range(2):
        wait_until(lambda node=node: two.status(node).get("outcome") == "succeeded", f"the end of node {node}")
    assert share.hangs.is_set()
    assert share.files == {}
    share.recover()
    assert two.wait() == (0, "succeeded: the run is complete\n")
    for node in range(2):
        wait_until(lambda node=node: '"ended"' in share.text(f"node-{node}/status.json"), f"the files of node {node}")
        assert share.text(f"node-{node}/rank-{node}.log") == "trained\n"


def test_the_waiting_command_tells_what_the_ranks_print(task: Callable[..., Task]) -> None:
    one = task(1, "echo working; sleep 1; echo trained").start()
    with one.call(0, "wait", "--tell", "--out", one.out(0)) as program:
        printed = program.communicate(timeout=PATIENCE_S)[0]
    told = ["rank-0: working", "rank-0: trained", "succeeded: the run is complete"]
    assert (program.returncode, printed.splitlines()) == (0, told)


def test_signal_to_the_waiting_command_cancels_the_run(task: Callable[..., Task], share: Share) -> None:
    two = task(2, FOREVER).start()
    two.wait_for_work()
    with two.call(0, "wait", "--out", two.out(0)) as program:
        wait_until(lambda: b"SigCgt" in Path(f"/proc/{program.pid}/status").read_bytes(), "the waiting command")
        wait_until(lambda: catches(program.pid, signal.SIGTERM), "its handlers")
        program.terminate()
        printed = program.communicate(timeout=PATIENCE_S)[0]
    assert (program.returncode, printed) == (1, "cancelled: node 0 got SIGTERM\n")
    assert json.loads(share.text("node-1/status.json"))["outcome"] == "cancelled"


def catches(pid: int, number: signal.Signals) -> bool:
    text = Path(f"/proc/{pid}/status").read_text()
    mask = next(line.split()[1] for line in text.splitlines() if line.startswith("SigCgt"))
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_lost_client_ends_the_run(task: Callable[..., Task], tmp_path: Path) -> None:
    one = task(1, FOREVER)
    lifeline = tmp_path / "lifeline"
    one.environment["CLOUDBENCH_LIFELINE"] = str(lifeline)
    with lifeline.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        one.start().wait_for_work()
    assert one.wait() == (1, "cancelled: node 0 got SIGTERM\n")


def test_killed_host_process_takes_the_node_along_and_wait_says_so(task: Callable[..., Task]) -> None:
    one = task(1, FOREVER).start()
    one.wait_for_work()
    os.kill(int(one.text(0, "start.lock")), signal.SIGKILL)
    code, printed = one.wait()
    assert code == 1
    assert printed.startswith("infrastructure: the process that watched over the node program is gone\n")
    wait_until(lambda: not one.processes(), "the end of every process")


def test_node_program_that_is_killed_is_told_on_the_share(task: Callable[..., Task], share: Share) -> None:
    one = task(1, FOREVER).start()
    one.wait_for_work()
    program = wait_until(lambda: re.search(r", pid (\d+)$", one.text(0, "node.log"), re.MULTILINE), "the node program")
    os.kill(int(program[1]), signal.SIGKILL)
    assert one.wait()[0] == 1
    status = json.loads(share.text("node-0/status.json"))
    assert (status["state"], status["outcome"]) == ("ended", "infrastructure")
    assert status["reason"].startswith("the node program was killed by signal 9 (SIGKILL), without having told")


def runs(pid: int, command: str) -> bool:
    try:
        return f"cloudbench-node.pyz\0{command}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_killed_pusher_is_started_again(task: Callable[..., Task], share: Share, tmp_path: Path) -> None:
    end = tmp_path / "end"
    one = task(1, f"echo at work; while [ ! -e {end} ]; do sleep 0.1; done; echo trained").start()
    wait_until(lambda: "at work" in share.text("node-0/rank-0.log"), "the log on the share")
    first = wait_until(lambda: [pid for pid in one.processes() if runs(pid, "push")], "the pusher")[0]
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: [pid for pid in one.processes() if runs(pid, "push") and pid != first], "another pusher")
    end.touch()
    assert one.wait()[0] == 0
    assert share.text("node-0/rank-0.log") == "at work\ntrained\n"
    assert json.loads(share.text("node-0/status.json"))["outcome"] == "succeeded"


@pytest.mark.skipif(old_python() is None, reason="no Python 3.8 is installed")
def test_node_starts_and_pushes_on_python_3_8(task: Callable[..., Task], share: Share) -> None:
    two = task(2, "echo trained")
    two.interpreter = str(old_python())
    assert two.start().wait() == (0, "succeeded: the run is complete\n")
    assert [share.text(f"node-{node}/rank-{node}.log") for node in range(2)] == ["trained\n", "trained\n"]


def test_what_keeps_a_node_from_starting_is_told(task: Callable[..., Task]) -> None:
    one = task(1, "true")
    (one.files(0) / "job.json").write_text("{}")
    assert one.start().wait() == (
        1,
        "infrastructure: the job file has version None, this program reads 1\n"
        "  the job file has version None, this program reads 1\n",
    )


def test_waiting_for_nothing_is_told(task: Callable[..., Task]) -> None:
    one = task(1, "true")
    assert one.wait() == (1, f"no node was started in {one.out(0)}\n")


def test_folder_that_cannot_be_made_is_told(task: Callable[..., Task]) -> None:
    one = task(1, "true")
    one.out(0).write_text("a file is in the way")
    with one.call(0, "start", "--files", one.files(0), "--out", one.out(0)) as program:
        printed = program.communicate(timeout=PATIENCE_S)[0]
    assert (program.returncode, printed) == (2, f"cloudbench-node: {one.out(0)} cannot be used: File exists\n")


def test_mount_without_a_container_is_refused(task: Callable[..., Task]) -> None:
    one = task(1, "true")
    with one.call(0, "start", "--files", one.files(0), "--out", one.out(0), "--mount", "/a:/b") as program:
        printed = program.communicate(timeout=PATIENCE_S)[0]
    assert program.returncode == 2
    assert printed.startswith("cloudbench-node: --mount needs --image")


def test_secrets_are_in_no_argument_environment_or_file_of_the_node(task: Callable[..., Task], share: Share) -> None:
    two = task(2, "env; " + FOREVER).start()
    two.wait_for_work()
    wait_until(lambda: "at work" in share.text("node-1/rank-1.log"), "the log on the share")
    seen = b"".join(told_by_process(pid) for pid in two.processes())
    os.kill(int(two.text(0, "start.lock")), signal.SIGTERM)
    two.wait()
    wait_until(lambda: not two.processes(), "the end of node 1")
    seen += b"".join(path.read_bytes() for node in range(2) for path in two.out(node).rglob("*") if path.is_file())
    assert b"at work" in seen
    assert two.secret.encode() not in seen
    assert SIGNATURE.encode() not in seen


# A stand-in for the command `docker`: it cannot pull.
NO_PULL = """\
#!/bin/sh
echo "Unable to find image 'nowhere/nothing:latest' locally"
echo "docker: Error response from daemon: pull access denied for nowhere/nothing"
echo
echo "Run 'docker run --help' for more information"
exit 125
"""


def test_image_that_cannot_be_pulled_is_told_in_docker_s_own_words(
    task: Callable[..., Task], share: Share, tmp_path: Path
) -> None:
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(NO_PULL)
    docker.chmod(0o755)
    one = task(1, "echo never")
    one.environment["PATH"] = f"{docker.parent}:{os.environ['PATH']}"
    reason = (
        "no container could be started from the image nowhere/nothing: "
        "docker: Error response from daemon: pull access denied for nowhere/nothing"
    )
    code, printed = one.start("--image", "nowhere/nothing").wait()
    assert code == 1
    assert printed.startswith(f"infrastructure: {reason}\n  Unable to find image")
    status = json.loads(share.text("node-0/status.json"))
    assert (status["state"], status["outcome"], status["reason"]) == ("ended", "infrastructure", reason)
    assert "pull access denied" in share.text("node-0/start.log")


def test_host_without_docker_is_told(task: Callable[..., Task], share: Share, tmp_path: Path) -> None:
    one = task(1, "echo never")
    one.environment["PATH"] = str(tmp_path)
    assert one.start("--image", "some").wait() == (
        1,
        "infrastructure: docker cannot be started: No such file or directory\n",
    )
    assert json.loads(share.text("node-0/status.json"))["outcome"] == "infrastructure"


def test_container_is_given_variables_by_name_and_folders_by_their_own_paths(tmp_path: Path) -> None:
    order = Order(Path("/d"), Path("/d/out"), "some/image", ("/mnt/share:/data",))
    command = list(container_command(order, "some/image", "run-a1-node-0", {"B": "2", "A": "1"}, gpus=True))
    assert command[:3] == ["docker", "run", "--rm"]
    text = " ".join(command)
    assert "--name run-a1-node-0 --network host --shm-size 2g --gpus all" in text
    assert f"--user {os.getuid()}:{os.getgid()}" in text
    assert "-v /d:/d:ro -v /d/out:/d/out -v /mnt/share:/data -e A -e B" in text
    program = "some/image /d/cloudbench-node.pyz run --job /d/job.json --out /d/out"
    assert text.endswith(f"--entrypoint python3 {program}")
    bare = container_command(order, "some/image", "name", {}, gpus=False)
    assert {"--gpus", "--device"} & set(bare) == set()
    fast = " ".join(container_command(order, "some/image", "name", {}, gpus=False, infiniband=True))
    assert "--device /dev/infiniband --ulimit memlock=-1" in fast


@pytest.mark.docker
def test_node_runs_in_a_container_as_this_user(
    task: Callable[..., Task], share: Share, docker_engine: str, python_image: str, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "set").write_text("images\n")
    one = task(1, "cat /data/set; id -u; echo $HOME; pwd")
    one.environment["DOCKER_HOST"] = docker_engine
    one.start("--image", python_image, "--mount", f"{tmp_path / 'data'}:/data")
    assert one.wait() == (0, "succeeded: the run is complete\n")
    lines = share.text("node-0/rank-0.log").splitlines()
    assert lines == ["images", str(os.getuid()), "/tmp", str(one.out(0) / "work")]


@pytest.mark.docker
def test_killed_host_process_takes_the_container_along(
    task: Callable[..., Task], docker_client: Any, docker_engine: str, python_image: str
) -> None:
    one = task(1, FOREVER)
    one.environment["DOCKER_HOST"] = docker_engine
    one.start("--image", python_image).wait_for_work()
    name = f"{one.run_id}-a1-node-0"
    assert [found.name for found in docker_client.containers.list(filters={"name": name})] == [name]
    os.kill(int(one.text(0, "start.lock")), signal.SIGKILL)
    wait_until(lambda: not docker_client.containers.list(filters={"name": name}), "the end of the container")
