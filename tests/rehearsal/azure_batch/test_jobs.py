"""Jobs: their pools, and all the ways in which they end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudbench.rehearsal.azure_batch import Scenario

from .conftest import auto_pool, refusal, shell, until


def ends(account, job_id="job"):
    """The job as it is when it has completed."""
    until(lambda: account.client.get_job(job_id).state == "completed")
    return account.client.get_job(job_id)


def test_a_job_brings_its_pool_along_and_the_service_deletes_it(account):
    account.client.create_job({"id": "job", "poolInfo": auto_pool(1, prefix="run-1")})
    pool_id = account.client.get_job("job").execution_info.pool_id
    assert pool_id.startswith("run-1_")
    assert account.client.get_pool(pool_id).target_dedicated_nodes == 1
    account.task("true")
    account.client.update_job("job", {"onAllTasksComplete": "terminatejob"})
    account.settle()
    job = ends(account)
    assert job.execution_info.termination_reason == "AllTasksCompleted"
    account.settle()
    assert list(account.client.list_pools()) == []
    assert account.client.get_job("job").execution_info.pool_id == pool_id


def test_a_pool_that_is_to_be_kept_outlives_its_job(account):
    info = auto_pool(0)
    info["autoPoolSpecification"]["keepAlive"] = True
    account.client.create_job({"id": "job", "poolInfo": info})
    account.begin("terminate_job", "job", options={"terminateReason": "mine"})
    account.settle()
    assert ends(account).execution_info.termination_reason == "mine"
    assert len(list(account.client.list_pools())) == 1


def test_an_empty_job_that_ends_with_its_tasks_ends_at_once(account):
    account.client.create_job({"id": "job", "poolInfo": auto_pool(2), "onAllTasksComplete": "terminatejob"})
    job = account.client.get_job("job")
    assert (job.state, job.execution_info.termination_reason) == ("completed", "AllTasksCompleted")
    assert refusal(lambda: account.task("true")) == (409, "JobCompleted")
    account.settle()
    assert list(account.client.list_pools()) == []


def test_a_job_that_is_told_so_after_its_tasks_ended_ends(account):
    account.pool()
    account.job()
    account.task("true")
    account.task_ends()
    assert account.client.get_job("job").state == "active"
    account.client.update_job("job", {"onAllTasksComplete": "terminatejob"})
    assert account.client.get_job("job").state == "completed"


def test_a_job_that_ends_with_its_tasks_cannot_be_told_otherwise(account):
    account.job(onAllTasksComplete="terminatejob", pool_id="none")
    account.job("other", pool_id="none")
    account.client.create_task("other", {"id": "task", "commandLine": "true"})
    account.client.update_job("other", {"onAllTasksComplete": "terminatejob"})
    again = {"onAllTasksComplete": "noaction"}
    assert refusal(lambda: account.client.update_job("other", again)) == (400, "InvalidPropertyValue")
    assert refusal(lambda: account.client.update_job("job", again)) == (409, "JobCompleted")


def test_the_wall_clock_runs_from_the_jobs_creation(make_account):
    account = make_account(Scenario(allocation_s=900.0))
    account.client.create_job(
        {"id": "job", "poolInfo": auto_pool(1), "constraints": {"maxWallClockTime": timedelta(minutes=5)}}
    )
    account.task("sleep 600")
    account.clock.advance(150)
    assert account.client.get_job("job").state == "active"
    account.clock.advance(200)
    job = ends(account)
    assert job.execution_info.termination_reason == "MaxWallClockTimeExpiry"
    assert (job.execution_info.end_time - job.creation_time).total_seconds() == pytest.approx(300, abs=0.5)
    task = account.client.get_task("job", "task")
    assert (task.state, task.execution_info.failure_info.code) == ("completed", "TaskEnded")
    account.settle()
    assert list(account.client.list_pools()) == []


def test_a_wall_clock_limit_that_is_changed_counts_from_then_on(account):
    account.job(pool_id="none", constraints={"maxWallClockTime": "PT5M"})
    account.client.update_job("job", {"constraints": {"maxWallClockTime": "PT10M"}})
    account.clock.advance(450)
    assert account.client.get_job("job").state == "active"
    account.clock.advance(200)
    assert account.client.get_job("job").state == "completed"


def test_terminating_a_job_ends_what_runs(account, tmp_path):
    account.pool()
    account.job()
    account.task(f"trap 'echo told > {tmp_path}/told; exit 0' TERM; echo ready; sleep 600 & wait")
    account.says("ready")
    account.begin("terminate_job", "job", options={"terminateReason": "enough"})
    job = ends(account)
    assert job.execution_info.termination_reason == "enough"
    task = account.client.get_task("job", "task")
    assert (task.execution_info.result, task.execution_info.failure_info.code) == ("failure", "TaskEnded")
    assert (tmp_path / "told").read_text() == "told\n"
    assert refusal(lambda: account.begin("terminate_job", "job", options={"terminateReason": "enough"})) == (
        409,
        "JobCompleted",
    )


def test_a_job_is_deleted_later_with_its_tasks_and_its_pool(account):
    account.client.create_job({"id": "job", "poolInfo": auto_pool(1)})
    account.task("sleep 600")
    account.settle()
    until(lambda: account.client.get_task("job", "task").state == "running")
    account.begin("delete_job", "job")
    assert account.client.get_job("job").state == "deleting"
    assert refusal(lambda: account.begin("delete_job", "job")) == (409, "JobBeingDeleted")
    assert refusal(lambda: account.job()) == (409, "JobBeingDeleted")
    assert refusal(lambda: account.task("true")) == (409, "JobBeingDeleted")
    account.settle()
    until(lambda: not list(account.client.list_jobs()) and not list(account.client.list_pools()))
    assert refusal(lambda: account.client.get_job("job")) == (404, "JobNotFound")


def test_a_disabled_job_begins_nothing_until_it_is_enabled(account, tmp_path):
    account.pool()
    account.job()
    account.task(f"test -e {tmp_path}/twice || {{ touch {tmp_path}/twice; sleep 600; }}")
    until((tmp_path / "twice").exists)
    account.begin("disable_job", "job", {"disableTasks": "requeue"})
    until(lambda: account.client.get_job("job").state == "disabled")
    task = account.client.get_task("job", "task")
    assert (task.state, task.execution_info.requeue_count) == ("active", 1)
    account.task("true", "other")
    account.settle()
    assert account.client.get_task("job", "other").state == "active"
    account.begin("enable_job", "job")
    assert account.task_ends().execution_info.exit_code == 0
    assert account.task_ends("other").execution_info.exit_code == 0


def test_a_task_that_fails_can_end_its_job(account):
    account.pool()
    account.job(onTaskFailure="performexitoptionsjobaction")
    conditions = {"exitCodes": [{"code": 2, "exitOptions": {"jobAction": "none"}}]}
    account.task("exit 2", "harmless", exitConditions=conditions)
    account.task_ends("harmless")
    assert account.client.get_job("job").state == "active"
    account.task("exit 1", "grave", exitConditions={"default": {"jobAction": "terminate"}})
    assert ends(account).execution_info.termination_reason == "TaskFailed"


def test_what_may_change_is_replaced_by_put(account):
    account.job(pool_id="none", priority=5, metadata=[{"name": "a", "value": "b"}])
    job = account.client.get_job("job")
    job.priority = 7
    job.metadata = None
    account.client.replace_job("job", job)
    again = account.client.get_job("job")
    assert (again.priority, again.metadata) == (7, None)
    account.client.replace_job("job", {"poolInfo": {"poolId": "none"}})
    assert account.client.get_job("job").priority == 0


def test_a_job_may_wait_for_its_pool(account):
    account.job()
    account.task("true")
    assert account.client.get_task("job", "task").state == "active"
    account.pool()
    assert account.task_ends().execution_info.exit_code == 0


def test_counts_tell_how_tasks_stand(account):
    account.pool(nodes=1, taskSlotsPerNode=4)
    account.job()
    account.task("true", "good")
    account.task("exit 1", "bad")
    account.task("sleep 600", "long", requiredSlots=3)
    account.task("sleep 600", "late", requiredSlots=4)
    account.task_ends("good")
    account.task_ends("bad")
    until(lambda: account.client.get_task("job", "long").state == "running")
    counts = account.client.get_job_task_counts("job")
    tasks, slots = counts.task_counts, counts.task_slot_counts
    assert (tasks.active, tasks.running, tasks.succeeded, tasks.failed) == (1, 1, 1, 1)
    assert (slots.active, slots.running, slots.succeeded, slots.failed) == (4, 3, 1, 1)


def test_no_more_tasks_run_at_once_than_the_job_lets(account):
    account.pool(nodes=1, taskSlotsPerNode=4)
    account.job(maxParallelTasks=1)
    account.task("sleep 600", "a")
    account.task("true", "b")
    until(lambda: account.client.get_task("job", "a").state == "running")
    account.settle()
    assert account.client.get_task("job", "b").state == "active"
    account.client.terminate_task("job", "a")
    assert account.task_ends("b").execution_info.exit_code == 0


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"id": "a/b"}, 400, "InvalidPropertyValue"),
        ({"poolInfo": {}}, 400, "InvalidPropertyValue"),
        ({"poolInfo": {"poolId": "p", **auto_pool(1)}}, 400, "InvalidPropertyValue"),
        ({"poolInfo": auto_pool(1, prefix="a" * 21)}, 400, "InvalidPropertyValue"),
        ({"poolInfo": auto_pool(1, enableAutoScale=True)}, 501, "NotImplemented"),
        ({"onAllTasksComplete": "stop"}, 400, "InvalidPropertyValue"),
        ({"constraints": {"maxWallClockTime": "1 hour"}}, 400, "InvalidPropertyValue"),
        ({"state": "active"}, 400, "InvalidRequestBody"),
        ({"jobReleaseTask": {"commandLine": "true"}}, 501, "NotImplemented"),
    ],
)
def test_a_job_that_cannot_be_is_refused(make_account, change, status, code):
    account = make_account(check=False)
    body = {"id": "job", "poolInfo": {"poolId": "pool"}, **change}
    assert refusal(lambda: account.client.create_job(body)) == (status, code)
    assert list(account.client.list_jobs()) == []
    assert list(account.client.list_pools()) == []


def test_a_task_of_a_job_that_is_not_there_is_refused(account):
    assert refusal(lambda: account.client.create_task("none", {"id": "t", "commandLine": shell("true")})) == (
        404,
        "JobNotFound",
    )
