"""One node's part in a run, seen from outside: real programs, real sockets, real deaths."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.node.conftest import WAIT_FOR_FACTS, NodePrograms, told_by_process, wait_until

Make = Callable[..., NodePrograms]
# A rank that starts something beside itself, also outside its process group, and works for ever.
STUBBORN = "trap '' TERM; sleep 300 & setsid sleep 300 & echo at work; while :; do sleep 0.1; done"


def test_every_rank_writes_its_own_log_and_all_nodes_succeed(node_programs: Make) -> None:
    run = node_programs(
        2, 'echo "rank $CLOUDBENCH_RANK of $CLOUDBENCH_WORLD_SIZE"', launcher="tf-config", ranks_per_node=2
    )
    assert run.start().wait() == {0: 0, 1: 0}
    for rank in range(4):
        assert run.text(rank // 2, f"rank-{rank}.log") == f"rank {rank} of 4\n"
    for node in range(2):
        status = run.status(node)
        assert (status["state"], status["outcome"], status["exit_code"]) == ("ended", "succeeded", 0)
        assert [(rank["rank"], rank["exit_code"]) for rank in status["ranks"]] == [(2 * node, 0), (2 * node + 1, 0)]
        stamps = status["stamps"]
        assert stamps["start"] <= stamps["peers_found"] <= stamps["end"]
        assert stamps["first_step"] is stamps["last_step"] is None


def test_single_runs_on_node_0_alone(node_programs: Make) -> None:
    run = node_programs(2, "echo here", launcher="single", ranks_per_node=4)
    assert run.start().wait() == {0: 0, 1: 0}
    assert run.text(0, "rank-0.log") == "here\n"
    assert not list(run.out(1).glob("rank-*.log"))


def test_training_steps_are_stamped(node_programs: Make) -> None:
    step = r"printf '[1,0]<stdout>:%s\timages/sec: 10.0\n'"
    wait = """until grep -q '"first_step": [0-9]' $CLOUDBENCH_LOG_FOLDER/status.json; do sleep 0.05; done"""
    run = node_programs(1, f"{step} 1; {wait}; {step} 2; echo total images/sec: 10")
    assert run.start().wait() == {0: 0}
    stamps = run.status(0)["stamps"]
    assert stamps["start"] <= stamps["first_step"] < stamps["last_step"] <= stamps["end"]


def test_preparation_runs_once_a_node_before_any_rank(node_programs: Make) -> None:
    run = node_programs(
        2,
        "cat ../made-0 ../made-1",
        launcher="tf-config",
        ranks_per_node=2,
        prepare="sleep 0.$CLOUDBENCH_NODE_INDEX; mkdir -p $SHARED; echo x >> $SHARED/made-$CLOUDBENCH_NODE_INDEX",
    )
    shared = run.folder / "shared"
    job = json.loads((run.folder / "job.json").read_text())
    job.update(environment={"SHARED": str(shared)}, command="cat $SHARED/made-0 $SHARED/made-1")
    (run.folder / "job.json").write_text(json.dumps(job))
    assert run.start().wait() == {0: 0, 1: 0}
    assert [run.text(rank // 2, f"rank-{rank}.log") for rank in range(4)] == ["x\nx\n"] * 4


def test_failed_preparation_starts_no_rank_anywhere(node_programs: Make) -> None:
    run = node_programs(2, "echo never", prepare='echo no disk; exit "$((4 * CLOUDBENCH_NODE_INDEX))"')
    assert run.start().wait() == {0: 1, 1: 1}
    for node in range(2):
        status = run.status(node)
        assert (status["outcome"], status["exit_code"], status["last_lines"]) == ("failed", 4, ["no disk"])
        assert "the preparation on node 1" in status["reason"]
        assert not list(run.out(node).glob("rank-*.log"))


def test_dead_rank_ends_all_and_is_named_on_every_node(node_programs: Make) -> None:
    command = 'if [ "$CLOUDBENCH_RANK" = 3 ]; then seq 30; exit 7; fi; ' + STUBBORN
    run = node_programs(2, command, launcher="tf-config", ranks_per_node=2)
    assert run.start().wait() == {0: 1, 1: 1}
    assert run.processes() == []
    for node in range(2):
        status = run.status(node)
        assert (status["outcome"], status["exit_code"], status["failed_rank"]) == ("failed", 7, 3)
        assert status["reason"].startswith("rank 3 on node 1 (")
        assert status["last_lines"] == [str(number) for number in range(11, 31)]
    assert [rank["exit_code"] for rank in run.status(1)["ranks"]] == [None, 7]


# Rank 3 waits to be killed; the others notice that it is gone and fail, as collectives do.
CONNECTED = """
import os, socket, sys, time
rank, port = int(os.environ["CLOUDBENCH_RANK"]), int(os.environ["MASTER_PORT"])
def listen():
    while True:
        try:
            return socket.create_server(("127.0.1.1", port))
        except OSError:
            time.sleep(0.01)  # node 0 has not let it go yet
if rank == 3:
    server = listen()
    peers = [server.accept()[0] for _ in range(3)]
    print(f"connected {os.getpid()}", flush=True)
    server.accept()
while True:
    try:
        sock = socket.create_connection(("127.0.1.1", port))
        break
    except OSError:
        continue
sock.recv(1)
sys.exit("connection reset by peer")
"""


def test_killed_rank_is_the_cause_and_not_those_that_fail_in_consequence(node_programs: Make) -> None:
    run = node_programs(2, f"exec python -c '{CONNECTED}'", launcher="tf-config", ranks_per_node=2).start()
    run.wait_for_text(1, "rank-3.log", "\n")
    os.kill(int(run.text(1, "rank-3.log").split()[1]), signal.SIGKILL)
    assert run.wait() == {0: 1, 1: 1}
    for node in range(2):
        status = run.status(node)
        assert (status["failed_rank"], status["exit_code"]) == (3, 137)
        assert "was killed by signal 9 (SIGKILL)" in status["reason"]
    assert run.status(1)["ranks"][1]["signal"] == 9


def test_rank_that_is_killed_while_the_others_stop_is_the_cause(node_programs: Make) -> None:
    command = (
        "ready=$CLOUDBENCH_LOG_FOLDER/ready; "
        "[ $CLOUDBENCH_RANK = 0 ] && { until [ -e $ready ]; do sleep 0.01; done; exit 1; }; "
        "trap 'kill -9 $$' TERM; touch $ready; while sleep 0.01; do :; done"
    )
    run = node_programs(1, command, launcher="tf-config", ranks_per_node=2, grace_s=60.0)
    assert run.start().wait() == {0: 1}
    assert [(rank["exit_code"], rank["signal"]) for rank in run.status(0)["ranks"]] == [(1, None), (None, 9)]
    assert (run.status(0)["failed_rank"], run.status(0)["exit_code"]) == (1, 137)


def test_ranks_that_are_found_dead_together_are_all_looked_at(node_programs: Make) -> None:
    run = node_programs(1, "echo $$; while sleep 0.01; do :; done", launcher="tf-config", ranks_per_node=2).start()
    for rank in range(2):
        run.wait_for_text(0, f"rank-{rank}.log", "\n")
    node = psutil.Process(run.programs[0].pid)
    node.suspend()
    wait_until(lambda: node.status() == psutil.STATUS_STOPPED, "the pause of the node program")
    for rank, number in ((0, signal.SIGABRT), (1, signal.SIGKILL)):
        process = psutil.Process(int(run.text(0, f"rank-{rank}.log")))
        process.send_signal(number)
        wait_until(lambda process=process: process.status() == psutil.STATUS_ZOMBIE, "the end of the rank")
    node.resume()
    assert run.wait() == {0: 1}
    assert [rank["signal"] for rank in run.status(0)["ranks"]] == [6, 9]
    assert (run.status(0)["failed_rank"], run.status(0)["exit_code"]) == (1, 137), "what came from outside is the cause"


def test_output_of_a_killed_rank_is_complete(node_programs: Make) -> None:
    run = node_programs(1, "seq 200000; echo last; kill -9 $$").start()
    assert run.wait() == {0: 1}
    lines = run.text(0, "rank-0.log").split()
    assert lines == [*map(str, range(1, 200001)), "last"]
    assert run.status(0)["last_lines"][-1] == "last"


def test_what_a_rank_leaves_behind_dies_with_it(node_programs: Make) -> None:
    run = node_programs(1, "sleep 300 & setsid sleep 300 & echo done")
    assert run.start().wait() == {0: 0}
    assert run.processes() == []


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_node_program_takes_its_ranks_along_and_ends_the_others(node_programs: Make, victim: int) -> None:
    run = node_programs(3, STUBBORN, launcher="tf-config", ranks_per_node=2).start()
    for rank in range(6):
        run.wait_for_text(rank // 2, f"rank-{rank}.log", "at work")
    run.programs[victim].kill()
    codes = run.wait()
    assert codes == {node: -signal.SIGKILL if node == victim else 1 for node in range(3)}
    wait_until(lambda: run.processes() == [], "the end of every rank")
    for node in {0, 1, 2} - {victim}:
        assert run.status(node)["outcome"] == "infrastructure"
        assert run.status(node)["reason"].startswith(f"node {victim} (")
    with (run.out(victim) / "node.lock").open() as lock:
        wait_until(lambda: can_lock(lock.fileno()), "the lock of the dead node")


def can_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_node_lock_is_held_while_the_node_program_lives(node_programs: Make) -> None:
    run = node_programs(1, STUBBORN).start()
    run.wait_for_text(0, "rank-0.log", "at work")
    with (run.out(0) / "node.lock").open() as lock:
        assert not can_lock(lock.fileno())


def test_second_node_program_in_the_same_folder_is_refused(node_programs: Make) -> None:
    run = node_programs(1, STUBBORN).start()
    run.wait_for_text(0, "rank-0.log", "at work")
    first = run.programs[0]
    second = run.start(0).programs[0]
    assert second.wait() == 2
    assert second.stderr is not None
    assert b"another node program works in" in second.stderr.read()
    second.stderr.close()
    assert first.poll() is None
    run.programs[0] = first


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_one_node_cancels_the_run_everywhere(node_programs: Make, number: signal.Signals) -> None:
    run = node_programs(2, STUBBORN).start()
    for node in range(2):
        run.wait_for_text(node, f"rank-{node}.log", "at work")
    run.programs[1].send_signal(number)
    assert run.wait() == {0: 1, 1: 1}
    assert run.processes() == []
    for node in range(2):
        assert run.status(node)["outcome"] == "cancelled"
        assert run.status(node)["reason"] == f"node 1 got {number.name}"


def test_signal_cancels_while_a_peer_is_missing(node_programs: Make) -> None:
    run = node_programs(3, "echo never", peers_timeout_s=100.0).start(0, 1)
    run.wait_for_text(0, "node.log", "connected with node 1")
    run.programs[1].terminate()
    assert run.wait() == {0: 1, 1: 1}
    assert [run.status(node)["reason"] for node in range(2)] == ["node 1 got SIGTERM"] * 2


def test_signal_cancels_during_the_preparation(node_programs: Make) -> None:
    run = node_programs(2, "echo never", prepare=STUBBORN).start()
    for node in range(2):
        run.wait_for_text(node, "prepare.log", "at work")
        run.wait_for_text(node, "status.json", '"preparing"')
    run.programs[0].terminate()
    assert run.wait() == {0: 1, 1: 1}
    assert run.processes() == []
    assert [run.status(node)["outcome"] for node in range(2)] == ["cancelled", "cancelled"]
    assert not list(run.folder.glob("node-*/rank-*.log"))


@pytest.mark.slow
def test_node_0_that_hangs_holds_nobody(node_programs: Make) -> None:
    run = node_programs(2, STUBBORN).start()
    run.wait_for_text(1, "rank-1.log", "at work")
    run.programs[0].send_signal(signal.SIGSTOP)
    run.programs[1].terminate()
    assert run.programs[1].wait(60) == 1
    assert (run.status(1)["outcome"], run.status(1)["reason"]) == ("cancelled", "node 1 got SIGTERM")
    run.programs[0].send_signal(signal.SIGCONT)
    assert run.wait() == {0: 1, 1: 1}
    assert run.status(0)["reason"] == "node 1 got SIGTERM"


def test_deadline_ends_the_run(node_programs: Make) -> None:
    run = node_programs(2, STUBBORN, deadline_s=5.0)
    assert run.start().wait() == {0: 1, 1: 1}
    assert run.processes() == []
    for node in range(2):
        status = run.status(node)
        assert (status["outcome"], status["reason"]) == ("timed-out", "the run took longer than 5 s")


def test_rank_has_its_grace_to_save_its_work(node_programs: Make) -> None:
    command = "trap 'sleep 0.5; echo saved; exit 0' TERM; echo at work; while :; do sleep 0.1; done"
    run = node_programs(1, command, grace_s=30.0).start()
    run.wait_for_text(0, "rank-0.log", "at work")
    run.programs[0].terminate()
    assert run.wait() == {0: 1}
    assert run.text(0, "rank-0.log").endswith("\nsaved\n")
    assert run.status(0)["ranks"][0]["exit_code"] == 0


def test_client_that_is_gone_ends_the_run(node_programs: Make, tmp_path: Path) -> None:
    lifeline = tmp_path / "lifeline"
    with lifeline.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        run = node_programs(2, STUBBORN)
        run.environment["CLOUDBENCH_LIFELINE"] = str(lifeline)
        run.start()
        for node in range(2):
            run.wait_for_text(node, f"rank-{node}.log", "at work")
        time.sleep(1.0)  # several looks at the lock
        assert [run.status(node)["outcome"] for node in range(2)] == [None, None]
    assert run.wait() == {0: 1, 1: 1}
    assert run.processes() == []
    for node in range(2):
        assert run.status(node)["outcome"] == "cancelled"
        assert "the client that started this run is gone" in run.status(node)["reason"]


def test_missing_nodes_are_named(node_programs: Make) -> None:
    run = node_programs(4, "echo never", peers_timeout_s=10.0).start(0, 2)
    assert run.wait() == {0: 1, 2: 1}
    for node in (0, 2):
        status = run.status(node)
        assert status["outcome"] == "infrastructure"
        assert status["reason"] == "nodes 1, 3 did not arrive within 10 s"


def test_missing_node_0_is_named(node_programs: Make) -> None:
    run = node_programs(2, "echo never", peers_timeout_s=1.0).start(1)
    assert run.wait() == {1: 1}
    assert run.status(1)["outcome"] == "infrastructure"
    assert f"node 0 (127.0.1.1:{run.main_port}) did not answer node 1 within 1 s" in run.status(1)["reason"]


def test_peer_with_a_wrong_secret_is_refused_and_disturbs_nobody(node_programs: Make) -> None:
    run = node_programs(2, "echo trained").start(0)
    wait_until(lambda: run.status(0), "node 0")
    impostor = NodePrograms(run._pyz, run.folder / "impostor", 2, "echo never", peers_timeout_s=3.0, run=run.run_id)
    impostor.main_port = run.main_port
    impostor.start(1)
    assert impostor.wait() == {1: 1}
    assert "wrong secret" in impostor.status(1)["reason"]
    assert run.start(1).wait() == {0: 0, 1: 0}
    assert "refused the connection with 127.0." in run.text(0, "node.log")
    impostor.close()


def test_strangers_on_the_port_disturb_nobody(node_programs: Make) -> None:
    run = node_programs(2, "echo trained").start(0)
    wait_until(lambda: run.status(0), "node 0")
    noise = [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 1000, b"\0\0\0\x02{}", b"\0\0\0\x04null"]
    for data in noise:
        with socket.create_connection(("127.0.1.1", run.main_port)) as sock:
            sock.sendall(data)
    assert run.start(1).wait() == {0: 0, 1: 0}


def test_secret_appears_nowhere(node_programs: Make) -> None:
    run = node_programs(2, "env; " + STUBBORN).start()
    for node in range(2):
        run.wait_for_text(node, f"rank-{node}.log", "at work")
    seen = b"".join(told_by_process(pid) for pid in run.processes())
    seen += b"".join(told_by_process(program.pid) for program in run.programs.values())
    run.programs[0].terminate()
    run.wait()
    seen += b"".join(path.read_bytes() for node in range(2) for path in run.out(node).iterdir())
    assert b"at work" in seen
    assert run.secret.encode() not in seen


def test_parameter_servers_end_when_all_workers_are_done(node_programs: Make) -> None:
    command = (
        'echo "$CLOUDBENCH_JOB_NAME $CLOUDBENCH_TASK_INDEX"; [ $CLOUDBENCH_JOB_NAME = worker ] || exec sleep 300; '
        "until [ -s $CLOUDBENCH_LOG_FOLDER/ps-$CLOUDBENCH_NODE_INDEX.log ]; do sleep 0.05; done"
    )
    run = node_programs(2, command, launcher="parameter-server", ranks_per_node=2)
    assert run.start().wait() == {0: 0, 1: 0}
    assert run.processes() == []
    assert [run.text(node, f"ps-{node}.log") for node in range(2)] == ["ps 0\n", "ps 1\n"]
    assert [run.text(rank // 2, f"rank-{rank}.log") for rank in range(4)] == [f"worker {k}\n" for k in range(4)]
    assert [rank["rank"] for rank in run.status(1)["ranks"]] == [2, 3]


def test_dead_parameter_server_fails_the_run(node_programs: Make) -> None:
    command = '[ "$CLOUDBENCH_JOB_NAME" = worker ] && sleep 300; exit 9'
    run = node_programs(1, command, launcher="parameter-server")
    assert run.start().wait() == {0: 1}
    assert (run.status(0)["exit_code"], run.status(0)["failed_rank"]) == (9, None)
    assert "the parameter server on node 0" in run.status(0)["reason"]


def test_node_0_whose_port_is_taken_says_so(node_programs: Make) -> None:
    run = node_programs(2, "echo never")
    with socket.create_server(("127.0.1.1", run.main_port)):
        assert run.start(0).wait() == {0: 2}
    assert run.status(0)["outcome"] == "infrastructure"
    assert f"cannot listen on 127.0.1.1:{run.main_port}" in run.status(0)["reason"]


def test_too_few_gpus_are_no_slow_run(node_programs: Make) -> None:
    run = node_programs(1, "echo never", gpus_per_node=2)
    run.environment["CLOUDBENCH_GPUS"] = "0"
    assert run.start().wait() == {0: 1}
    assert run.status(0)["outcome"] == "infrastructure"
    assert run.status(0)["reason"].endswith("has 1 GPUs, the job needs 2 on each node")


NVIDIA_SMI = """\
#!/bin/sh
case "$1" in
  --query-gpu=index) printf '0\\n1\\n2\\n3\\n';;
  *) echo "no devices were found" >&2; exit 6;;
esac
"""


def test_ranks_share_the_gpus_that_are_found(node_programs: Make, tmp_path: Path) -> None:
    """With a stand-in for nvidia-smi that lists four GPUs."""
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    command = f"echo $CUDA_VISIBLE_DEVICES; {WAIT_FOR_FACTS}"
    run = node_programs(1, command, launcher="tf-config", ranks_per_node=2, gpus_per_node=4)
    run.environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    del run.environment["CLOUDBENCH_GPUS"]
    assert run.start().wait() == {0: 0}
    assert [run.text(0, f"rank-{rank}.log") for rank in range(2)] == ["0,1\n", "2,3\n"]
    facts = json.loads(run.text(0, "facts.json"))
    assert facts["missing"]["gpus"] == "nvidia-smi ended with 6: no devices were found"


def test_facts_come_home(node_programs: Make) -> None:
    run = node_programs(1, WAIT_FOR_FACTS)
    assert run.start().wait() == {0: 0}
    facts = json.loads(run.text(0, "facts.json"))
    assert facts["hostname"] == socket.gethostname()


@pytest.fixture
def small_control_group() -> Path:
    """A memory control group of 192 MiB (version 1), where this user may make one."""
    folder = Path("/sys/fs/cgroup/memory") / f"cloudbench-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(192 << 20))
    except OSError as error:
        pytest.skip(f"no memory control group can be made here: {error}")
    yield folder
    wait_until(lambda: not (folder / "cgroup.procs").read_text(), "an empty control group")
    folder.rmdir()


def test_kill_for_lack_of_memory_is_told(node_programs: Make, small_control_group: Path) -> None:
    run = node_programs(1, 'exec python -c "x = bytearray(1 << 30)"')
    before = Path("/proc/self/cgroup").read_text()
    (small_control_group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        run.start()
    finally:
        path = next(line.split(":", 2)[2] for line in before.splitlines() if ":memory:" in line)
        (small_control_group.parent / path.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))
    assert run.wait() == {0: 1}
    assert "memory ran out: the kernel killed 1 process(es)" in run.status(0)["reason"]
