"""Tasks: what they are given, what they leave, how they end, and what comes of it."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager

import pytest

from cloudbench.rehearsal.azure_batch import task_run
from cloudbench.rehearsal.server import HttpServer, Response

from .conftest import refusal, shell, until


@contextmanager
def storage(files=None):
    """A storage account of the simplest kind: it hands `files` out, and keeps what is put."""
    files = dict(files or {})

    def answer(request):
        if request.query.get("sig") != "yes":
            return Response(status=403)
        if request.method == "PUT":
            files[request.path] = request.body
            return Response(status=201)
        return Response(status=200, body=files[request.path]) if request.path in files else Response(status=404)

    server = HttpServer(answer)
    url = server.start()
    try:
        yield url, files
    finally:
        server.close()


@pytest.fixture
def ready(account):
    account.pool()
    account.job(commonEnvironmentSettings=[{"name": "COMMON", "value": "1"}, {"name": "BOTH", "value": "job"}])
    return account


def test_a_task_runs_in_its_folder_with_the_variables_of_the_service(ready):
    own = [{"name": "OWN", "value": "a b"}, {"name": "BOTH", "value": "task"}]
    ready.task("pwd; env | sort; echo out; echo err >&2", environmentSettings=own)
    task = ready.task_ends()
    assert (task.execution_info.exit_code, task.execution_info.result) == (0, "success")
    lines = ready.text("stdout.txt").splitlines()
    variables = dict(line.split("=", 1) for line in lines if "=" in line)
    (node,) = ready.client.list_nodes("pool")
    root = variables["AZ_BATCH_NODE_ROOT_DIR"]
    expected = {
        "AZ_BATCH_ACCOUNT_NAME": "rehearsal",
        "AZ_BATCH_ACCOUNT_URL": ready.url,
        "AZ_BATCH_POOL_ID": "pool",
        "AZ_BATCH_NODE_ID": node.id,
        "AZ_BATCH_NODE_IS_DEDICATED": "true",
        "AZ_BATCH_NODE_SHARED_DIR": f"{root}/shared",
        "AZ_BATCH_NODE_STARTUP_DIR": f"{root}/startup",
        "AZ_BATCH_NODE_MOUNTS_DIR": f"{root}/fsmounts",
        "AZ_BATCH_JOB_ID": "job",
        "AZ_BATCH_TASK_ID": "task",
        "AZ_BATCH_TASK_DIR": f"{root}/workitems/job/job-1/task",
        "AZ_BATCH_TASK_WORKING_DIR": f"{root}/workitems/job/job-1/task/wd",
        "CLOUDBENCH_NODE_ADDRESS": node.ip_address,
        "COMMON": "1",
        "OWN": "a b",
        "BOTH": "task",
    }
    assert expected.items() <= variables.items()
    assert not {name for name in variables if name.startswith("AZ_BATCH_")} & {"AZ_BATCH_HOST_LIST"}
    assert lines[0] == variables["AZ_BATCH_TASK_WORKING_DIR"]
    assert ready.text("stderr.txt") == "err\n"
    assert task.node_info.node_id == node.id
    assert task.node_info.task_root_directory == "workitems/job/job-1/task"


def test_a_command_is_run_by_no_shell(ready):
    ready.client.create_task("job", {"id": "plain", "commandLine": "echo $HOME ; echo * 'a  b'"})
    ready.task_ends("plain")
    assert ready.text("stdout.txt", "plain") == "$HOME ; echo * a  b\n"


def test_a_task_is_given_its_files(ready):
    with storage({"/c/a.txt": b"one", "/c/b.txt": b"two"}) as (url, _):
        ready.task(
            "cat a.txt folder/b.txt; test -x a.txt && echo x",
            resourceFiles=[
                {"httpUrl": f"{url}/c/a.txt?sig=yes", "filePath": "a.txt", "fileMode": "0755"},
                {"httpUrl": f"{url}/c/b.txt?sig=yes", "filePath": "folder/b.txt"},
            ],
        )
        ready.task_ends()
    assert ready.text("stdout.txt") == "onetwox\n"


@pytest.mark.parametrize(
    ("target", "code"), [("/none?sig=yes", "BlobNotFound"), ("/a?sig=no-unmistakable", "BlobAccessDenied")]
)
def test_a_task_whose_files_cannot_be_had_fails_before_it_runs(ready, target, code):
    with storage() as (url, _):
        ready.task("true", resourceFiles=[{"httpUrl": url + target, "filePath": "a"}])
        task = ready.task_ends()
    assert (task.execution_info.exit_code, task.execution_info.failure_info.code) == (None, code)
    assert "unmistakable" not in str(task.execution_info)


def test_a_server_of_files_that_is_gone_holds_up_only_its_task(ready):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        ready.task("true", resourceFiles=[{"httpUrl": f"http://127.0.0.1:{port}/a", "filePath": "a"}])
        assert ready.task_ends().execution_info.failure_info.code == "BlobDownloadMiscError"


def test_an_exit_code_is_a_failure_and_is_tried_again_as_often_as_it_may(ready):
    ready.task("echo tried; exit 3", constraints={"maxTaskRetryCount": 2})
    task = ready.task_ends()
    info = task.execution_info
    assert (info.exit_code, info.result, info.retry_count, info.failure_info.code) == (
        3,
        "failure",
        2,
        "FailureExitCode",
    )
    assert ready.text("stdout.txt") == "tried\n" * 3


def test_what_a_task_leaves_running_is_ended_with_it(ready, tmp_path):
    mark = tmp_path / "alive"
    ready.task(f"(setsid sh -c 'while :; do date > {mark}; sleep 0.05; done' &) ; while ! test -e {mark}; do :; done")
    ready.task_ends()
    mark.unlink()
    ready.task("sleep 0.3", "after")
    ready.task_ends("after")
    assert not mark.exists()


def test_a_task_runs_no_longer_than_it_may(ready):
    ready.task("echo begun; sleep 600", constraints={"maxWallClockTime": "PT1M"})
    until(lambda: ready.client.get_task("job", "task").state == "running")
    ready.clock.advance(61)
    task = ready.task_ends()
    assert (task.execution_info.exit_code, task.execution_info.failure_info.code) == (None, "TaskTimedOut")


def test_an_end_is_told_at_its_own_time_though_nobody_asked_meanwhile(ready, tmp_path):
    ready.task(f"touch {tmp_path}/begun; while ! test -e {tmp_path}/enough; do sleep 0.05; done; touch {tmp_path}/done")
    until((tmp_path / "begun").exists)
    ready.clock.advance(1000)
    (tmp_path / "enough").touch()
    until((tmp_path / "done").exists)
    info = ready.task_ends().execution_info
    assert (info.end_time - info.start_time).total_seconds() >= 1000


def test_a_task_is_ended_on_request_and_can_run_again(ready, tmp_path):
    ready.task(f"test -e {tmp_path}/again || {{ touch {tmp_path}/again; sleep 600; }}")
    assert refusal(lambda: ready.client.reactivate_task("job", "task")) == (409, "TaskNotCompleted")
    until((tmp_path / "again").exists)
    ready.client.terminate_task("job", "task")
    assert ready.task_ends().execution_info.failure_info.code == "TaskEnded"
    assert refusal(lambda: ready.client.terminate_task("job", "task")) == (409, "TaskCompleted")
    ready.client.reactivate_task("job", "task")
    assert ready.task_ends().execution_info.exit_code == 0
    assert refusal(lambda: ready.client.reactivate_task("job", "task")) == (409, "TaskSucceeded")


def test_a_task_that_does_not_heed_its_end_is_killed_when_its_time_is_over(ready, tmp_path, monkeypatch):
    monkeypatch.setattr(task_run, "_GRACE_S", 1000)
    ready.task(f"trap 'touch {tmp_path}/told' TERM; touch {tmp_path}/begun; while :; do sleep 0.05; done")
    until((tmp_path / "begun").exists)
    ready.client.terminate_task("job", "task")
    until((tmp_path / "told").exists)
    assert ready.client.get_task("job", "task").state == "running"
    ready.clock.advance(1001)
    assert ready.task_ends().execution_info.failure_info.code == "TaskEnded"


def test_files_of_a_task_are_listed_read_in_part_and_deleted(ready):
    ready.task("printf 0123456789 > out.txt; mkdir empty; echo written; sleep 600")
    ready.says("written")
    listed = {file.name: file for file in ready.client.list_task_files("job", "task", recursive=True)}
    assert {"stdout.txt", "stderr.txt", "wd", "wd/out.txt"} <= listed.keys()
    assert (listed["wd"].is_directory, listed["wd/out.txt"].properties.content_length) == (True, 10)
    assert ready.text("wd/out.txt") == "0123456789"
    part = ready.client.download_task_file("job", "task", "wd/out.txt", ocp_range="bytes=3-5")
    assert b"".join(part) == b"345"
    properties = ready.client.get_task_file_properties("job", "task", "wd/out.txt")
    assert (properties.content_length, properties.is_directory) == (10, False)
    ready.client.delete_task_file("job", "task", "wd/out.txt")
    assert refusal(lambda: ready.text("wd/out.txt")) == (404, "FileNotFound")
    assert refusal(lambda: ready.text("../../../../../../lifeline")) == (404, "FileNotFound")


def test_a_task_that_has_not_run_has_no_files(account):
    account.job(pool_id="none")
    account.task("true")
    assert refusal(lambda: account.text("stdout.txt")) == (409, "TaskFilesUnavailable")


def test_the_files_of_a_task_go_with_its_node(ready):
    ready.task("true")
    ready.task_ends()
    ready.begin("delete_pool", "pool")
    ready.settle()
    assert refusal(lambda: ready.text("stdout.txt")) == (404, "NodeNotFound")


def test_output_files_are_sent_when_their_condition_holds(ready):
    with storage() as (url, kept):

        def output(pattern, condition, path=None):
            container = {"containerUrl": f"{url}/c?sig=yes", **({"path": path} if path else {})}
            return {
                "filePattern": pattern,
                "destination": {"container": container},
                "uploadOptions": {"uploadCondition": condition},
            }

        ready.task(
            "echo 1 > one.log; echo 2 > two.log; echo said",
            outputFiles=[
                output("*.log", "tasksuccess", "logs"),
                output("../stdout.txt", "taskcompletion", "stdout-of-it"),
                output("one.log", "taskfailure", "never"),
            ],
        )
        assert ready.task_ends().execution_info.result == "success"
    assert kept == {"/c/logs/one.log": b"1\n", "/c/logs/two.log": b"2\n", "/c/stdout-of-it": b"said\n"}


def test_a_task_waits_for_those_it_depends_on(account):
    account.pool(nodes=2)
    account.job(usesTaskDependencies=True)
    account.task("true", "last", dependsOn={"taskIds": ["first"], "taskIdRanges": [{"start": 1, "end": 2}]})
    for task_id in ("first", "1"):
        account.task("true", task_id)
        account.task_ends(task_id)
    assert account.client.get_task("job", "last").state == "active"
    account.task("exit 1", "2", exitConditions={"default": {"dependencyAction": "satisfy"}})
    assert account.task_ends("last").execution_info.exit_code == 0


def test_dependencies_need_the_jobs_leave(ready):
    assert refusal(lambda: ready.task("true", dependsOn={"taskIds": ["a"]})) == (
        400,
        "TaskDependenciesNotSpecifiedOnJob",
    )


def test_tasks_are_added_many_at_once_each_for_itself(ready):
    ready.task("true", "t5")
    tasks = [{"id": f"t{number}", "commandLine": shell("true")} for number in range(10)]
    results = ready.client.create_task_collection("job", {"value": tasks}).result_values
    assert [result.status.value for result in results].count("success") == 9
    (refused,) = [result for result in results if result.status == "clienterror"]
    assert (refused.task_id, refused.error.code) == ("t5", "TaskExists")


def test_a_task_that_is_deleted_is_gone_and_its_processes_are(ready):
    ready.task("sleep 600")
    until(lambda: ready.client.get_task("job", "task").state == "running")
    ready.client.delete_task("job", "task")
    assert refusal(lambda: ready.client.get_task("job", "task")) == (404, "TaskNotFound")
    ready.task("true", "next")
    assert ready.task_ends("next").execution_info.exit_code == 0


def test_new_constraints_are_put(ready):
    ready.task("sleep 600")
    task = ready.client.get_task("job", "task")
    task.constraints = {"maxTaskRetryCount": 4}
    ready.client.replace_task("job", "task", task)
    assert ready.client.get_task("job", "task").constraints.max_task_retry_count == 4


def test_a_task_with_a_container_goes_through_the_nodes_docker(ready):
    (node,) = ready.client.list_nodes("pool")
    containers = {"imageName": "example/image:1", "containerRunOptions": "--network host"}
    ready.task(
        "mkdir -p $AZ_BATCH_NODE_ROOT_DIR/../bin && cd $AZ_BATCH_NODE_ROOT_DIR/../bin && rm -f docker"
        " && printf '#!/bin/sh\\necho \"$@\"\\n' > docker && chmod +x docker",
        "prepare",
    )
    ready.task_ends("prepare")
    ready.client.create_task(
        "job", {"id": "contained", "commandLine": "python3 -c 'a b'", "containerSettings": containers}
    )
    ready.task_ends("contained")
    said = ready.text("stdout.txt", "contained")
    assert said.startswith("run --rm -v /")
    assert said.endswith("--network host example/image:1 python3 -c a b\n")
    assert f"AZ_BATCH_NODE_ID={node.id}" in ready.text("container.env", "contained")


def test_closing_ends_tasks_that_run(account, tmp_path):
    before = threading.active_count()
    account.pool()
    account.job()
    account.task(f"touch {tmp_path}/begun; sleep 600")
    until((tmp_path / "begun").exists)
    account.stand_in.close()
    assert threading.active_count() <= before
