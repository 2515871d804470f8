"""Gradients are really exchanged: the weights say so.

Two devices that start from the same weights, see two given batches in each step and exchange what they learn have one
right answer, whichever way they exchange it; one device alone, or two that do not exchange, get another one.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.program import Outcome, train, train_together, train_with_horovod

pytestmark = [pytest.mark.tensorflow, pytest.mark.xdist_group("updates")]  # what is compared with is trained once


@pytest.fixture(scope="module")
def two_devices() -> str:
    """The weights that two devices of one process learn together."""
    return train("--variable_update=replicated", "--num_gpus=2").digest


@pytest.fixture(scope="module")
def one_device() -> Outcome:
    return train("--variable_update=replicated")


def test_the_same_training_twice_gives_the_same_weights(one_device: Outcome) -> None:
    assert train("--variable_update=parameter_server").digest == one_device.digest


def test_another_seed_gives_other_weights(one_device: Outcome) -> None:
    assert train("--tf_random_seed=1235").digest != one_device.digest


def test_a_second_device_changes_what_is_learned(one_device: Outcome, two_devices: str) -> None:
    assert two_devices != one_device.digest


@pytest.mark.parametrize(
    "flags",
    [
        ("--variable_update=replicated", "--all_reduce_spec=ring"),
        ("--variable_update=parameter_server",),
        ("--variable_update=parameter_server", "--local_parameter_device=cpu"),
        ("--variable_update=collective_all_reduce",),
    ],
)
def test_two_devices_of_one_process_learn_the_same_weights(flags: tuple[str, ...], two_devices: str) -> None:
    done = train("--num_gpus=2", *flags)
    assert done.digest == two_devices
    assert "Batch size:  8 global\n             4 per device" in done.output


@pytest.mark.parametrize(("update", "servers"), [("collective_all_reduce", 0), ("parameter_server", 1)])
def test_two_workers_learn_the_same_weights(update: str, servers: int, two_devices: str) -> None:
    workers, parameter_servers = train_together(update, servers=servers)
    assert [worker.digest for worker in workers] == [two_devices] * 2
    assert [server.exit_code for server in parameter_servers] == [0] * servers
    assert_job_of_two(workers)


@pytest.mark.horovod
def test_two_horovod_ranks_learn_the_same_weights(two_devices: str) -> None:
    pytest.importorskip("horovod", reason="Horovod is not installed: scripts/build-horovod builds it")
    ranks = train_with_horovod(2)
    assert [rank.digest for rank in ranks] == [two_devices] * 2
    assert_job_of_two(ranks)
    assert "Devices:     ['horovod/cpu:0', 'horovod/cpu:1']" in ranks[0].output


@pytest.mark.slow
def test_two_workers_of_two_devices_and_two_servers_agree() -> None:
    workers, servers = train_together("parameter_server", "--num_gpus=2", servers=2)
    collective, _ = train_together("collective_all_reduce", "--num_gpus=2")
    digests = {outcome.digest for outcome in [*workers, *collective]}
    assert len({worker.digest for worker in workers}) == 1
    assert len({worker.digest for worker in collective}) == 1
    assert len(digests) <= 2  # four numbers may be added in another order, which rounds differently
    assert [server.exit_code for server in servers] == [0, 0]
    assert "Batch size:  16 global" in workers[0].output


@pytest.mark.parametrize("optimizer", ["momentum", "rmsprop", "adam"])
def test_every_optimizer_keeps_the_devices_alike(optimizer: str, two_devices: str) -> None:
    done = train("--variable_update=replicated", "--num_gpus=2", f"--optimizer={optimizer}", "--learning_rate=0.001")
    assert done.exit_code == 0, done.errors  # it is 1 where the towers' weights differ
    assert done.digest != two_devices


def test_every_worker_has_tokens_of_its_own() -> None:
    import tensorflow as tf

    from cloudbench.workloads.flags import parse
    from cloudbench.workloads.parameter_server import ParameterServer

    def queues(rank: int, kind: str) -> list[str]:
        """Those that this worker's step puts something into, or takes something from."""
        flags = parse(["--job_name=worker", f"--task_index={rank}", "--worker_hosts=a:1,b:1,c:1", "--ps_hosts=d:1"])
        update = ParameterServer(flags, "cpu")
        with tf.Graph().as_default() as graph:
            towers = update.towers()
            weight = towers[0].weight("weight", [1])
            update.apply(towers, [[tf.ones_like(weight)]], lambda: tf.compat.v1.train.GradientDescentOptimizer(1))
        found = [operation for operation in graph.get_operations() if operation.type == kind]
        return [operation.inputs[0].op.get_attr("shared_name").decode() for operation in found]

    taken = [queues(rank, "QueueDequeueV2") for rank in range(3)]
    assert [len(each) for each in taken] == [1, 1, 1]
    assert sorted(queues(0, "QueueEnqueueV2")) == sorted({each[0] for each in taken})


def assert_job_of_two(outcomes: list[Outcome]) -> None:
    """Each process printed the total of the job, and made its own images."""
    first, second = outcomes
    assert "Batch size:  8 global\n             4 per device" in first.output
    for outcome in outcomes:
        assert outcome.total == pytest.approx(2 * outcome.own_speed, abs=0.11)  # as exact as they are printed
    assert first.losses[0] != second.losses[0]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.integers(1, 3000))
def test_packs_hold_every_gradient_once_from_last_to_first(sizes: list[int], limit: int) -> None:
    from cloudbench.workloads.updates import pack_by_size

    packs = pack_by_size(sizes, limit)
    assert [index for pack in packs for index in pack] == list(reversed(range(len(sizes))))
    for pack in packs[:-1]:
        assert sum(sizes[index] for index in pack) >= limit
        assert sum(sizes[index] for index in pack[:-1]) < limit
