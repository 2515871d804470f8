from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloudbench.rehearsal.aws import Scenario
from cloudbench.rehearsal.aws import placement as words
from tests.rehearsal.aws.conftest import START_S, Account, Clients, new_name, refusal, slow, until


def needs(*, vcpus: int = 4, memory_mib: int = 1024, gpus: int = 1) -> list[dict[str, str]]:
    values = {"VCPU": vcpus, "MEMORY": memory_mib, "GPU": gpus}
    return [{"type": kind, "value": str(value)} for kind, value in values.items()]


def test_a_job_goes_through_the_service_s_states(account: Account, tmp_path: Path) -> None:
    definition = account.define(f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; exit 3")
    job = account.submit(account.environment(), definition, tags={"owner": "me"})
    seen = [account.job(job)["status"]]
    for _ in range(6):
        account.clock.advance(100)
        seen.append(account.job(job)["status"])
    assert list(dict.fromkeys(seen)) == ["SUBMITTED", "RUNNABLE", "STARTING", "RUNNING"]
    (tmp_path / "go").touch()
    ended = account.ends(job)
    assert (ended["status"], ended["container"]["exitCode"]) == ("FAILED", 3)
    assert ended["statusReason"] == "Essential container in task exited"
    assert ended["tags"] == {"owner": "me"}
    assert ended["container"]["instanceType"] == "p2.xlarge"


def test_no_instance_is_left_soon_after_a_job(make_account: Callable[..., Account]) -> None:
    account = make_account()
    job = account.submit(account.environment(), account.define("true", nodes=2))
    account.clock.advance(START_S)
    account.ends(job)
    account.clock.advance(401)
    until(lambda: account.states() == ["terminated", "terminated"])


@pytest.mark.parametrize(
    ("wanted", "resources", "nodes", "reason"),
    [
        (needs(memory_mib=int(61 * 1024 * 0.97)), {}, 1, words.TOO_MUCH),
        (needs(gpus=2), {}, 1, words.TOO_MUCH),
        (needs(vcpus=5), {}, 1, words.TOO_MUCH),
        (needs(), {"maxvCpus": 4}, 2, words.TOO_LARGE),
        (needs(), {"type": "SPOT"}, 2, words.UNKNOWN),
    ],
)
def test_a_job_that_cannot_be_placed_stays_runnable_and_says_why(
    account: Account, wanted: Any, resources: dict[str, Any], nodes: int, reason: str
) -> None:
    queue = account.environment(**resources)
    job = account.submit(queue, account.define("true", nodes=nodes, needs=wanted))
    account.clock.advance(200)
    assert "statusReason" not in account.job(job)
    account.clock.advance(3600)
    found = account.job(job)
    assert (found["status"], found["statusReason"]) == ("RUNNABLE", reason)
    account.batch.cancel_job(jobId=job, reason="too long")
    found = account.job(job)
    assert (found["status"], found["statusReason"], found["isCancelled"]) == ("FAILED", "too long", True)


def test_a_job_that_leaves_the_system_its_memory_is_placed(account: Account) -> None:
    wanted = needs(memory_mib=int(61 * 1024 * 0.96))
    job = account.submit(account.environment(), account.define("true", needs=wanted))
    account.clock.advance(START_S)
    assert account.ends(job)["status"] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        (slow(no_capacity=True), f"{words.NO_CAPACITY} [p2.xlarge]"),
        (slow(vcpu_limit=3), words.UNKNOWN),
    ],
)
def test_want_of_capacity_and_quota_leave_a_job_runnable(
    make_account: Callable[..., Account], scenario: Scenario, reason: str
) -> None:
    account = make_account(scenario)
    job = account.submit(account.environment(), account.define("true"))
    account.clock.advance(1000)
    found = account.job(job)
    assert (found["status"], found["statusReason"]) == ("RUNNABLE", reason)


def test_a_queue_gives_jobs_up_that_wait_too_long_for_the_reason_it_names(
    make_account: Callable[..., Account],
) -> None:
    account = make_account(slow(no_capacity=True))
    account.environment()
    (environment,) = account.batch.describe_compute_environments()["computeEnvironments"]
    name, reason = new_name(), "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"
    limit = {"reason": reason, "state": "RUNNABLE", "action": "CANCEL", "maxTimeSeconds": 600}
    order = [{"order": 1, "computeEnvironment": environment["computeEnvironmentName"]}]
    account.batch.create_job_queue(
        jobQueueName=name, priority=1, computeEnvironmentOrder=order, jobStateTimeLimitActions=[limit]
    )
    account.clock.advance(200)
    job = account.submit(name, account.define("true"))
    account.clock.advance(1100)
    assert account.job(job)["status"] == "RUNNABLE"
    account.clock.advance(200)
    found = account.job(job)
    assert found["status"] == "FAILED"
    assert found["statusReason"] == f"Canceled by JobStateTimeLimit action due to reason: {reason}"


def test_jobs_wait_for_room_in_their_environment(account: Account) -> None:
    queue = account.environment(maxvCpus=4)
    definition = account.define("sleep 0.3")
    first, second = (account.submit(queue, definition) for _ in range(2))
    account.clock.advance(START_S)
    assert account.job(second)["status"] == "RUNNABLE"
    account.ends(first)
    account.leaves(first)
    account.clock.advance(START_S)
    assert account.ends(second)["status"] == "SUCCEEDED"


def test_a_job_begins_after_those_that_it_depends_on(account: Account) -> None:
    queue = account.environment()
    good, bad = account.submit(queue, account.define("true")), account.submit(queue, account.define("false"))
    after_good, after_bad = (
        account.submit(queue, account.define("true"), dependsOn=[{"jobId": job}]) for job in (good, bad)
    )
    account.clock.advance(200)
    assert account.job(after_good)["status"] == "PENDING"
    account.clock.advance(START_S)
    account.ends(good)
    account.ends(bad)
    account.clock.advance(START_S)
    assert account.ends(after_good)["status"] == "SUCCEEDED"
    assert account.job(after_bad)["statusReason"] == "Dependent Job failed"


def test_cancel_leaves_a_running_job_alone_and_terminate_does_not(account: Account) -> None:
    job = account.submit(account.environment(), account.define("echo runs; exec sleep 600"))
    account.clock.advance(START_S)
    account.says(job, "runs")
    account.batch.cancel_job(jobId=job, reason="no")
    assert account.job(job)["status"] == "RUNNING"
    account.batch.terminate_job(jobId=job, reason="yes")
    ended = account.ends(job)
    assert (ended["status"], ended["statusReason"], ended["isTerminated"]) == ("FAILED", "yes", True)


def test_lists_show_one_state_or_what_a_filter_finds_page_by_page(account: Account) -> None:
    queue = account.environment(maxvCpus=1)
    names = [new_name() for _ in range(3)]
    definition = account.define("true")
    jobs = [account.submit(queue, definition, jobName=name) for name in names]
    account.clock.advance(200)
    assert account.batch.list_jobs(jobQueue=queue)["jobSummaryList"] == []  # those that run, where none is named
    listed = account.batch.list_jobs(jobQueue=queue, jobStatus="RUNNABLE")["jobSummaryList"]
    assert [item["jobId"] for item in listed] == jobs
    by_name = [{"name": "JOB_NAME", "values": [names[1].upper()]}]
    listed = account.batch.list_jobs(jobQueue=queue, filters=by_name)["jobSummaryList"]
    assert [item["jobId"] for item in listed] == [jobs[1]]
    pages = account.batch.get_paginator("list_jobs").paginate(
        jobQueue=queue, jobStatus="RUNNABLE", PaginationConfig={"PageSize": 2}
    )
    assert [len(page["jobSummaryList"]) for page in pages] == [2, 1]


def test_child_jobs_are_listed_and_described(account: Account) -> None:
    job = account.submit(account.environment(), account.define("true", nodes=2))
    account.clock.advance(START_S)
    account.ends(job)
    listed = account.batch.list_jobs(multiNodeJobId=job, jobStatus="SUCCEEDED")["jobSummaryList"]
    assert [item["jobId"] for item in listed if item["nodeProperties"]["isMainNode"]] == [f"{job}#0"]
    first, second = (account.job(f"{job}#{index}") for index in (0, 1))
    assert first["nodeDetails"] == {"nodeIndex": 0, "isMainNode": True}
    assert second["nodeDetails"] == {"nodeIndex": 1, "isMainNode": False}
    assert first["container"]["logStreamName"] != second["container"]["logStreamName"]


def test_no_more_than_a_hundred_jobs_are_described_at_once(account: Account) -> None:
    assert account.batch.describe_jobs(jobs=["none"] * 100)["jobs"] == []
    code, message = refusal(lambda: account.batch.describe_jobs(jobs=["none"] * 101))
    assert (code, "more than 100" in message) == ("ClientException", True)


def test_moto_alone_describes_any_number_and_lists_every_state(moto: Clients) -> None:
    assert moto("batch").describe_jobs(jobs=["none"] * 101)["jobs"] == []


def test_what_cannot_be_submitted_is_refused(account: Account) -> None:
    queue, definition = account.environment(), account.define("true")
    account.batch.deregister_job_definition(jobDefinition=f"{definition}:1")
    assert "not active" in refusal(lambda: account.submit(queue, definition))[1]
    assert "not valid and enabled" in refusal(lambda: account.submit("none", definition))[1]
    array = {"arrayProperties": {"size": 2}}
    assert "no array jobs" in refusal(lambda: account.submit(queue, account.define("true"), **array))[1]


def test_a_job_just_submitted_may_not_be_seen_yet(make_account: Callable[..., Account]) -> None:
    account = make_account(slow(stale_reads_s=500))
    queue = account.environment()
    account.clock.advance(600)
    job = account.submit(queue, account.define("true"))
    assert account.batch.describe_jobs(jobs=[job])["jobs"] == []
    assert account.batch.list_jobs(jobQueue=queue, jobStatus="SUBMITTED")["jobSummaryList"] == []
    account.clock.advance(600)
    until(lambda: account.batch.describe_jobs(jobs=[job])["jobs"] != [])


def test_another_queue_of_the_environment_shares_its_room(account: Account) -> None:
    name = account.environment(maxvCpus=4)
    other = new_name()
    order = [{"order": 1, "computeEnvironment": name}]
    account.batch.create_job_queue(jobQueueName=other, priority=1, computeEnvironmentOrder=order)
    account.clock.advance(200)
    first = account.submit(name, account.define("exec sleep 600"))
    second = account.submit(other, account.define("true"))
    account.clock.advance(START_S)
    assert account.job(second)["status"] == "RUNNABLE"
    account.batch.terminate_job(jobId=first, reason="enough")
    account.ends(first)
    account.leaves(first)
    account.clock.advance(START_S)
    assert account.ends(second)["status"] == "SUCCEEDED"
