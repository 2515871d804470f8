"""Real Horovod on several nodes: the rendezvous, the variables, and a death in the middle."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
from collections.abc import Callable

import pytest

from tests.node.conftest import NodePrograms, wait_until

pytestmark = [
    pytest.mark.horovod,
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="Horovod is not installed"),
]
Make = Callable[..., NodePrograms]

# Twice, because a training program may shut Horovod down and initialise it again.
ALLREDUCE = """
import horovod.tensorflow as hvd
import tensorflow as tf
for _ in range(2):
    hvd.init()
    total = hvd.allreduce(tf.constant([float(hvd.rank())]), op=hvd.Sum)
    print("place", hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
    print("total", float(total[0]))
    hvd.shutdown()
"""

FOR_EVER = """
import os
import horovod.tensorflow as hvd
import tensorflow as tf
hvd.init()
print(f"pid {os.getpid()}.")
while True:
    hvd.allreduce(tf.ones([1000]), name="gradient")
"""


def test_four_ranks_on_two_nodes_exchange_values(node_programs: Make) -> None:
    run = node_programs(2, f"exec python -c '{ALLREDUCE}'", launcher="horovod", ranks_per_node=2)
    assert run.start().wait() == {0: 0, 1: 0}
    for rank in range(4):
        lines = run.text(rank // 2, f"rank-{rank}.log").splitlines()
        assert lines.count(f"place {rank} 4 {rank % 2} 2 {rank // 2} 2") == 2
        assert lines.count("total 6.0") == 2


def test_killed_rank_is_the_cause(node_programs: Make) -> None:
    run = node_programs(2, f"exec python -c '{FOR_EVER}'", launcher="horovod", ranks_per_node=2).start()
    pids = [
        wait_until(lambda rank=rank: re.search(r"pid (\d+)\.", run.text(rank // 2, f"rank-{rank}.log")), f"rank {rank}")
        for rank in range(4)
    ]
    os.kill(int(pids[3][1]), signal.SIGKILL)
    assert run.wait() == {0: 1, 1: 1}
    assert run.processes() == []
    for node in range(2):
        assert (run.status(node)["failed_rank"], run.status(node)["exit_code"]) == (3, 137)
