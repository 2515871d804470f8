"""Failures on purpose, each by its name, as the real SDK meets them."""

from __future__ import annotations

import msgspec
import pytest

from cloudbench.errors import SpecError, UsageError
from cloudbench.rehearsal.azure_batch import SCENARIOS, Scenario, load_scenario

from .conftest import SLOW, auto_pool, pool_body, refusal, until
from .test_multi_instance import several


def codes(pool):
    return [error.code for error in pool.resize_errors or []]


@pytest.fixture
def named(make_account):
    """An account in the scenario of a name, with other values where a test gives them."""

    def make(name, **changes):
        return make_account(msgspec.structs.replace(SCENARIOS[name], **{**SLOW, **changes}))

    return make


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("quota", "AccountCoreQuotaReached"),
        ("spot-quota", "AccountSpotCoreQuotaReached"),
        ("unsupported-size", "UnsupportedVMSize"),
    ],
)
def test_a_pool_without_quota_or_with_a_size_that_there_is_not_gets_no_node_and_says_why(named, name, code):
    account = named(name)
    account.pool(nodes=2)
    pool = account.client.get_pool("pool")
    assert (pool.allocation_state, pool.current_dedicated_nodes, codes(pool)) == ("steady", 0, [code])


def test_the_quota_of_pools_refuses_a_pool_and_leaves_a_job_with_a_scheduling_error(named):
    account = named("pool-quota")
    assert refusal(lambda: account.client.create_pool(pool_body("pool", 1))) == (409, "PoolQuotaReached")
    account.client.create_job({"id": "job", "poolInfo": auto_pool(1)})
    info = account.client.get_job("job").execution_info
    assert (info.pool_id, info.scheduling_error.code) == (None, "AutoPoolCreationFailedWithQuotaReached")


def test_only_some_of_the_nodes_can_be_had(named):
    account = named("partial-allocation")
    account.pool(nodes=2)
    pool = account.client.get_pool("pool")
    assert (pool.current_dedicated_nodes, pool.target_dedicated_nodes, codes(pool)) == (1, 2, ["AllocationFailed"])
    assert account.states() == ["idle"]


def test_nodes_that_do_not_come_time_out(named):
    account = named("allocation-timeout", resize_timeout_s=None)
    account.client.create_pool(pool_body("pool", 2, resizeTimeout="PT1H"))
    account.clock.advance(1800)
    assert account.client.get_pool("pool").allocation_state == "resizing"
    account.settle()
    pool = account.client.get_pool("pool")
    assert (pool.allocation_state, codes(pool)) == ("steady", ["AllocationTimedOut"])


def test_an_error_stays_on_a_steady_pool_that_has_all_its_nodes(named):
    account = named("stale-resize-error")
    account.pool(nodes=2)
    pool = account.client.get_pool("pool")
    assert (pool.allocation_state, pool.current_dedicated_nodes, codes(pool)) == ("steady", 2, ["AllocationTimedOut"])
    assert account.states() == ["idle", "idle"]


def test_a_node_that_is_taken_back_makes_its_task_run_again_even_without_retries(named):
    account = named("preemption", preempt_after_s=1000.0, capacity_returns_s=1000.0)
    account.client.create_pool(pool_body("pool", 0, targetLowPriorityNodes=1))
    account.settle()
    account.job()
    account.task("date +%N; test -e $AZ_BATCH_NODE_SHARED_DIR/x || sleep 600", constraints={"maxTaskRetryCount": 0})
    until(lambda: account.client.get_task("job", "task").state == "running")
    (first,) = account.client.list_nodes("pool")
    account.clock.advance(1000)
    assert account.states() == ["preempted"]
    (counts,) = account.client.list_pool_node_counts()
    assert (counts.low_priority.preempted, counts.low_priority.total) == (1, 1)
    until(lambda: account.client.get_task("job", "task").state == "active")
    account.settle()
    until(lambda: account.client.get_task("job", "task").state == "running")
    info = account.client.get_task("job", "task").execution_info
    assert (info.retry_count, info.requeue_count) == (0, 0)
    (again,) = account.client.list_nodes("pool")
    assert (again.id, again.allocation_time > first.allocation_time) == (first.id, True)


def test_a_task_on_several_nodes_loses_them_all_when_one_is_taken_back(named, tmp_path):
    account = named("preemption", preempt_after_s=1000.0)
    account.client.create_pool(pool_body("pool", 0, targetLowPriorityNodes=2, enableInterNodeCommunication=True))
    account.settle()
    account.job()
    beat = f"while :; do date > {tmp_path}/$CLOUDBENCH_NODE_ADDRESS; sleep 0.05; done"
    account.task("sleep 600", **several(2, f"({beat}) > /dev/null 2>&1 &"))
    until(lambda: len(list(tmp_path.glob("127.*"))) == 2)
    account.clock.advance(1000)
    until(lambda: account.client.get_task("job", "task").state == "active")
    assert sorted(account.states()) == ["idle", "preempted"]
    for path in tmp_path.glob("127.*"):
        path.unlink()
    account.job("after")
    account.task("sleep 0.3", job_id="after")
    account.task_ends(job_id="after")
    assert not list(tmp_path.glob("127.*"))


def test_a_dedicated_node_is_never_taken_back(named):
    account = named("preemption")
    account.pool()
    account.job()
    account.task("sleep 600")
    until(lambda: account.client.get_task("job", "task").state == "running")
    account.clock.advance(600)
    assert account.states() == ["running"]


def test_start_tasks_fail(named):
    account = named("start-task-failure")
    account.pool(nodes=2, startTask={"commandLine": "true", "waitForSuccess": True})
    assert account.states() == ["starttaskfailed"] * 2
    for node in account.client.list_nodes("pool"):
        assert (node.start_task_info.exit_code, node.start_task_info.result) == (1, "failure")


def test_a_node_becomes_unusable(named):
    account = named("unusable-node")
    account.pool(nodes=2)
    assert sorted(account.states()) == ["idle", "unusable"]
    (unusable,) = account.client.list_nodes("pool", filter="state eq 'unusable'")
    assert [error.code for error in unusable.errors] == ["NodeUnusable"]
    assert refusal(lambda: list(account.client.list_node_files("pool", unusable.id))) == (409, "NodeStateUnusable")


def test_an_image_cannot_be_pulled(named):
    account = named("image-pull-failure")
    account.pool()
    (node,) = account.client.list_nodes("pool")
    assert (node.state, node.errors[0].code) == ("unusable", "ContainerInvalidImage")


def test_requests_are_throttled_and_the_sdk_waits_as_it_is_told(named):
    account = named("throttling", retry_after_s=0)
    for _ in range(6):
        assert list(account.client.list_pools()) == []
    assert account.stand_in.calls["GET /pools"] == 8


def test_too_many_requests_are_refused_in_the_end(named):
    account = named("throttling", throttle_every=1, retry_after_s=0)
    assert refusal(lambda: list(account.client.list_pools())) == (429, "TooManyRequests")
    assert account.stand_in.calls["GET /pools"] == 4


def test_ones_own_success_comes_back_as_409_after_a_503(named):
    account = named("503-after-success")
    body = pool_body("pool", 0, metadata=[{"name": "owner", "value": "me"}])
    assert refusal(lambda: account.client.create_pool(body)) == (409, "PoolExists")
    assert account.stand_in.calls["POST /pools"] == 2
    assert [item.value for item in account.client.get_pool("pool").metadata] == ["me"]
    account.client.create_pool(pool_body("other", 0))


def test_deletions_take_long(named):
    account = named("slow-deletes", allocation_s=1e6, delete_s=SCENARIOS["slow-deletes"].delete_s)
    account.client.create_job({"id": "job", "poolInfo": auto_pool(1)})
    account.begin("delete_job", "job")
    account.clock.advance(60)
    assert [job.state for job in account.client.list_jobs()] == ["deleting"]
    assert [pool.state for pool in account.client.list_pools()] == ["deleting"]
    account.clock.advance(60)
    assert [*account.client.list_jobs(), *account.client.list_pools()] == []


def test_a_scenario_is_read_from_a_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("allocation_s: 1\npreempt_after_s: 2.5\n")
    assert load_scenario(str(path)) == Scenario(allocation_s=1.0, preempt_after_s=2.5)
    path.write_text("allocation: 1\n")
    with pytest.raises(SpecError, match="allocation"):
        load_scenario(str(path))


def test_a_scenario_that_there_is_not_names_those_that_there_are():
    assert load_scenario("calm") == Scenario()
    with pytest.raises(UsageError, match=r"(?s)did you mean 'preemption'.*quota"):
        load_scenario("premption")


@pytest.mark.parametrize("name", sorted(SCENARIOS.keys() - {"calm"}))
def test_every_scenario_differs_from_the_calm_one(name):
    assert SCENARIOS[name] != SCENARIOS["calm"]
