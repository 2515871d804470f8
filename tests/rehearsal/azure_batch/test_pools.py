"""Pools and their nodes: allocated in time, resized, mounted, started, taken away later."""

from __future__ import annotations

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

from .conftest import pool_body, refusal, shell, until


def test_nodes_come_in_time_and_go_through_their_states(account):
    account.client.create_pool(pool_body("pool", 2))
    pool = account.client.get_pool("pool")
    assert (pool.state, pool.allocation_state, pool.current_dedicated_nodes) == ("active", "resizing", 0)
    seen = []
    for seconds in (300, 100, 100):
        account.clock.advance(seconds)
        seen.append(account.states())
    assert seen == [["creating"] * 2, ["starting"] * 2, ["idle"] * 2]
    pool = account.client.get_pool("pool")
    assert (pool.allocation_state, pool.current_dedicated_nodes, pool.resize_errors) == ("steady", 2, None)


def test_a_clock_that_is_turned_far_plays_all_between_at_its_own_time(account):
    account.client.create_pool(pool_body("pool", 1))
    made_at = account.client.get_pool("pool").creation_time
    account.settle()
    (node,) = account.client.list_nodes("pool")
    assert [(moment - made_at).total_seconds() for moment in (node.allocation_time, node.state_transition_time)] == [
        pytest.approx(300, abs=0.1),
        pytest.approx(500, abs=0.1),
    ]


def test_ids_are_the_same_in_any_case(account):
    account.client.create_pool(pool_body("Pool", 0))
    assert account.client.get_pool("pOOL").id == "Pool"
    with pytest.raises(ResourceExistsError) as refused:
        account.client.create_pool(pool_body("pool", 0))
    assert refused.value.model.code == "PoolExists"


def test_a_pool_grows_and_shrinks(account):
    account.pool(nodes=1)
    account.begin("resize_pool", "pool", {"targetDedicatedNodes": 3, "targetLowPriorityNodes": 1})
    assert refusal(lambda: account.begin("resize_pool", "pool", {"targetDedicatedNodes": 9})) == (
        409,
        "PoolBeingResized",
    )
    account.settle()
    assert account.states() == ["idle"] * 4
    account.begin("resize_pool", "pool", {"targetDedicatedNodes": 0})
    account.clock.advance(300)
    assert sorted(account.states()) == ["idle", *["leavingpool"] * 3]
    account.settle()
    assert account.states() == ["idle"]
    pool = account.client.get_pool("pool")
    assert (pool.current_dedicated_nodes, pool.current_low_priority_nodes) == (0, 1)


def test_a_resize_can_be_stopped(account):
    account.client.create_pool(pool_body("pool", 5))
    account.begin("stop_pool_resize", "pool")
    account.settle()
    pool = account.client.get_pool("pool")
    assert (pool.allocation_state, pool.current_dedicated_nodes) == ("steady", 0)
    assert [error.code for error in pool.resize_errors] == ["ResizeStopped"]


def test_single_nodes_are_taken_out(account):
    account.pool(nodes=2)
    first, second = (node.id for node in account.client.list_nodes("pool"))
    account.begin("remove_nodes", "pool", {"nodeList": [first]})
    account.settle()
    assert [node.id for node in account.client.list_nodes("pool")] == [second]
    assert account.client.get_pool("pool").target_dedicated_nodes == 1


@pytest.mark.parametrize(
    ("how", "state", "code"),
    [("requeue", "active", None), ("terminate", "completed", "TaskEnded"), ("taskcompletion", "completed", None)],
)
def test_a_node_that_leaves_ends_its_task_as_it_is_told(account, tmp_path, how, state, code):
    account.pool()
    account.job()
    account.task(f"while ! test -e {tmp_path}/enough; do sleep 0.05; done")
    until(lambda: account.client.get_task("job", "task").state == "running")
    account.begin("resize_pool", "pool", {"targetDedicatedNodes": 0, "nodeDeallocationOption": how})
    account.settle()
    if how == "taskcompletion":
        assert account.states() == ["running"]
        (tmp_path / "enough").touch()
    until(lambda: account.client.get_task("job", "task").state == state)
    info = account.client.get_task("job", "task").execution_info.failure_info
    assert (info and info.code) == code
    account.settle()
    until(lambda: account.states() == [])


def test_a_pool_is_deleted_later_and_its_id_is_taken_until_then(account):
    account.pool()
    account.begin("delete_pool", "pool")
    assert account.client.get_pool("pool").state == "deleting"
    assert refusal(lambda: account.client.create_pool(pool_body("POOL", 1))) == (409, "PoolBeingDeleted")
    assert refusal(lambda: account.begin("delete_pool", "pool")) == (409, "PoolBeingDeleted")
    account.settle()
    with pytest.raises(ResourceNotFoundError) as gone:
        account.client.get_pool("pool")
    assert gone.value.model.code == "PoolNotFound"
    account.client.create_pool(pool_body("pool", 0))


def test_the_sdk_waits_for_the_end_of_a_deletion(account):
    account.pool()
    poller = account.client.begin_delete_pool("pool", polling_interval=0.01)
    account.settle()
    poller.wait()
    assert poller.status() == "Succeeded"
    assert list(account.client.list_pools()) == []


def test_counts_tell_the_states_of_all_pools_at_once(account):
    account.pool("a", nodes=2)
    account.client.create_pool(pool_body("b", 0, targetLowPriorityNodes=3))
    account.clock.advance(300)
    a, b = account.client.list_pool_node_counts()
    assert (a.pool_id, a.dedicated.idle, a.dedicated.total, a.low_priority.total) == ("a", 2, 2, 0)
    assert (b.pool_id, b.low_priority.creating, b.low_priority.total, b.dedicated.total) == ("b", 3, 3, 0)
    (only,) = account.client.list_pool_node_counts(filter="poolId eq 'B'")
    assert only.pool_id == "b"


def test_a_start_task_runs_before_a_node_is_idle(account):
    start = {"commandLine": shell("echo from $AZ_BATCH_POOL_ID; echo warned >&2"), "waitForSuccess": True}
    account.pool(startTask=start)
    until(lambda: account.states() == ["idle"])
    (node,) = account.client.list_nodes("pool")
    assert (node.start_task_info.exit_code, node.start_task_info.result) == (0, "success")
    said = b"".join(account.client.download_node_file("pool", node.id, "startup/stdout.txt"))
    assert said == b"from pool\n"
    names = [file.name for file in account.client.list_node_files("pool", node.id, recursive=True)]
    assert {"startup/stderr.txt", "workitems", "shared"} <= set(names)


def test_a_start_task_that_fails_is_tried_again_and_then_makes_the_node_useless(account):
    start = {"commandLine": shell("echo tried; exit 7"), "waitForSuccess": True, "maxTaskRetryCount": 2}
    account.pool(startTask=start)
    until(lambda: account.states() == ["starttaskfailed"])
    (node,) = account.client.list_nodes("pool")
    assert (node.start_task_info.exit_code, node.start_task_info.failure_info.code) == (7, "FailureExitCode")
    assert b"".join(account.client.download_node_file("pool", node.id, "startup/stdout.txt")) == b"tried\n" * 3


def test_a_share_is_mounted_where_tasks_find_it(make_account, tmp_path):
    folder = tmp_path / "share"
    folder.mkdir()
    asked = []

    def shares(mount):
        asked.append(mount)
        return folder

    account = make_account(shares=shares)
    account.pool(mountConfiguration=[FILE_SHARE])
    account.job()
    account.task("echo text > $AZ_BATCH_NODE_MOUNTS_DIR/cloudbench/from-a-node")
    assert account.task_ends().execution_info.exit_code == 0
    assert (folder / "from-a-node").read_text() == "text\n"
    assert asked == [FILE_SHARE]


def test_a_mount_that_fails_makes_the_node_unusable(make_account):
    def shares(mount):
        raise PermissionError("mount error(13): Permission denied")

    account = make_account(shares=shares)
    account.pool(mountConfiguration=[FILE_SHARE])
    (node,) = account.client.list_nodes("pool")
    assert (node.state, node.errors[0].code) == ("unusable", "MountConfigurationError")
    assert "Permission denied" in node.errors[0].error_details[0].value


def test_keys_and_passwords_are_never_told_again(make_account, tmp_path):
    account = make_account(shares=lambda mount: tmp_path)
    registry = {"registryServer": "registry.example", "username": "u", "password": "unmistakable"}
    containers = {"type": "dockerCompatible", "containerImageNames": ["image"], "containerRegistries": [registry]}
    machine = {**pool_body("", 0)["virtualMachineConfiguration"], "containerConfiguration": containers}
    account.pool(mountConfiguration=[FILE_SHARE], virtualMachineConfiguration=machine)
    (node,) = account.client.list_nodes("pool")
    assert account.stand_in.prefetched == [(node.id, "image")]
    told = str(account.client.get_pool("pool")) + str(list(account.client.list_pools()))
    assert "registry.example" in told
    assert "unmistakable" not in told
    assert "c2VjcmV0" not in told


def test_a_node_that_is_rebooted_starts_anew(account):
    account.pool()
    (node,) = account.client.list_nodes("pool")
    account.begin("reboot_node", "pool", node.id, options={"nodeRebootOption": "requeue"})
    assert account.states() == ["rebooting"]
    account.settle()
    (again,) = account.client.list_nodes("pool")
    assert (again.id, again.state) == (node.id, "idle")
    assert again.last_boot_time > node.last_boot_time


def test_a_reboot_ends_what_runs_as_it_is_told(make_account):
    account = make_account(check=False)
    account.pool()
    account.job()
    account.task("sleep 600")
    until(lambda: account.client.get_task("job", "task").state == "running")
    (node,) = account.client.list_nodes("pool")
    options = [{"nodeRebootOption": how} for how in ("taskcompletion", "terminate")]
    assert refusal(lambda: account.begin("reboot_node", "pool", node.id, options=options[0])) == (501, "NotImplemented")
    account.begin("reboot_node", "pool", node.id, options=options[1])
    assert account.task_ends().execution_info.failure_info.code == "TaskEnded"


def test_nothing_is_scheduled_on_a_node_that_is_disabled(account):
    account.pool()
    (node,) = account.client.list_nodes("pool")
    account.client.disable_node_scheduling("pool", node.id, {"nodeDisableSchedulingOption": "requeue"})
    account.job()
    account.task("true")
    assert account.client.get_task("job", "task").state == "active"
    account.client.enable_node_scheduling("pool", node.id)
    assert account.task_ends().execution_info.exit_code == 0


def test_a_pool_is_changed_by_patch_and_by_replacing_its_properties(account):
    account.client.create_pool(pool_body("pool", 0, metadata=[{"name": "owner", "value": "me"}]))
    first = account.client.get_pool("pool")
    account.client.update_pool("pool", {"metadata": [{"name": "lease", "value": "1"}]})
    second = account.client.get_pool("pool")
    assert ([item.name for item in second.metadata], second.etag != first.etag) == (["lease"], True)
    with pytest.raises(HttpResponseError) as refused:
        account.client.update_pool(
            "pool", {"metadata": []}, etag=first.etag, match_condition=MatchConditions.IfNotModified
        )
    assert refused.value.status_code == 412
    account.client.replace_pool_properties("pool", {"applicationPackageReferences": [], "metadata": []})
    assert account.client.get_pool("pool").metadata == []


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"id": "no id"}, 400, "InvalidPropertyValue"),
        ({"id": "a" * 65}, 400, "InvalidPropertyValue"),
        ({"vmSise": "NC6"}, 400, "InvalidRequestBody"),
        ({"vmSize": None}, 400, "MissingRequiredProperty"),
        ({"targetDedicatedNodes": "1"}, 400, "InvalidPropertyValue"),
        ({"targetDedicatedNodes": True}, 400, "InvalidPropertyValue"),
        ({"resizeTimeout": "PT4M"}, 400, "InvalidPropertyValue"),
        ({"resizeTimeout": "fifteen minutes"}, 400, "InvalidPropertyValue"),
        ({"virtualMachineConfiguration": None}, 400, "MissingRequiredProperty"),
        ({"taskSchedulingPolicy": {"nodeFillType": "tidy"}}, 400, "InvalidPropertyValue"),
        ({"mountConfiguration": [{}] * 11}, 400, "InvalidPropertyValue"),
        ({"startTask": {"commandLine": "true", "color": "red"}}, 400, "InvalidRequestBody"),
        ({"enableAutoScale": True}, 501, "NotImplemented"),
        ({"applicationPackageReferences": [{"applicationId": "app"}]}, 409, "InvalidApplicationPackageReferences"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(make_account, change, status, code):
    account = make_account(check=False)
    assert refusal(lambda: account.client.create_pool({**pool_body("pool", 1), **change})) == (status, code)
    assert list(account.client.list_pools()) == []


FILE_SHARE = {
    "azureFileShareConfiguration": {
        "accountName": "storage",
        "accountKey": "c2VjcmV0",
        "azureFileUrl": "https://storage.file.core.windows.net/cloudbench",
        "relativeMountPath": "cloudbench",
    }
}
