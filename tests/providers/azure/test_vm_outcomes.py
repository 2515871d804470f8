"""How runs on virtual machines end where Azure fails on purpose, and what is left of them: nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from cloudbench.errors import CapacityError, CredentialsError, InfrastructureError, QuotaError, UsageError
from cloudbench.providers.azure.account import Registry, Secret
from cloudbench.providers.azure.vm import AzureVmProvider
from cloudbench.providers.base import Request
from cloudbench.rehearsal.azure_resources import stand_in
from cloudbench.run import Outcome, Status
from tests.processes import of_run, told_by
from tests.providers.azure.vm_world import AzureVmWorld
from tests.providers.azure.world import QUICK
from tests.providers.conformance import (
    FOREVER,
    ended,
    read_log,
    release_all,
    start,
    until,
    wait_for_line,
)

Play = Callable[..., AzureVmWorld]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Begin a rehearsal that goes by these fields of a scenario."""
    worlds: list[AzureVmWorld] = []

    def play(**changes: object) -> AzureVmWorld:
        worlds.append(AzureVmWorld(tmp_path / "rehearsal", msgspec.structs.replace(QUICK, **changes)))
        return worlds[-1]

    yield play
    for world in worlds:
        world.close()


def begun(world: AzureVmWorld, command: str, **changes: object) -> tuple[AzureVmProvider, Request]:
    provider = world.connect()
    return provider, start(provider, world.plan(command, **{"nodes": 1, **changes}))  # type: ignore[arg-type]


def end_of(world: AzureVmWorld, command: str = FOREVER, **changes: object) -> tuple[Request, Status]:
    provider, request = begun(world, command, **changes)
    return request, ended(provider, request)


def released(world: AzureVmWorld, request: Request) -> bool:
    handles = [step.handle for step in request.steps]
    until(lambda: release_all(world.connect(), handles))
    return not world.left(request.plan)


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [("AccountCoreQuotaReached", QuotaError, "QuotaExceeded"), ("UnsupportedVMSize", CapacityError, "SkuNotAvailable")],
)
def test_what_azure_knows_beforehand_is_told_when_it_is_asked_for(
    play: Play, code: str, kind: type[CapacityError], told: str
) -> None:
    world = play(allocation_error=code, nodes_granted=0)
    provider = world.connect()
    request = provider.render(world.plan("true"), 1)
    list(provider.provision(request))
    with pytest.raises(kind) as refused:
        provider.submit(request)
    assert type(refused.value) is kind
    assert (refused.value.why or "").startswith(f"{told}: ")
    assert released(world, request)


@pytest.mark.parametrize(
    ("scenario", "outcome", "told"),
    [
        ({"allocation_error": "AllocationFailed", "nodes_granted": 1}, Outcome.NO_CAPACITY, "1 of 2 machines"),
        ({"allocation_error": "AllocationTimedOut", "nodes_granted": 0}, Outcome.NO_CAPACITY, "0 of 2 machines"),
        ({"unusable_nodes": 1}, Outcome.INFRASTRUCTURE, "OSProvisioningTimedOut"),
    ],
    ids=["partial", "none", "unusable"],
)
def test_machines_that_cannot_be_had_end_the_run_and_leave_nothing(
    play: Play, tmp_path: Path, scenario: dict[str, object], outcome: Outcome, told: str
) -> None:
    world = play(**scenario)
    request, status = end_of(world, nodes=2)
    assert status.outcome is outcome
    assert status.reason
    assert told in status.reason
    assert "Azure says: " in status.reason
    world.connect().collect(request.job, tmp_path / "home")
    operations = json.loads((tmp_path / "home" / "service" / "operations.json").read_text())
    assert "Failed" in {operation["properties"]["provisioningState"] for operation in operations}
    assert {path.name for path in (tmp_path / "home" / "service").glob("*.json")} >= {
        "deployment.json",
        "machines.json",
    }
    assert released(world, request)


def test_a_spot_machine_that_is_taken_back_ends_the_run_as_preempted(play: Play, tmp_path: Path) -> None:
    world = play(preempt_after_s=600.0)
    provider, request = begun(world, FOREVER, nodes=2, priority="low-priority")
    wait_for_line(provider, request, b"line")
    world.rehearsal.clock.advance(700.0)
    status = ended(provider, request)
    assert status.outcome is Outcome.PREEMPTED
    assert "node-1" in (status.reason or "")
    provider.collect(request.job, tmp_path / "home")
    assert (tmp_path / "home" / "node-1" / "rank-1.log").read_bytes().startswith(b"line\n")
    assert released(world, request)


def test_azure_takes_machines_away_whose_client_and_node_program_do_not_end(play: Play) -> None:
    world = play()
    provider, request = begun(world, FOREVER, timeout_s=3600.0)
    wait_for_line(provider, request, b"line")
    world.rehearsal.clock.advance(request.plan.machines_limit_s)
    status = ended(world.connect(), request)
    assert status.outcome is Outcome.TIMED_OUT
    assert "Azure took the machines away" in (status.reason or "")
    assert not world.living(request.plan)


def test_ones_own_success_that_was_not_heard_is_success(play: Play) -> None:
    world = play(fail_after_success=2)
    assert end_of(world, "true")[1].outcome is Outcome.SUCCEEDED


def test_a_service_that_asks_for_patience_is_given_it(play: Play) -> None:
    world = play(throttle_every=4, retry_after_s=0)
    assert end_of(world, "true")[1].outcome is Outcome.SUCCEEDED


def test_what_is_deleted_slowly_is_not_gone_before_it_is(play: Play) -> None:
    world = play(delete_s=600.0)
    request, _ = end_of(world, "true")
    provider = world.connect()
    assert not provider.release(request.job)
    assert not provider.release(request.job), "it is being deleted, and still there"
    assert not provider.release(request.steps[0].handle), "its folder may be in use"
    world.rehearsal.clock.advance(700.0)
    assert released(world, request)


def test_a_group_that_is_anothers_is_neither_used_nor_deleted(play: Play) -> None:
    world = play()
    provider = world.connect()
    ours = world.plan("true")
    theirs = msgspec.structs.replace(ours, owner="somebody-else", id="their-run")
    request = provider.render(ours, 1)
    start(provider, theirs)
    body = {"location": "rehearsal", "tags": {"cloudbench_owner": theirs.owner, "cloudbench_run": theirs.id}}
    world.resources.make_group(request.job.id, body)
    list(provider.provision(request))
    with pytest.raises(UsageError, match="belongs to another run"):
        provider.submit(request)
    provider.stop(request.job)
    with pytest.raises(Exception, match="its tags differ"):
        provider.release(request.job)
    assert world.resources.group(request.job.id)


def test_a_group_that_somebody_else_deleted_ends_the_run_for_a_reason(play: Play) -> None:
    world = play()
    provider, request = begun(world, FOREVER)
    wait_for_line(provider, request, b"line")
    world.resources.delete_group(request.job.id)
    status = ended(provider, request)
    assert status.outcome is Outcome.INFRASTRUCTURE
    assert "deleted" in (status.reason or "")


def test_a_machine_that_cannot_fetch_the_node_program_says_so(play: Play, tmp_path: Path) -> None:
    world = play()
    provider = world.connect()
    request = provider.render(world.plan("true", nodes=1), 1)
    list(provider.provision(request))
    (world.folder(request.plan) / "cloudbench-node.pyz").unlink()
    provider.submit(request)
    status = ended(provider, request)
    assert status.outcome is Outcome.INFRASTRUCTURE
    lines = until(lambda: provider.poll([request.job])[request.job].last_lines)  # they follow the end itself
    assert lines == ("GET failed: 404", "the share does not answer, or refuses")
    provider.collect(request.job, tmp_path / "home")
    assert "GET failed: 404" in (tmp_path / "home" / "service" / "node-0-script.log").read_text()


@pytest.mark.parametrize(
    "change", [{"resources_token": Secret("wrong")}, {"subscription": "99999999-0000-0000-0000-000000000000"}]
)
def test_wrong_credentials_are_told_before_anything_is_made(play: Play, change: dict[str, object]) -> None:
    world = play()
    provider = world.connect(**change)
    request = provider.render(world.plan("true"), 1)
    [problem] = [problem for problem in provider.check(request) if problem.severity == "error"]
    assert problem.exit_code == CredentialsError.exit_code
    assert not world.left(request.plan)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"timeout_s": 82000.0}, "too long"),
        ({"registry": Registry(server="images.example.com", identity="id")}, "password only"),
    ],
)
def test_what_virtual_machines_cannot_do_is_told_beforehand(play: Play, change: dict[str, object], told: str) -> None:
    world = play()
    plan = world.plan("true", image="images.example.com/bench:1", timeout_s=float(str(change.pop("timeout_s", 60))))
    provider = world.connect(**change)
    [problem] = [each for each in provider.check(provider.render(plan, 1)) if each.severity == "error"]
    assert told in problem.what
    assert problem.exit_code == 2


def test_a_mount_without_a_key_and_a_pool_are_refused(play: Play) -> None:
    world = play()
    without = world.connect(storage_key=None)
    plan = world.plan("true")
    pooled = msgspec.structs.replace(plan, setup=msgspec.structs.replace(plan.setup, pool="kept"))
    for provider, asked, told, code in (
        (without, plan, "without a key of the storage account", CredentialsError.exit_code),
        (world.connect(), pooled, "in no pool", UsageError.exit_code),
    ):
        [problem] = [each for each in provider.check(provider.render(asked, 1)) if each.severity == "error"]
        assert told in problem.what
        assert problem.exit_code == code


def test_the_share_is_mounted_and_the_job_finds_it(play: Play) -> None:
    world = play()
    folder = world.rehearsal.files.folder("cloudbench")
    (folder / "data").mkdir()
    (folder / "data" / "words").write_text("from the share")
    provider, request = begun(world, 'cat "$CLOUDBENCH_STORAGE/data/words"')
    assert ended(provider, request).outcome is Outcome.SUCCEEDED
    assert read_log(provider, request, 0, "rank-0.log") == b"from the share"


def test_local_storage_is_on_the_machines_own_disk(play: Play) -> None:
    world = play()
    provider, request = begun(world, 'cd "$CLOUDBENCH_STORAGE" && pwd', storage="local")
    assert ended(provider, request).outcome is Outcome.SUCCEEDED
    disk = world.rehearsal.folder / "nodes" / f"{request.job.id}-node-0"
    assert read_log(provider, request, 0, "rank-0.log").decode().startswith(str(disk))


def test_an_image_is_run_by_the_machines_docker(play: Play) -> None:
    world = play()
    provider, request = begun(world, 'echo "in $CLOUDBENCH_IMAGE"', image="some/image:1")
    assert ended(provider, request).outcome is Outcome.SUCCEEDED
    assert read_log(provider, request, 0, "rank-0.log") == b"in some/image:1\n"


def test_nodes_are_containers_where_there_is_an_engine(docker_engine: str, python_image: str, tmp_path: Path) -> None:
    world = AzureVmWorld(tmp_path / "rehearsal", containers=True)
    try:
        command = 'ls /.dockerenv; echo "rank $CLOUDBENCH_RANK"; cat "$CLOUDBENCH_STORAGE/words"'
        (world.rehearsal.files.folder("cloudbench") / "words").write_text("from the share\n")
        provider, request = begun(world, command, nodes=2, image=python_image)
        assert ended(provider, request).outcome is Outcome.SUCCEEDED
        for node in (0, 1):
            lines = read_log(provider, request, node, f"rank-{node}.log").decode().splitlines()
            assert lines == ["/.dockerenv", f"rank {node}", "from the share"]
        assert released(world, request)
    finally:
        world.close()


def test_polls_ask_as_much_for_many_runs_as_for_one(play: Play) -> None:
    world = play(allocation_s=600.0)
    provider = world.connect()
    jobs = []
    for count in (1, 4):
        while len(jobs) < count:
            jobs.append(start(provider, world.plan("true")).job)
        before = world.rehearsal.resources.calls.total()
        provider.poll(jobs)
        assert world.rehearsal.resources.calls.total() - before == 2


def test_a_poll_asks_for_a_few_deployments_at_once_and_for_each_in_turn(play: Play) -> None:
    world = play()
    provider = world.connect()
    jobs = []
    for _ in range(12):  # groups whose deployment does not come
        plan = world.plan("true")
        jobs.append(provider.render(plan, 1).job)
        tags = {"cloudbench_owner": plan.owner, "cloudbench_run": plan.id, "cloudbench_nodes": "2"}
        world.resources.make_group(jobs[-1].id, {"location": "rehearsal", "tags": tags})
    calls = world.rehearsal.resources.calls
    for poll in (1, 2):
        assert not any(status.ended for status in provider.poll(jobs).values())
        assert calls["GET deployment"] == 8 * poll
    assert calls["GET machines"] == calls["GET groups"] == 2


def test_all_pages_of_a_listing_are_read(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_in, "PAGE", 1)
    world = play(allocation_s=600.0)
    provider = world.connect()
    requests = [start(provider, world.plan("true", nodes=2)) for _ in range(2)]
    listed = world.resources.machines()
    assert {name: sorted(machines) for name, machines in listed.items()} == {
        request.job.id: ["node-0", "node-1"] for request in requests
    }
    statuses = provider.poll([request.job for request in requests])
    assert {status.vendor_state for status in statuses.values()} == {"node-0 creating, node-1 creating"}


@pytest.mark.slow  # each call is tried again for seconds
def test_a_share_that_stops_answering_ends_no_run_and_keeps_no_machine(play: Play) -> None:
    world = play()
    provider, request = begun(world, FOREVER)
    wait_for_line(provider, request, b"line")
    world.rehearsal.files.outage = "busy"
    assert not provider.poll([request.job])[request.job].ended
    with pytest.raises(InfrastructureError, match="reading"):
        provider.stop(request.job)
    until(lambda: not world.living(request.plan))
    world.rehearsal.files.outage = None
    assert ended(provider, request).outcome is Outcome.INFRASTRUCTURE


def test_keys_and_addresses_are_nowhere_to_be_seen(play: Play, tmp_path: Path) -> None:
    world = play()
    provider, request = begun(world, f"env; {FOREVER}")
    wait_for_line(provider, request, b"CLOUDBENCH_RANK")
    exposed = list(told_by(of_run(request.plan.id)))
    everywhere = list(told_by(psutil.process_iter()))
    provider.collect(request.job, tmp_path / "home")
    exposed += [path.read_text() for path in (tmp_path / "home").rglob("*") if path.is_file()]
    exposed += [msgspec.json.encode(request).decode(), repr(provider._account), repr(request)]
    assert any("CLOUDBENCH_RANK" in text for text in exposed)
    assert not [text for text in exposed if "sig=" in text]
    for secret in (world.endpoints.storage_key, world.endpoints.resources_token):
        assert not [text for text in [*exposed, *everywhere] if secret in text]
