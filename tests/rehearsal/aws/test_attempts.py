from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudbench.errors import InfrastructureError
from cloudbench.rehearsal.machines import Execution
from tests.rehearsal.aws.conftest import (
    START_S,
    Account,
    Clients,
    definition,
    make_environment,
    make_queue,
    new_name,
    refusal,
    slow,
    until,
)

ONE = "AWS_BATCH_JOB_"


def test_all_nodes_run_at_once_and_know_their_places(account: Account) -> None:
    # Node 0 ends only when node 1 runs at the same time, and reaches it at the address that it was told.
    serve = "import socket; s = socket.create_server(('{}', 0)); print('port', s.getsockname()[1], flush=True)"
    main = f"python3 -uc \"{serve.format('$CLOUDBENCH_NODE_ADDRESS')}; s.accept(); print('met')\""
    command = f'env | grep {ONE} | sort; if [ "$AWS_BATCH_JOB_NODE_INDEX" = 0 ]; then {main}; else sleep 600; fi'
    queue = account.environment()
    job = account.submit(queue, account.define(command, nodes=2))
    account.clock.advance(START_S)
    until(lambda: any(line.startswith("port ") for line in account.log(f"{job}#0")))
    until(lambda: len(account.log(f"{job}#1")) >= 6)
    told = dict(line.split("=", 1) for line in account.log(f"{job}#1"))
    port = next(line.split()[1] for line in account.log(f"{job}#0") if line.startswith("port "))
    address = told.pop("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS")
    assert told == {
        "AWS_BATCH_JOB_ID": f"{job}#1",
        "AWS_BATCH_JOB_ATTEMPT": "1",
        "AWS_BATCH_JOB_NODE_INDEX": "1",
        "AWS_BATCH_JOB_MAIN_NODE_INDEX": "0",
        "AWS_BATCH_JOB_NUM_NODES": "2",
    }
    own = [line for line in account.log(f"{job}#0") if line.startswith(ONE)]
    assert len(own) == 5
    assert not any("MAIN_NODE_PRIVATE" in line for line in own)
    socket.create_connection((address, int(port))).close()
    assert account.ends(job)["status"] == "SUCCEEDED"
    assert "met" in account.log(f"{job}#0")


def test_the_main_node_decides_and_the_others_are_told_to_stop_before_they_are_killed(
    account: Account, tmp_path: Path
) -> None:
    command = (
        f'if [ "$AWS_BATCH_JOB_NODE_INDEX" = 0 ]; then until [ -e {tmp_path}/ready ]; do sleep 0.05; done; exit 7; fi; '
        f"trap 'echo told to stop' TERM; touch {tmp_path}/ready; while :; do sleep 0.05; done"
    )
    job = account.submit(account.environment(), account.define(command, nodes=2))
    account.clock.advance(START_S)
    account.says(f"{job}#1", "told to stop")
    assert account.job(f"{job}#0")["status"] == "FAILED"
    assert account.job(f"{job}#1")["status"] == "RUNNING"
    assert account.job(job)["status"] == "RUNNING"
    account.clock.advance(31)
    ended = account.ends(job)
    assert ended["status"] == "FAILED"
    assert ended["attempts"][0]["container"]["exitCode"] == 7
    assert account.job(f"{job}#1")["container"]["exitCode"] == 137


def test_what_does_not_die_is_no_fault_of_the_stand_in(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(execution: Execution, grace_s: float) -> None:
        really_end(execution, grace_s)
        raise InfrastructureError("processes of the rehearsal do not die")

    really_end = Execution.end
    monkeypatch.setattr(Execution, "end", end)
    job = account.submit(account.environment(), account.define("trap '' TERM; echo deaf; while :; do sleep 0.05; done"))
    account.clock.advance(START_S)
    account.says(job, "deaf")
    account.batch.terminate_job(jobId=job, reason="enough")
    account.clock.advance(31)
    assert account.ends(job)["container"]["exitCode"] == 137
    assert account.stand_in.faults == []


def test_moto_alone_knows_no_child_jobs_and_runs_what_asks_for_any_amount(moto: Clients) -> None:
    batch, name = moto("batch"), new_name()
    make_environment(moto, name, instanceTypes=["g4dn.xlarge"])
    make_queue(batch, name)
    too_much = [{"type": "VCPU", "value": "4"}, {"type": "MEMORY", "value": "99999999"}]
    batch.register_job_definition(jobDefinitionName=name, **definition("true", nodes=2, needs=too_much))
    # It waits for a job that there is not: moto would start containers of an engine.
    waits = [{"jobId": "none"}]
    job = batch.submit_job(jobName=name, jobQueue=name, jobDefinition=name, dependsOn=waits)["jobId"]
    assert batch.describe_jobs(jobs=[f"{job}#0"])["jobs"] == []
    assert batch.list_jobs(multiNodeJobId=job)["jobSummaryList"] == []
    batch.terminate_job(jobId=job, reason="enough")
    until(lambda: batch.describe_jobs(jobs=[job])["jobs"][0]["status"] == "FAILED")


def test_a_log_can_be_read_while_the_container_runs_and_has_its_last_line_when_it_has_ended(account: Account) -> None:
    job = account.submit(account.environment(), account.define("echo first; read line; printf last; exec cat"))
    account.clock.advance(START_S)
    account.ends(job)
    assert account.log(job) == ["first", "last"]
    running = account.submit(account.environment(), account.define("echo first; sleep 600"))
    account.clock.advance(START_S)
    account.says(running, "first")
    assert account.job(running)["status"] == "RUNNING"
    account.batch.terminate_job(jobId=running, reason="enough")
    assert account.ends(running)["statusReason"] == "enough"


def test_a_container_has_its_variables_and_folders_and_no_value_is_in_the_process_list(account: Account) -> None:
    command = "echo $WHAT > $PLACE/file; cat $PLACE/file; cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' ' > list; "
    command += 'grep -c "so""secret" list'
    mounts = {
        "environment": [{"name": "WHAT", "value": "sosecret"}, {"name": "PLACE", "value": "/mnt/place"}],
        "volumes": [{"name": "place", "host": {"sourcePath": "/mnt/disk"}}],
        "mountPoints": [{"sourceVolume": "place", "containerPath": "/mnt/place", "readOnly": False}],
        "linuxParameters": {"sharedMemorySize": 64, "initProcessEnabled": True},
    }
    job = account.submit(account.environment(), account.define(command, **mounts))
    account.clock.advance(START_S)
    account.ends(job)
    assert account.log(job) == ["sosecret", "0"]


def test_a_file_system_is_shared_by_nodes_and_one_that_is_missing_fails_the_job(
    make_account: Callable[..., Account], tmp_path: Path
) -> None:
    (tmp_path / "fs-1234").mkdir()
    account = make_account(file_systems=tmp_path)
    queue = account.environment()

    def volumes(name: str) -> dict[str, object]:
        return {
            "volumes": [{"name": "data", "efsVolumeConfiguration": {"fileSystemId": name}}],
            "mountPoints": [{"sourceVolume": "data", "containerPath": "/data"}],
        }

    write = (
        "echo $AWS_BATCH_JOB_NODE_INDEX > $DATA/$AWS_BATCH_JOB_NODE_INDEX; until [ -e $DATA/1 ]; do sleep 0.05; done"
    )
    environment = [{"name": "DATA", "value": "/data"}]
    job = account.submit(queue, account.define(write, nodes=2, environment=environment, **volumes("fs-1234")))
    account.clock.advance(START_S)
    assert account.ends(job)["status"] == "SUCCEEDED"
    assert sorted(path.name for path in (tmp_path / "fs-1234").iterdir()) == ["0", "1"]
    other = account.submit(queue, account.define("true", **volumes("fs-5678")))
    account.clock.advance(START_S)
    reason = account.ends(other)["attempts"][0]["container"]["reason"]
    assert reason == "CannotStartContainerError: failed to mount fs-5678: the file system does not exist"


def test_a_job_that_takes_too_long_is_stopped_and_not_tried_again(account: Account) -> None:
    more = {"timeout": {"attemptDurationSeconds": 60}, "retryStrategy": {"attempts": 3}}
    job = account.submit(account.environment(), account.define("exec sleep 600"), **more)
    account.clock.advance(START_S)
    until(lambda: account.job(job)["status"] == "RUNNING")
    account.clock.advance(61)
    ended = account.ends(job)
    assert (ended["status"], ended["statusReason"]) == ("FAILED", "Job attempt duration exceeded timeout")
    assert len(ended["attempts"]) == 1
    definition_name = account.define("true")
    short = {"timeout": {"attemptDurationSeconds": 59}}
    code, message = refusal(lambda: account.submit(account.environment(), definition_name, **short))
    assert (code, "at least 60" in message) == ("ClientException", True)


def test_a_reclaimed_spot_instance_is_told_and_the_job_runs_again_on_another(
    make_account: Callable[..., Account],
) -> None:
    account = make_account(slow(interrupt_after_s=1000))
    queue = account.environment(type="SPOT")
    conditions = [
        {"onStatusReason": "Host EC2*", "action": "RETRY"},
        {"onReason": "*", "action": "EXIT"},
    ]
    retry = {"retryStrategy": {"attempts": 3, "evaluateOnExit": conditions}}
    command = 'echo attempt $AWS_BATCH_JOB_ATTEMPT; [ "$AWS_BATCH_JOB_ATTEMPT" = 2 ] || exec sleep 600'
    job = account.submit(queue, account.define(command), **retry)
    account.clock.advance(START_S)
    account.says(job, "attempt 1")
    account.clock.advance(1000)
    until(lambda: len(account.job(job)["attempts"]) == 1)
    first = account.job(job)["attempts"][0]
    lost = account.instances()[0]
    assert first["statusReason"] == f"Host EC2 (instance {lost['InstanceId']}) terminated."
    assert "exitCode" not in first["container"]
    assert lost["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    account.clock.advance(START_S)
    assert account.ends(job)["status"] == "SUCCEEDED"
    assert account.log(job) == ["attempt 2"]
    assert len(account.instances()) == 2


def test_what_fails_by_itself_is_tried_again_only_where_no_condition_says_otherwise(account: Account) -> None:
    queue, failing = account.environment(), account.define("exit 3")
    spot_only = [{"onStatusReason": "Host EC2*", "action": "RETRY"}, {"onReason": "*", "action": "EXIT"}]
    once = account.submit(queue, failing, retryStrategy={"attempts": 2, "evaluateOnExit": spot_only})
    twice = account.submit(queue, failing, retryStrategy={"attempts": 2})
    by_code = [{"onExitCode": "3", "action": "EXIT"}]
    exits = account.submit(queue, failing, retryStrategy={"attempts": 2, "evaluateOnExit": by_code})
    account.clock.advance(START_S)
    until(lambda: len(account.job(twice)["attempts"]) == 1)
    account.clock.advance(START_S)
    assert [len(account.ends(job)["attempts"]) for job in (once, twice, exits)] == [1, 2, 1]
