from __future__ import annotations

from collections.abc import Callable

from tests.rehearsal.aws.conftest import Account, Clients, make_environment, make_queue, new_name, refusal, slow


def status(account: Account, name: str) -> list[str]:
    """The states of an environment and of its queue, as far as they are there."""
    environments = account.batch.describe_compute_environments(computeEnvironments=[name])["computeEnvironments"]
    queues = account.batch.describe_job_queues(jobQueues=[name])["jobQueues"]
    return [f"{item['state']} {item['status']}" for item in (*environments, *queues)]


def test_what_is_made_can_be_used_after_a_while(account: Account) -> None:
    name = new_name()
    make_environment(account.client, name)
    assert status(account, name) == ["ENABLED CREATING"]
    assert "not VALID yet" in refusal(lambda: make_queue(account.batch, name))[1]
    account.clock.advance(200)
    make_queue(account.batch, name)
    assert status(account, name) == ["ENABLED VALID", "ENABLED CREATING"]
    job = account.define("true")
    assert "not valid and enabled" in refusal(lambda: account.submit(name, job))[1]
    account.clock.advance(200)
    assert status(account, name) == ["ENABLED VALID", "ENABLED VALID"]
    account.submit(name, job)


def test_deleting_needs_the_service_s_order(account: Account) -> None:
    batch, name = account.batch, account.environment()

    def delete_queue() -> None:
        batch.delete_job_queue(jobQueue=name)

    def delete_environment() -> None:
        batch.delete_compute_environment(computeEnvironment=name)

    busy = ("ClientException", "Cannot delete, resource is being modified")
    assert "DISABLED" in refusal(delete_queue)[1]
    assert "DISABLED" in refusal(delete_environment)[1]
    batch.update_compute_environment(computeEnvironment=name, state="DISABLED")
    assert refusal(delete_environment) == busy
    account.clock.advance(200)
    assert refusal(delete_environment)[1] == "Cannot delete, found existing JobQueue relationship"
    batch.update_job_queue(jobQueue=name, state="DISABLED")
    assert refusal(delete_queue) == busy
    account.clock.advance(200)
    delete_queue()
    assert status(account, name) == ["DISABLED VALID", "DISABLED DELETING"]
    assert refusal(delete_environment)[1] == "Cannot delete, found existing JobQueue relationship"
    account.clock.advance(200)
    delete_environment()
    account.clock.advance(200)
    assert status(account, name) == []
    delete_environment()  # what is not there can be deleted


def test_moto_alone_is_done_at_once_and_deletes_in_any_order(moto: Clients) -> None:
    batch, name = moto("batch"), new_name()
    make_environment(moto, name, instanceTypes=["g4dn.xlarge"])
    make_queue(batch, name)
    (made,) = batch.describe_compute_environments(computeEnvironments=[name])["computeEnvironments"]
    assert (made["status"], made["state"]) == ("VALID", "ENABLED")
    batch.delete_compute_environment(computeEnvironment=name)
    assert batch.describe_job_queues(jobQueues=[name])["jobQueues"] != []


def test_a_deleted_queue_ends_its_jobs(account: Account) -> None:
    queue = account.environment(maxvCpus=1)  # where none can run
    job = account.submit(queue, account.define("true"))
    account.clock.advance(200)
    account.batch.update_job_queue(jobQueue=queue, state="DISABLED")
    account.clock.advance(200)
    account.batch.delete_job_queue(jobQueue=queue)
    assert account.job(job)["status"] == "FAILED"


def test_an_environment_can_turn_out_to_be_invalid(make_account: Callable[..., Account]) -> None:
    account = make_account(slow(environment_error="CLIENT_ERROR - not authorized"))
    name = new_name()
    make_environment(account.client, name)
    account.clock.advance(200)
    (made,) = account.batch.describe_compute_environments()["computeEnvironments"]
    assert (made["status"], made["statusReason"]) == ("INVALID", "CLIENT_ERROR - not authorized")


def test_what_was_just_made_may_not_be_seen_yet(make_account: Callable[..., Account]) -> None:
    account = make_account(slow(stale_reads_s=500))
    name = new_name()
    make_environment(account.client, name)
    assert status(account, name) == []
    account.clock.advance(600)
    assert status(account, name) == ["ENABLED VALID"]


def test_a_queue_remembers_how_long_its_jobs_may_wait(account: Account) -> None:
    name = account.environment()
    limit = {"reason": "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY", "state": "RUNNABLE", "action": "CANCEL"}
    limits = [{**limit, "maxTimeSeconds": 600}]
    other = new_name()
    order = [{"order": 1, "computeEnvironment": name}]
    account.batch.create_job_queue(
        jobQueueName=other, priority=1, computeEnvironmentOrder=order, jobStateTimeLimitActions=limits
    )
    (made,) = account.batch.describe_job_queues(jobQueues=[other])["jobQueues"]
    assert made["jobStateTimeLimitActions"] == limits
