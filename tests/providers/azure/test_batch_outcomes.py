"""How runs end on stand-ins that fail on purpose, and what is left of them: nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cloudbench.errors import CredentialsError, InfrastructureError, UsageError
from cloudbench.providers.azure.account import Secret
from cloudbench.providers.azure.batch import AzureBatchProvider
from cloudbench.providers.base import Request
from cloudbench.run import Outcome, Status
from tests.providers.azure.plans import azure_plan
from tests.providers.azure.world import QUICK, AzureBatchWorld
from tests.providers.conformance import (
    FOREVER,
    ended,
    read_log,
    release_all,
    start,
    until,
    wait_for_line,
)

Play = Callable[..., AzureBatchWorld]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Begin a rehearsal that goes by these fields of a scenario."""
    worlds: list[AzureBatchWorld] = []

    def play(**changes: object) -> AzureBatchWorld:
        worlds.append(AzureBatchWorld(tmp_path / "rehearsal", msgspec.structs.replace(QUICK, **changes)))
        return worlds[-1]

    yield play
    for world in worlds:
        world.close()


def end_of(world: AzureBatchWorld, *, command: str = FOREVER, **changes: object) -> tuple[Request, Status]:
    provider = world.connect()
    request = start(provider, world.plan(command, **changes))  # type: ignore[arg-type]
    return request, ended(provider, request)


def begun(world: AzureBatchWorld, command: str, **changes: object) -> tuple[AzureBatchProvider, Request]:
    provider = world.connect()
    return provider, start(provider, world.plan(command, nodes=1, **changes))  # type: ignore[arg-type]


def released(world: AzureBatchWorld, request: Request) -> bool:
    handles = [step.handle for step in request.steps]
    until(lambda: release_all(world.connect(), handles))
    return not world.left(request.plan)


@pytest.mark.parametrize(
    ("scenario", "outcome", "told"),
    [
        ({"allocation_error": "AccountCoreQuotaReached", "nodes_granted": 0}, Outcome.QUOTA, "0 of 2 nodes"),
        ({"allocation_error": "AllocationFailed", "nodes_granted": 1}, Outcome.NO_CAPACITY, "1 of 2 nodes"),
        ({"allocation_error": "UnsupportedVMSize", "nodes_granted": 0}, Outcome.NO_CAPACITY, "UnsupportedVMSize"),
        ({"pool_quota_reached": True}, Outcome.QUOTA, "could not be asked for"),
        ({"start_task_exit_code": 3}, Outcome.INFRASTRUCTURE, "start task failed on"),
        ({"unusable_nodes": 1}, Outcome.INFRASTRUCTURE, "unusable"),
    ],
    ids=["quota", "partial", "retired", "pool-quota", "start-task", "unusable"],
)
def test_machines_that_cannot_be_had_or_used_end_the_run_and_leave_nothing(
    play: Play, tmp_path: Path, scenario: dict[str, object], outcome: Outcome, told: str
) -> None:
    world = play(**scenario)
    request, status = end_of(world)
    assert status.outcome is outcome
    assert status.reason
    assert told in status.reason
    assert "Azure says: " in status.reason
    world.connect().collect(request.job, tmp_path / "home")
    told_by_azure = (tmp_path / "home" / "service").glob("*.json")
    assert {"job.json", "task.json"} <= {path.name for path in told_by_azure}
    assert released(world, request)


def test_an_old_resize_error_does_not_end_a_run(play: Play) -> None:
    world = play(stale_resize_error="AllocationTimedOut")
    assert end_of(world, command="true")[1].outcome is Outcome.SUCCEEDED


def test_a_job_that_ends_between_two_listings_is_not_judged_by_its_pool_that_goes_away(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = play(stale_resize_error="AllocationTimedOut", delete_s=600.0)
    provider, request = begun(world, f"echo begun; until [ -e {tmp_path}/end ]; do sleep 0.05; done")
    wait_for_line(provider, request, b"begun")
    client = provider._client
    list_pools = client.list_pools

    def list_later(**options: Any) -> Any:
        (tmp_path / "end").touch()
        until(lambda: [pool for pool in list_pools() if (pool.state, pool.current_dedicated_nodes) == ("deleting", 0)])
        return list_pools(**options)

    monkeypatch.setattr(client, "list_pools", list_later)
    assert provider.poll([request.job])[request.job].outcome is Outcome.SUCCEEDED
    world.rehearsal.clock.advance(1300.0)


def test_a_low_priority_node_that_is_taken_back_ends_the_run_as_preempted(play: Play, tmp_path: Path) -> None:
    world = play(preempt_after_s=600.0)
    provider = world.connect()
    request = start(provider, world.plan(FOREVER, priority="low-priority"))
    wait_for_line(provider, request, b"line")
    world.rehearsal.clock.advance(600.0)
    status = ended(provider, request)
    assert status.outcome is Outcome.PREEMPTED
    assert status.reason
    provider.collect(request.job, tmp_path / "home")
    assert (tmp_path / "home" / "node-0" / "rank-0.log").read_bytes().startswith(b"line\n")
    assert released(world, request)


def test_ones_own_success_that_came_back_as_a_conflict_is_success(play: Play) -> None:
    world = play(fail_after_success=2)
    assert end_of(world, command="true")[1].outcome is Outcome.SUCCEEDED


def test_a_service_that_asks_for_patience_is_given_it(play: Play) -> None:
    world = play(throttle_every=4, retry_after_s=0)
    assert end_of(world, command="true", nodes=1)[1].outcome is Outcome.SUCCEEDED


def test_what_is_deleted_slowly_is_not_gone_before_it_is(play: Play) -> None:
    world = play(delete_s=600.0)
    request, _ = end_of(world, command="true", nodes=1)
    provider = world.connect()
    assert not provider.release(request.job)
    assert not provider.release(request.job), "it is being deleted, and still there"
    assert not provider.release(request.steps[0].handle), "its folder may be in use"
    world.rehearsal.clock.advance(1300.0)
    assert released(world, request)


def test_azure_ends_a_job_whose_client_and_node_program_do_not(play: Play) -> None:
    world = play()
    provider, request = begun(world, FOREVER, timeout_s=3600.0)
    wait_for_line(provider, request, b"line")
    world.rehearsal.clock.advance(request.plan.machines_limit_s + 60.0)  # and the time that its task has then
    status = ended(world.connect(), request)
    assert status.outcome is Outcome.TIMED_OUT
    assert status.reason
    assert "MaxWallClockTimeExpiry" in status.reason
    until(lambda: not world.living(request.plan))


def test_a_job_of_that_name_that_is_anothers_is_refused(play: Play) -> None:
    world = play()
    provider = world.connect()
    ours = world.plan("true", nodes=1)
    start(provider, msgspec.structs.replace(ours, owner="somebody-else"))
    request = provider.render(ours, 1)
    with pytest.raises(UsageError, match="belongs to another run"):
        list(provider.provision(request))
    with pytest.raises(UsageError, match="belongs to another run"):
        provider.submit(request)


def test_a_job_that_somebody_else_ended_says_so(play: Play) -> None:
    world = play()
    provider, request = begun(world, FOREVER)
    wait_for_line(provider, request, b"line")
    provider._request("POST", f"/jobs/{request.job.id}/terminate", {"terminateReason": "UserTerminate"})
    status = ended(provider, request)
    assert status.outcome is Outcome.CANCELLED
    assert status.reason
    assert "UserTerminate" in status.reason


def test_a_share_that_stops_answering_loses_no_line_of_a_run_that_it_outlives(play: Play) -> None:
    world = play()
    provider, request = begun(world, "echo one; sleep 3; echo two")
    wait_for_line(provider, request, b"one")
    world.rehearsal.files.outage = "busy"
    with pytest.raises(InfrastructureError, match="reading"):
        provider.read_log(request.job, 0, "rank-0.log", 0)
    world.rehearsal.files.outage = None
    assert ended(provider, request).outcome is Outcome.SUCCEEDED
    assert read_log(provider, request, 0, "rank-0.log") == b"one\ntwo\n"


def test_wrong_keys_are_refused_before_anything_is_made(play: Play) -> None:
    world = play()
    provider = world.connect(batch_key=Secret("d3Jvbmc="))
    request = provider.render(world.plan("true"), 1)
    [problem] = [problem for problem in provider.check(request) if problem.severity == "error"]
    assert problem.exit_code == CredentialsError.exit_code
    assert not world.left(request.plan)


def test_without_a_storage_key_only_the_nodes_own_disk_can_be_used(play: Play) -> None:
    provider = play().connect(storage_key=None)
    for storage, refused in (("azure-files", True), ("azure-blob", True), ("local", False)):
        request = provider.render(azure_plan(storage=storage), 1)
        assert any("cannot mount" in problem.what for problem in provider.check(request)) is refused


def test_ranks_without_an_image_are_warned_of_what_they_need(play: Play) -> None:
    provider = play().connect()
    plan = azure_plan(requires=("tensorflow",), rehearsal=False, sku="NC4as_T4_v3")
    told = [problem.what for problem in provider.check(provider.render(plan, 1))]
    assert any("must have tensorflow" in what for what in told)
    told = [problem.what for problem in provider.check(provider.render(msgspec.structs.replace(plan, image="i"), 1))]
    assert not told


def test_a_pool_mounts_the_share_and_the_job_finds_it(play: Play) -> None:
    world = play()
    folder = world.rehearsal.files.folder("cloudbench")
    (folder / "data").mkdir()
    (folder / "data" / "words").write_text("from the share")
    provider, request = begun(world, 'cat "$CLOUDBENCH_STORAGE/data/words"')
    assert ended(provider, request).outcome is Outcome.SUCCEEDED
    assert read_log(provider, request, 0, "rank-0.log") == b"from the share"


@pytest.mark.parametrize(
    ("storage", "mounted"), [("local", "shared/cloudbench"), ("azure-blob/imagenet", "cloudbench")]
)
def test_other_storage_is_where_the_job_is_told(play: Play, storage: str, mounted: str) -> None:
    world = play()
    provider, request = begun(world, 'cd "$CLOUDBENCH_STORAGE" && pwd && ls', storage=storage)
    assert ended(provider, request).outcome is Outcome.SUCCEEDED
    assert read_log(provider, request, 0, "rank-0.log").decode().strip().endswith(mounted)


def test_polls_ask_as_much_for_many_runs_as_for_one(play: Play) -> None:
    world = play(allocation_s=600.0)
    provider = world.connect()
    jobs = []
    for count in (1, 4):
        while len(jobs) < count:
            jobs.append(start(provider, world.plan("true")).job)
        before = world.rehearsal.batch.calls.total()
        provider.poll(jobs)
        assert world.rehearsal.batch.calls.total() - before == 3


def test_an_image_is_run_by_the_nodes_docker(play: Play) -> None:
    world = play()
    provider, request = begun(world, 'echo "in $CLOUDBENCH_IMAGE"', image="some/image:1")
    assert ended(provider, request).outcome is Outcome.SUCCEEDED
    assert read_log(provider, request, 0, "rank-0.log") == b"in some/image:1\n"


def test_nodes_are_containers_where_there_is_an_engine(docker_engine: str, python_image: str, tmp_path: Path) -> None:
    world = AzureBatchWorld(tmp_path / "rehearsal", QUICK, containers=True)
    try:
        provider = world.connect()
        command = 'ls /.dockerenv; echo "rank $CLOUDBENCH_RANK"; cat "$CLOUDBENCH_STORAGE/words"'
        (world.rehearsal.files.folder("cloudbench") / "words").write_text("from the share\n")
        request = start(provider, world.plan(command, image=python_image))
        assert ended(provider, request).outcome is Outcome.SUCCEEDED
        for node in (0, 1):
            lines = read_log(provider, request, node, f"rank-{node}.log").decode().splitlines()
            assert lines == ["/.dockerenv", f"rank {node}", "from the share"]
        assert released(world, request)
    finally:
        world.close()
