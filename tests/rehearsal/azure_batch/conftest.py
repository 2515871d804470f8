"""An account on this machine for every test, driven by the real SDK, on a clock that the test turns."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from azure.batch import BatchClient
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError

from cloudbench.rehearsal.azure_batch import BatchStandIn, Scenario
from cloudbench.rehearsal.clock import Clock
from cloudbench.rehearsal.machines import Machines

from .contract import Contract, contract

ACCOUNT = "rehearsal"
KEY = base64.b64encode(b"a key that signs, and nothing else").decode()
PATIENCE_S = 120.0

# Delays that no slow machine reaches by itself: what comes between can be seen at leisure.
SLOW = {"allocation_s": 300.0, "boot_s": 100.0, "start_s": 100.0, "leave_s": 100.0, "delete_s": 200.0}

IMAGE = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204"}
MACHINE = {"imageReference": IMAGE, "nodeAgentSKUId": "batch.node.ubuntu 22.04"}


class Account:
    """A stand-in with its clock, its machines and a client that is the real SDK."""

    def __init__(self, root: Path, seen: Contract | None, scenario: Scenario, shares: Any = None) -> None:
        self._ends = ExitStack()
        self.clock = Clock()
        self.machines = Machines(root)
        self._ends.callback(self.machines.close)
        more = {"shares": shares} if shares else {}
        self.stand_in = BatchStandIn(self.machines, self.clock, account=ACCOUNT, key=KEY, scenario=scenario, **more)
        self._ends.callback(self.stand_in.close)
        self.url = self.stand_in.start()
        hook = {"raw_response_hook": seen.check} if seen else {}
        credential = AzureNamedKeyCredential(ACCOUNT, KEY)
        self.client = BatchClient(endpoint=self.url, credential=credential, retry_backoff_factor=0.01, **hook)
        self._ends.callback(self.client.close)

    def close(self) -> None:
        """End it all; a fault of the stand-in fails the test."""
        self._ends.close()
        assert self.stand_in.faults == []

    def begin(self, operation: str, *arguments: Any, **more: Any) -> None:
        """What the SDK calls `begin_…`, without the thread in which it would wait for the end."""
        getattr(self.client, f"_{operation}_internal")(*arguments, **more)

    def pool(self, pool_id: str = "pool", nodes: int = 1, **more: Any) -> None:
        """Make a pool of dedicated nodes, and let its nodes come."""
        self.client.create_pool(pool_body(pool_id, nodes, **more))
        self.settle()

    def settle(self) -> None:
        """Let everything come about that only takes the service's time."""
        self.clock.advance(5000)

    def job(self, job_id: str = "job", pool_id: str = "pool", **more: Any) -> None:
        """Make a job on a pool."""
        self.client.create_job({"id": job_id, "poolInfo": {"poolId": pool_id}, **more})

    def task(self, command: str, task_id: str = "task", job_id: str = "job", **more: Any) -> None:
        """Add a task whose command goes through a shell."""
        self.client.create_task(job_id, {"id": task_id, "commandLine": shell(command), **more})

    def task_ends(self, task_id: str = "task", job_id: str = "job") -> Any:
        """The task as it is when it has completed."""
        until(lambda: self.client.get_task(job_id, task_id).state == "completed")
        return self.client.get_task(job_id, task_id)

    def says(self, text: str, task_id: str = "task", job_id: str = "job") -> None:
        """Wait until the task, which runs, has said that."""

        def said() -> bool:
            try:
                return text in self.text("stdout.txt", task_id, job_id)
            except HttpResponseError:
                return False

        until(said)

    def text(self, name: str, task_id: str = "task", job_id: str = "job") -> str:
        """What a task's file says."""
        return b"".join(self.client.download_task_file(job_id, task_id, name)).decode()

    def states(self, pool_id: str = "pool") -> list[str]:
        """The states of a pool's nodes."""
        return [node.state.value for node in self.client.list_nodes(pool_id)]


def pool_body(pool_id: str, nodes: int, **more: Any) -> dict[str, Any]:
    """What a pool of dedicated nodes is asked for with."""
    return {
        "id": pool_id,
        "vmSize": "Standard_NC6",
        "virtualMachineConfiguration": MACHINE,
        "targetDedicatedNodes": nodes,
        **more,
    }


def auto_pool(nodes: int, prefix: str = "auto", **more: Any) -> dict[str, Any]:
    """The `poolInfo` of a job that brings its pool along."""
    pool = {name: value for name, value in pool_body("", nodes, **more).items() if name != "id"}
    return {
        "autoPoolSpecification": {
            "autoPoolIdPrefix": prefix,
            "poolLifetimeOption": "job",
            "keepAlive": False,
            "pool": pool,
        }
    }


def shell(command: str) -> str:
    """A command line that runs this in a shell."""
    quoted = command.replace("'", "'\\''")
    return f"/bin/sh -c '{quoted}'"


def refusal(call: Callable[[], Any]) -> tuple[int, str]:
    """The status and the error code with which a call is refused."""
    with pytest.raises(HttpResponseError) as refused:
        call()
    return refused.value.status_code, refused.value.model.code


def until(holds: Callable[[], bool]) -> None:
    """Wait for what other threads and processes bring about."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def seen() -> Contract | None:
    return contract()


@pytest.fixture
def make_account(tmp_path: Path, seen: Contract | None) -> Iterator[Callable[..., Account]]:
    with ExitStack() as ends:
        made: list[Account] = []

        def make(scenario: Scenario | None = None, shares: Any = None, *, check: bool = True) -> Account:
            going = scenario or Scenario(**SLOW)
            made.append(Account(tmp_path / f"account-{len(made)}", seen if check else None, going, shares))
            ends.callback(made[-1].close)
            return made[-1]

        yield make


@pytest.fixture
def account(make_account: Callable[..., Account]) -> Account:
    return make_account()
