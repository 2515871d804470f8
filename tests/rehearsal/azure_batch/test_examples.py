"""Microsoft's own examples of the interface: what is served is answered as they say, and what is not is named here."""

from __future__ import annotations

import json
from contextlib import closing
from urllib.parse import quote, urlencode

import pytest
from azure.core.rest import HttpRequest

from cloudbench.rehearsal.azure_batch import Scenario
from cloudbench.rehearsal.azure_batch.models import without_secrets

from .conftest import SLOW, Account, until
from .contract import DOCUMENT, EXAMPLES
from .test_wire import answer_to

pytestmark = pytest.mark.shared

VERSION = "2024-02-01.19.0"

# What the stand-in does not serve, see its own description.
NOT_SERVED = {
    *("ApplicationGet", "BatchNodeExtensionGet", "BatchNodeExtensionList"),
    *("JobCreate_Complex", "JobListFromJobSchedule", "JobListPreparationAndReleaseTaskStatus"),
    *(f"JobSchedule{what}" for what in ("Create_Basic", "Create_Complex", "Delete", "Disable", "Enable", "Exists")),
    *(f"JobSchedule{what}" for what in ("Get", "List", "Patch", "Terminate", "Update")),
    *("NodeCreateUser", "NodeDeleteUser", "NodeUpdateUser"),
    *("NodeGetRemoteLoginSettings", "NodeUploadBatchServiceLogs"),
    *("PoolDisableAutoScale", "PoolEnableAutoscale", "PoolEvaluateAutoscale"),
    "FileDeleteFromNode",
}


def examples() -> list[str]:
    return sorted(path.stem for path in EXAMPLES.glob("*.json")) if EXAMPLES.is_dir() else []


def load(name):
    return json.loads((EXAMPLES / f"{name}.json").read_text("utf-8"))


@pytest.fixture(params=examples() or [None], ids=lambda name: name or "no examples")
def example(request):
    if request.param is None:
        pytest.skip("Microsoft's examples are not beside this checkout")
    return request.param


def request_of(example, ids):
    """The example's request, with what it names in its path replaced by what is there."""
    operations = {
        operation["operationId"]: (method.upper(), path, operation)
        for path, methods in json.loads(DOCUMENT.read_text("utf-8"))["paths"].items()
        for method, operation in methods.items()
    }
    method, path, operation = operations[example["operationId"]]
    values = {**example["parameters"], **ids}
    query, body = {"api-version": VERSION}, None
    for parameter in operation["parameters"]:
        name = parameter.get("name")
        if name not in values:
            continue
        if parameter["in"] == "path":
            path = path.replace(f"{{{name}}}", quote(str(values[name]), safe=""))
        elif parameter["in"] == "query":
            query[name] = str(values[name]).lower() if isinstance(values[name], bool) else values[name]
        elif parameter["in"] == "body":
            body = values[name]
    more = {"json": body} if body is not None else {}
    return HttpRequest(method, f"{path}?{urlencode(query)}", **more)


def furnished(account):
    """What the examples speak of: a pool with nodes, a job, a task that has failed, and their files."""
    account.pool("poolId", nodes=2)
    account.job("jobId", "poolId")
    account.task("echo text > testFile.txt; exit 1", "taskId", "jobId")
    account.task_ends("taskId", "jobId")
    return account


@pytest.fixture(scope="module")
def still_account(tmp_path_factory):
    """For all examples that change nothing."""
    with closing(Account(tmp_path_factory.mktemp("account"), None, Scenario(**SLOW))) as account:
        yield furnished(account)


@pytest.fixture
def world(example, still_account, make_account):
    reads = "Get" in example or "List" in example or "Exists" in example
    return still_account if reads or example in NOT_SERVED else furnished(make_account(check=False))


def ids_for(account, name):
    """The names in an example's path, as they are called here."""
    node = next(iter(account.client.list_nodes("poolId"))).id
    ran_on = account.client.get_task("jobId", "taskId").node_info.node_id
    ids = {"poolId": "poolId", "jobId": "jobId", "taskId": "taskId", "nodeId": node}
    if name.startswith("File"):
        from_node = "workitems/jobId/job-1/taskId/wd/testFile.txt"
        ids |= {"nodeId": ran_on, "filePath": from_node if "FromNode" in name else "wd/testFile.txt"}
    if name in ("TaskTerminate", "TaskUpdate"):
        account.task("sleep 600", "taskId2", "jobId")
        ids["taskId"] = "taskId2"
    if name == "PoolStopResize":
        account.begin("resize_pool", "poolId", {"targetDedicatedNodes": 3})
    if name == "PoolRemoveNodes":
        ids["content"] = {**load(name)["parameters"]["content"], "nodeList": [node]}
    if name == "NodeEnableScheduling":
        account.client.disable_node_scheduling("poolId", node, {"nodeDisableSchedulingOption": "requeue"})
    if name == "JobEnable":
        account.begin("disable_job", "jobId", {"disableTasks": "requeue"})
        until(lambda: account.client.get_job("jobId").state == "disabled")
    return ids


def test_an_example_is_answered_as_it_says(world, example):
    said = load(example)
    kind = {"Batch_CreatePool": "pool", "Batch_CreateJob": "job", "Batch_CreateTask": "task"}.get(said["operationId"])
    ids = {} if example in NOT_SERVED else ids_for(world, example)
    body = {**said["parameters"][kind], "id": "made"} if kind else {}
    answer = answer_to(world, request_of(said, {**ids, **({kind: body} if kind else {})}))
    if example in NOT_SERVED:
        assert answer.status_code == 501
        return
    assert str(answer.status_code) in said["responses"], answer.text()
    if kind:
        path = {"pool": "pools", "job": "jobs", "task": "jobs/jobId/tasks"}[kind]
        kept = answer_to(world, HttpRequest("GET", f"/{path}/made?api-version={VERSION}")).json()
        assert is_kept(without_secrets(body), kept)


def is_kept(asked, told):
    """Whether all that was asked for is told again; the service fills in what was not said."""
    if isinstance(asked, dict):
        return all(name in told and is_kept(value, told[name]) for name, value in asked.items())
    if isinstance(asked, list):
        return len(asked) == len(told) and all(map(is_kept, asked, told))
    return asked == told


def test_every_example_that_is_not_served_is_one():
    if not examples():
        pytest.skip("Microsoft's examples are not beside this checkout")
    assert set(examples()) >= NOT_SERVED
    assert len(examples()) == 88
