"""Tasks on several nodes at once, with the traps that cost others days."""

from __future__ import annotations

import pytest

from .conftest import shell, until
from .test_tasks import storage


def several(nodes, coordination, **more):
    return {
        "multiInstanceSettings": {"numberOfInstances": nodes, "coordinationCommandLine": shell(coordination), **more}
    }


@pytest.fixture
def ready(account):
    account.pool(nodes=2, enableInterNodeCommunication=True)
    account.job()
    return account


def test_every_node_coordinates_then_the_primary_alone_runs_the_task(ready, tmp_path):
    coordination = (
        f"env | grep AZ_BATCH | sort > {tmp_path}/$CLOUDBENCH_NODE_ADDRESS; pwd >> {tmp_path}/$CLOUDBENCH_NODE_ADDRESS"
    )
    command = f"ls {tmp_path} | grep -c 127; pwd; echo $AZ_BATCH_IS_CURRENT_NODE_MASTER; exit 4"
    with storage({"/c/common": b"common"}) as (url, _):
        files = [{"httpUrl": f"{url}/c/common?sig=yes", "filePath": "in/common.txt"}]
        ready.task(command, **several(2, coordination, commonResourceFiles=files))
        task = ready.task_ends()
    assert task.execution_info.exit_code == 4
    assert ready.text("stdout.txt").split()[0] == "2"
    seen = {}
    for path in tmp_path.glob("127.*"):
        *lines, wd = path.read_text().splitlines()
        seen[path.name] = dict(line.split("=", 1) for line in lines) | {"wd": wd}
    addresses = {node.id: node.ip_address for node in ready.client.list_nodes("pool")}
    assert seen.keys() == set(addresses.values())
    hosts = next(iter(seen.values()))["AZ_BATCH_HOST_LIST"].split(",")
    assert set(hosts) == seen.keys()
    for address, variables in seen.items():
        primary = address == hosts[0]
        top = f"{variables['AZ_BATCH_NODE_ROOT_DIR']}/workitems/job/job-1/task"
        assert variables["AZ_BATCH_IS_CURRENT_NODE_MASTER"] == str(primary).lower()
        assert variables["AZ_BATCH_MASTER_NODE"].split(":")[0] == hosts[0]
        assert variables["AZ_BATCH_NODE_LIST"] == ";".join(hosts)
        assert variables["AZ_BATCH_TASK_SHARED_DIR"] == top
        assert variables["wd"] == (f"{top}/wd" if primary else f"{top}/1/wd")
    assert addresses[task.node_info.node_id] == hosts[0]
    (subtask,) = ready.client.list_subtasks("job", "task")
    assert (subtask.id, subtask.state, addresses[subtask.node_info.node_id]) == (1, "completed", hosts[1])
    for node in ready.client.list_nodes("pool"):
        said = ready.client.download_node_file("pool", node.id, "workitems/job/job-1/task/in/common.txt")
        assert b"".join(said) == b"common"


def test_what_coordination_left_in_the_background_runs_until_the_primary_ends(ready, tmp_path):
    beat = f"while :; do date > {tmp_path}/$CLOUDBENCH_NODE_ADDRESS; sleep 0.05; done"
    wait = f"while test $(ls {tmp_path} | grep -c 127) -lt 2; do sleep 0.05; done"
    ready.task(wait, **several(2, f"({beat}) > /dev/null 2>&1 &"))
    assert ready.task_ends().execution_info.exit_code == 0
    for path in tmp_path.glob("127.*"):
        path.unlink()
    ready.task("sleep 0.3", "after")
    ready.task_ends("after")
    assert not list(tmp_path.glob("127.*"))


def test_a_coordination_command_that_fails_anywhere_fails_the_task(ready):
    ready.task("echo never", **several(2, "test $AZ_BATCH_IS_CURRENT_NODE_MASTER = true || exit 9"))
    task = ready.task_ends()
    assert (task.execution_info.exit_code, task.execution_info.result) == (9, "failure")
    assert "never" not in ready.text("stdout.txt")


def test_a_coordination_command_that_does_not_return_holds_the_task_up(ready):
    ready.task("echo never", **several(2, "echo coordinating; sleep 600"))
    ready.says("coordinating")
    (subtask,) = ready.client.list_subtasks("job", "task")
    assert subtask.state == "running"
    ready.client.terminate_task("job", "task")
    assert ready.task_ends().execution_info.failure_info.code == "TaskEnded"
    assert "never" not in ready.text("stdout.txt")


def test_output_files_are_the_primarys_alone(ready):
    with storage() as (url, kept):
        output = {
            "filePattern": "*.log",
            "destination": {"container": {"containerUrl": f"{url}/c?sig=yes"}},
            "uploadOptions": {"uploadCondition": "taskcompletion"},
        }
        ready.task("true", outputFiles=[output], **several(2, "echo mine > $CLOUDBENCH_NODE_ADDRESS.log"))
        task = ready.task_ends()
    primary = ready.client.get_node("pool", task.node_info.node_id).ip_address
    assert kept == {f"/c/{primary}.log": b"mine\n"}


def test_it_waits_until_enough_nodes_are_idle_at_once(ready):
    ready.task("sleep 600", "busy")
    until(lambda: ready.client.get_task("job", "busy").state == "running")
    ready.task("true", **several(2, "true"))
    assert ready.client.get_task("job", "task").state == "active"
    ready.client.terminate_task("job", "busy")
    assert ready.task_ends().execution_info.exit_code == 0


@pytest.mark.parametrize(
    "pool",
    [
        {},
        {"enableInterNodeCommunication": False},
        {"enableInterNodeCommunication": True, "taskSlotsPerNode": 2},
    ],
)
def test_without_inter_node_communication_or_with_several_slots_it_never_starts_and_nothing_says_so(account, pool):
    account.pool(nodes=2, **pool)
    account.job()
    account.task("true", **several(2, "true"))
    account.clock.advance(7 * 24 * 3600)
    task = account.client.get_task("job", "task")
    assert (task.state, task.execution_info.failure_info) == ("active", None)
    assert account.states() == ["idle"] * 2
