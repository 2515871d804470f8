"""The guarantees of `cloudbench.providers.base` as tests, which every provider inherits.

A provider's test module has a class derived from `ProviderConformance` and a fixture `world`, which is how the tests
reach the place where its runs run without going through the provider.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

import msgspec
import pytest

from cloudbench.plan import RunPlan
from cloudbench.providers.base import Provider, Request
from cloudbench.run import Handle, Outcome, Status

T = TypeVar("T")

PATIENCE_S = 180.0
FOREVER = "while :; do echo line; sleep 0.2; done"


class World(Protocol):
    """A place where runs run, and what can be seen and done there by others than the provider."""

    def connect(self) -> Provider:
        """A client that knows nothing of earlier ones, as a new process would."""

    def plan(self, command: str, *, nodes: int = 2, timeout_s: float = 600.0, owner: str | None = None) -> RunPlan:
        """A run of its own id, with one rank a node. The owner is this world's, unless another one is named."""

    def start_client(self, plan: RunPlan, *, attached: bool) -> subprocess.Popen[str]:
        """A process that submits attempt 1 of the plan and then polls it; returns once it has submitted."""

    def living(self, plan: RunPlan) -> list[str]:
        """What of the run runs or costs anything, in words."""

    def left(self, plan: RunPlan) -> list[str]:
        """What of the run is there at all, in words."""

    def kill_node(self, plan: RunPlan, node: int) -> None:
        """SIGKILL to a node program alone."""

    def secret(self, plan: RunPlan) -> str:
        """The secret that the nodes of a submitted run share."""

    def exposed(self, plan: RunPlan) -> Iterable[str]:
        """What others on the machines can see of a running run: command lines and environments."""


class ProviderConformance:
    """What holds for every provider."""

    provider: ClassVar[type]
    """The class whose conformance this is."""

    def test_render_gives_the_same_request_every_time_and_makes_nothing(self, world: World) -> None:
        plan = world.plan("true")
        first, second = world.connect().render(plan, 1), world.connect().render(plan, 1)

        assert first == second
        assert msgspec.json.encode(first) == msgspec.json.encode(second)
        assert world.connect().render(plan, 2).job != first.job
        assert not world.left(plan)
        assert not list(world.connect().find(plan.owner))

    def test_each_handle_comes_before_the_thing_that_it_names(self, world: World) -> None:
        request = world.connect().render(world.plan("true"), 1)
        names = [step.handle for step in request.steps[:-1]]
        assert names

        for count in range(1, len(names) + 1):
            provider = world.connect()
            making = iter(provider.provision(request))
            seen = [next(making) for _ in range(count)]
            assert seen == names[:count]
            assert seen[-1] not in list(provider.find(request.plan.owner)), "it was made before it was yielded"

            assert release_all(provider, seen)
            assert not world.left(request.plan)
            assert not list(provider.find(request.plan.owner))

    def test_provisioning_again_finds_what_is_there(self, world: World) -> None:
        request = world.connect().render(world.plan("true"), 1)
        first = list(world.connect().provision(request))
        assert list(world.connect().provision(request)) == first

    def test_submitting_again_finds_the_job(self, world: World) -> None:
        provider, request = started(world, "echo started; sleep 300")
        wait_for_line(provider, request, b"started")

        assert provider.submit(request) == request.job
        assert world.connect().submit(request) == request.job
        provider.stop(request.job)
        ended(provider, request)

        assert world.connect().submit(request) == request.job
        assert provider.poll([request.job])[request.job].ended, "a job that has ended is not started again"
        assert read_log(provider, request, 0, "rank-0.log").count(b"started") == 1

    def test_a_job_that_succeeds(self, world: World) -> None:
        provider, request = started(world, 'echo "rank $CLOUDBENCH_RANK of $CLOUDBENCH_WORLD_SIZE"')

        status = ended(provider, request)

        assert (status.outcome, status.exit_code, status.reason) == (Outcome.SUCCEEDED, 0, None)
        assert read_log(provider, request, 0, "rank-0.log") == b"rank 0 of 2\n"
        assert read_log(provider, request, 1, "rank-1.log") == b"rank 1 of 2\n"

    def test_a_failing_rank_gives_its_exit_code_and_its_last_lines(self, world: World) -> None:
        provider, request = started(world, 'echo working; [ "$CLOUDBENCH_RANK" = 0 ] && sleep 300; echo broken; exit 3')

        status = ended(provider, request)

        assert (status.outcome, status.exit_code) == (Outcome.FAILED, 3)
        assert status.reason
        assert "rank 1" in status.reason
        assert status.last_lines == ("working", "broken")

    def test_the_time_limit_ends_the_job(self, world: World) -> None:
        provider, request = started(world, "sleep 300", timeout_s=3.0)
        status = ended(provider, request)
        assert status.outcome is Outcome.TIMED_OUT
        assert status.reason

    def test_a_stopped_job_is_cancelled(self, world: World) -> None:
        provider, request = started(world, FOREVER)
        wait_for_line(provider, request, b"line")

        provider.stop(request.job)
        provider.stop(request.job)
        status = ended(provider, request)

        assert status.outcome is Outcome.CANCELLED
        assert status.reason
        world.connect().stop(request.job)
        assert ended(world.connect(), request) == status

    def test_one_poll_tells_of_several_jobs(self, world: World) -> None:
        provider, first = started(world, "exit 4", nodes=1)
        second = start(provider, world.plan("true", nodes=1))
        ended(provider, first)
        ended(provider, second)
        outcomes = {job: status.outcome for job, status in provider.poll([first.job, second.job]).items()}
        assert outcomes == {first.job: Outcome.FAILED, second.job: Outcome.SUCCEEDED}

    def test_a_job_that_the_provider_does_not_know_has_ended_for_a_reason(self, world: World) -> None:
        provider = world.connect()
        job = provider.render(world.plan("true"), 1).job
        status = provider.poll([job])[job]
        assert status.outcome is Outcome.INFRASTRUCTURE
        assert status.reason
        assert not provider.logs(job)
        provider.stop(job)

    def test_logs_are_read_while_they_grow(self, world: World) -> None:
        provider, request = started(world, FOREVER)
        wait_for_line(provider, request, b"line")
        first = provider.read_log(request.job, 1, "rank-1.log", 0)
        assert first.next_offset == len(first.data)

        more = until(lambda: provider.read_log(request.job, 1, "rank-1.log", first.next_offset).data)

        assert read_log(provider, request, 1, "rank-1.log").startswith(first.data + more)
        assert not provider.poll([request.job])[request.job].ended
        listed = {(log.node, log.name) for log in provider.logs(request.job)}
        assert {(0, "rank-0.log"), (1, "rank-1.log")} <= listed
        assert provider.read_log(request.job, 0, "rank-7.log", 0).data == b""

    def test_collect_brings_home_what_there_is_and_later_what_is_new(self, world: World, tmp_path: Path) -> None:
        provider, request = started(world, FOREVER)
        wait_for_line(provider, request, b"line")
        home = tmp_path / "home"

        provider.collect(request.job, home)
        early = (home / "node-1" / "rank-1.log").read_bytes()
        assert early.startswith(b"line\n")

        provider.stop(request.job)
        ended(provider, request)
        provider.collect(request.job, home)
        late = (home / "node-1" / "rank-1.log").read_bytes()
        assert late.startswith(early)
        assert late == read_log(provider, request, 1, "rank-1.log")

        before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
        provider.collect(request.job, home)
        assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before

    def test_release_is_true_when_nothing_is_left(self, world: World) -> None:
        provider, request = started(world, FOREVER)
        wait_for_line(provider, request, b"line")
        assert world.living(request.plan)

        handles = [step.handle for step in request.steps]
        until(lambda: release_all(provider, handles))

        assert not world.left(request.plan)
        assert not list(provider.find(request.plan.owner))
        assert release_all(world.connect(), handles), "what is gone stays gone"

    def test_what_a_job_needs_is_not_released_from_under_it(self, world: World) -> None:
        provider, request = started(world, FOREVER)
        wait_for_line(provider, request, b"line")
        for step in request.steps[:-1]:
            assert not world.connect().release(step.handle)
        assert not provider.poll([request.job])[request.job].ended

    def test_what_a_lost_journal_knew_is_found_by_its_owner(self, world: World) -> None:
        _, request = started(world, FOREVER)
        found = list(world.connect().find(request.plan.owner))
        assert set(found) == {step.handle for step in request.steps}

        until(lambda: release_all(world.connect(), found))
        assert not world.left(request.plan)

    def test_another_owners_run_is_neither_found_nor_touched(self, world: World) -> None:
        provider, theirs = started(world, FOREVER, owner="somebody-else")
        wait_for_line(provider, theirs, b"line")
        ours = start(provider, world.plan(FOREVER))

        found = list(provider.find(ours.plan.owner))
        assert set(found) == {step.handle for step in ours.steps}
        until(lambda: release_all(provider, found))

        assert not provider.poll([theirs.job])[theirs.job].ended
        assert world.living(theirs.plan)

    def test_a_client_that_takes_over_keeps_the_job_alive(self, world: World) -> None:
        plan = world.plan("sleep 8; echo done")
        client = world.start_client(plan, attached=True)
        client.send_signal(signal.SIGKILL)
        client.wait()
        provider = world.connect()
        request = provider.render(plan, 1)
        assert ended(provider, request).outcome is Outcome.SUCCEEDED
        assert read_log(provider, request, 1, "rank-1.log") == b"done\n"

    def test_a_detached_job_outlives_its_client_and_ends_by_its_limit(self, world: World) -> None:
        plan = world.plan(FOREVER, timeout_s=8.0)
        client = world.start_client(plan, attached=False)
        client.send_signal(signal.SIGKILL)
        client.wait()

        until(lambda: not world.living(plan))

        provider = world.connect()
        assert ended(provider, provider.render(plan, 1)).outcome is Outcome.TIMED_OUT

    @pytest.mark.parametrize("node", [0, 1])
    def test_a_killed_node_program_ends_the_job_and_loses_no_line(self, world: World, node: int) -> None:
        provider, request = started(world, "echo printed; sleep 300")
        wait_for_line(provider, request, b"printed")

        world.kill_node(request.plan, node)
        status = ended(provider, request)

        assert status.outcome is Outcome.INFRASTRUCTURE
        assert status.reason
        assert f"node {node}" in status.reason
        assert read_log(provider, request, node, f"rank-{node}.log") == b"printed\n"
        assert until(lambda: provider.release(request.job))

    def test_a_node_that_ignores_everything_is_killed(self, world: World) -> None:
        provider, request = started(world, "trap '' TERM INT; echo deaf; while :; do sleep 1; done", nodes=1)
        wait_for_line(provider, request, b"deaf")
        assert until(lambda: provider.release(request.job))
        assert ended(provider, request).outcome is Outcome.INFRASTRUCTURE

    def test_the_secret_is_nowhere_to_be_seen(self, world: World, tmp_path: Path) -> None:
        provider, request = started(world, "env; sleep 300")
        wait_for_line(provider, request, b"CLOUDBENCH_RANK")
        secret = world.secret(request.plan)
        assert len(secret) >= 32
        assert secret not in msgspec.json.encode(request).decode()
        exposed = list(world.exposed(request.plan))
        assert exposed
        assert not [text for text in exposed if secret in text]
        home = tmp_path / "home"
        provider.collect(request.job, home)
        files = [path for path in home.rglob("*") if path.is_file()]
        assert {"rank-0.log", "node.log", "status.json"} <= {path.name for path in files}
        assert not [path for path in files if secret.encode() in path.read_bytes()]


class AttachedConformance:
    """What holds besides for a provider whose jobs live with the client that submitted them."""

    def test_a_client_that_was_killed_leaves_nothing_running(self, world: World, tmp_path: Path) -> None:
        plan = world.plan(FOREVER)
        client = world.start_client(plan, attached=True)
        provider = world.connect()
        request = provider.render(plan, 1)
        until(lambda: read_log(provider, request, 0, "rank-0.log"))
        client.send_signal(signal.SIGKILL)
        client.wait()

        until(lambda: not world.living(plan))

        status = ended(world.connect(), request)
        assert status.outcome is Outcome.CANCELLED
        assert status.reason
        provider.collect(request.job, tmp_path / "home")
        assert (tmp_path / "home" / "node-0" / "rank-0.log").read_bytes().startswith(b"line\n")


def start(provider: Provider, plan: RunPlan) -> Request:
    """Take a plan to a running job, as the engine does."""
    request = provider.render(plan, 1)
    errors = [problem for problem in provider.check(request) if problem.severity == "error"]
    assert not errors
    for handle in provider.provision(request):
        assert isinstance(handle, Handle)
    assert provider.submit(request) == request.job
    return request


def started(
    world: World, command: str, *, nodes: int = 2, timeout_s: float = 600.0, owner: str | None = None
) -> tuple[Provider, Request]:
    """A client, and the running job that it submitted."""
    provider = world.connect()
    return provider, start(provider, world.plan(command, nodes=nodes, timeout_s=timeout_s, owner=owner))


def ended(provider: Provider, request: Request) -> Status:
    """Poll until the job has ended, and give what it ended with."""

    def status() -> Status | None:
        found = provider.poll([request.job])[request.job]
        return found if found.ended else None

    return until(status)


def release_all(provider: Provider, handles: Sequence[Handle]) -> bool:
    """Release each of them, the last one first; whether all are gone."""
    gone = [provider.release(handle) for handle in reversed(handles)]
    return all(gone)


def read_log(provider: Provider, request: Request, node: int, name: str) -> bytes:
    """A whole log file."""
    data = b""
    while chunk := provider.read_log(request.job, node, name, len(data)).data:
        data += chunk
    return data


def wait_for_line(provider: Provider, request: Request, line: bytes) -> None:
    """Wait until every node's rank has printed it."""
    for node in range(request.plan.nodes):
        until(lambda node=node: line in read_log(provider, request, node, f"rank-{node}.log"))


def kill_once_told(log: Callable[[], str]) -> None:
    """SIGKILL to a node program, as soon as the log that it writes tells its process id."""
    told = until(lambda: re.search(r", pid (\d+)$", log(), re.MULTILINE))
    os.kill(int(told[1]), signal.SIGKILL)


def until(condition: Callable[[], T | None]) -> T:
    """What the condition gives, once it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"still not so after {PATIENCE_S:.0f} s"
        time.sleep(0.1)
    return found
