from __future__ import annotations

import re
import shlex
from typing import Any

import msgspec
import pytest
from azure.batch.models import BatchJobCreateOptions, BatchJobUpdateOptions, BatchTaskCreateOptions

from cloudbench.errors import SpecError
from cloudbench.providers.azure.account import AzureAccount, Registry, Secret
from cloudbench.providers.azure.batch_requests import (
    IMAGE,
    NODE_AGENT,
    STORAGE_KEY,
    address_of,
    fill,
    pool_prefix,
    render,
)
from tests.providers.azure.plans import ACCOUNT, azure_plan


def bodies(account: AzureAccount = ACCOUNT, **changes: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    job, task, update = render(azure_plan(**changes), 1, account).steps[-1].body.values()
    return job, task, update


def pool_of(**changes: Any) -> dict[str, Any]:
    pool: dict[str, Any] = bodies(**changes)[0]["poolInfo"]["autoPoolSpecification"]["pool"]
    return pool


def script(command: str) -> str:
    shell, flag, text = shlex.split(command)
    assert (shell, flag) == ("/bin/sh", "-c")
    return text


def test_azure_itself_deletes_the_machines_when_the_job_ends_or_takes_too_long() -> None:
    job, _, update = bodies(timeout_s=600.0)
    assert job["poolInfo"]["autoPoolSpecification"]["poolLifetimeOption"] == "job"
    assert job["poolInfo"]["autoPoolSpecification"]["keepAlive"] is False
    assert job["constraints"]["maxWallClockTime"] == "PT2400S", "the run's limit, and half an hour to get machines"
    # A job without tasks that ends with its tasks would end at once.
    assert job["onAllTasksComplete"] == "noaction"
    assert update == {"onAllTasksComplete": "terminatejob"}


def test_an_auto_pool_is_named_by_its_attempt_in_as_many_letters_as_the_service_allows() -> None:
    request = render(azure_plan(), 2, ACCOUNT)
    prefix = pool_prefix(request.job.id)
    assert len(prefix) <= 20
    assert request.job.id.endswith(prefix)
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", prefix)
    assert pool_prefix(render(azure_plan(), 1, ACCOUNT).job.id) != prefix


def test_several_nodes_talk_to_each_other_and_have_one_task_each() -> None:
    several, one = pool_of(nodes=3), pool_of(nodes=1)
    assert (several["enableInterNodeCommunication"], one["enableInterNodeCommunication"]) == (True, False)
    assert several["taskSlotsPerNode"] == one["taskSlotsPerNode"] == 1


@pytest.mark.parametrize(("priority", "counts"), [("dedicated", (3, 0)), ("low-priority", (0, 3))])
def test_nodes_are_dedicated_or_low_priority(priority: str, counts: tuple[int, int]) -> None:
    pool = pool_of(nodes=3, priority=priority)
    assert (pool["targetDedicatedNodes"], pool["targetLowPriorityNodes"]) == counts


@pytest.mark.parametrize("name", ["NC12", "nc12", "Standard_NC12"])
def test_a_size_is_known_by_its_short_and_its_full_name(name: str) -> None:
    assert pool_of(sku=name)["vmSize"] == "Standard_NC12"


def test_every_node_starts_the_node_program_and_the_first_waits_for_it() -> None:
    _, task, _ = bodies(nodes=2)
    settings = task["multiInstanceSettings"]
    assert settings["numberOfInstances"] == 2
    assert " start " in script(settings["coordinationCommandLine"])
    assert " wait " in script(task["commandLine"])
    assert " start " not in script(task["commandLine"])
    assert {file["filePath"] for file in settings["commonResourceFiles"]} == {
        "cloudbench-node.pyz", "job.json", "secret", "push.json"
    }  # fmt: skip


def test_a_single_node_starts_and_waits_in_one_task() -> None:
    _, task, _ = bodies(nodes=1)
    assert "multiInstanceSettings" not in task
    assert re.search(r" start .* && exec python3 .* wait ", script(task["commandLine"]))
    assert len(task["resourceFiles"]) == 4


def test_an_image_is_fetched_before_the_job_begins_and_named_to_the_node_program() -> None:
    image = "registry.example/train it:1"
    machine = pool_of(image=image)["virtualMachineConfiguration"]
    assert machine["containerConfiguration"] == {"type": "dockerCompatible", "containerImageNames": [image]}
    _, task, _ = bodies(image=image)
    words = shlex.split(script(task["multiInstanceSettings"]["coordinationCommandLine"]))
    assert words[words.index("--image") + 1] == image


@pytest.mark.parametrize("image", [None, "none"])
def test_without_an_image_ranks_run_on_the_machine_itself(image: str | None) -> None:
    assert "containerConfiguration" not in pool_of(image=image)["virtualMachineConfiguration"]
    assert "--image" not in bodies(image=image)[1]["multiInstanceSettings"]["coordinationCommandLine"]


def test_a_private_registry_is_asked_by_password_or_by_identity() -> None:
    password = msgspec.structs.replace(
        ACCOUNT, registry=Registry(server="registry.example", username="puller", password=Secret("open sesame"))
    )
    identity = msgspec.structs.replace(ACCOUNT, registry=Registry(server="registry.example", identity="/an/identity"))
    [by_password] = pool_of(account=password, image="i")["virtualMachineConfiguration"]["containerConfiguration"][
        "containerRegistries"
    ]
    [by_identity] = pool_of(account=identity, image="i")["virtualMachineConfiguration"]["containerConfiguration"][
        "containerRegistries"
    ]
    assert by_password["username"] == "puller"
    assert "sesame" not in str(by_password)
    assert by_identity["identityReference"] == {"resourceId": "/an/identity"}


def test_storage_is_a_share_a_container_to_read_or_the_nodes_own_disk() -> None:
    [share] = pool_of()["mountConfiguration"]
    [container] = pool_of(storage="azure-blob/imagenet")["mountConfiguration"]
    assert share["azureFileShareConfiguration"]["azureFileUrl"].endswith("/cloudbench")
    assert container["azureBlobFileSystemConfiguration"]["containerName"] == "imagenet"
    assert "--read-only" in container["azureBlobFileSystemConfiguration"]["blobfuseOptions"]
    assert "mountConfiguration" not in pool_of(storage="local")
    with pytest.raises(SpecError, match="floppy"):
        pool_of(storage="floppy")


def test_no_secret_is_in_a_request_before_it_is_sent() -> None:
    account = msgspec.structs.replace(ACCOUNT, registry=Registry(server="r", username="u", password=Secret("sesame")))
    text = msgspec.json.encode(render(azure_plan(image="i"), 1, account)).decode()
    for secret in account.secrets:
        assert secret.reveal() not in text
    assert STORAGE_KEY in text


def test_what_is_sent_is_what_was_rendered_with_its_placeholders_filled() -> None:
    job, task, _ = bodies(image="i")
    values = {
        IMAGE: {"publisher": "p"}, NODE_AGENT: "agent", STORAGE_KEY: "key", address_of("job.json"): "https://job"
    }  # fmt: skip
    filled = fill(job, values)["poolInfo"]["autoPoolSpecification"]["pool"]
    assert filled["virtualMachineConfiguration"]["imageReference"] == {"publisher": "p"}
    assert filled["mountConfiguration"][0]["azureFileShareConfiguration"]["accountKey"] == "key"
    assert "https://job" in [
        file["httpUrl"] for file in fill(task, values)["multiInstanceSettings"]["commonResourceFiles"]
    ]


@pytest.mark.parametrize("storage", ["azure-files", "azure-blob", "local"])
@pytest.mark.parametrize("nodes", [1, 2])
def test_the_sdk_sends_the_bodies_as_they_are(storage: str, nodes: int) -> None:
    job, task, update = bodies(storage=storage, nodes=nodes, image="i")
    job = fill(job, {IMAGE: {"publisher": "p", "offer": "o", "sku": "s", "version": "latest"}})
    assert BatchJobCreateOptions(job).as_dict() == job
    assert BatchTaskCreateOptions(task).as_dict() == task
    assert BatchJobUpdateOptions(update).as_dict() == update
