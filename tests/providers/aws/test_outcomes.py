"""How runs end on a stand-in of AWS that fails on purpose, and what is left of them: nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cloudbench.errors import CapacityError, InfrastructureError, QuotaError, UsageError
from cloudbench.providers.base import Request
from cloudbench.run import Outcome, Status
from tests.providers.aws.world import QUICK, AwsWorld
from tests.providers.conformance import FOREVER, ended, read_log, release_all, start, until, wait_for_line

Play = Callable[..., AwsWorld]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Begin a rehearsal of a service that goes by these fields of a scenario."""
    worlds: list[AwsWorld] = []

    def play(service: str, **changes: object) -> AwsWorld:
        worlds.append(AwsWorld(tmp_path, service, msgspec.structs.replace(QUICK, **changes)))
        return worlds[-1]

    yield play
    for world in worlds:
        world.close()


def end_of(world: AwsWorld, command: str = FOREVER, **changes: Any) -> tuple[Request, Status]:
    provider = world.connect()
    request = start(provider, world.plan(command, **changes))
    return request, ended(provider, request)


def released(world: AwsWorld, request: Request) -> bool:
    provider, handles = world.connect(), [step.handle for step in request.steps]

    def gone() -> bool:
        try:
            return release_all(provider, handles)
        except InfrastructureError:  # as the engine does, once more
            return False

    until(gone)
    return not world.left(request.plan)


@pytest.mark.parametrize(
    ("scenario", "outcome", "told"),
    [
        ({"no_capacity": True}, Outcome.NO_CAPACITY, "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"),
        ({"vcpu_limit": 4}, Outcome.NO_CAPACITY, "UNDETERMINED"),
    ],
    ids=["capacity", "quota"],
)
def test_a_job_that_gets_no_machines_ends_with_the_services_words_and_leaves_nothing(
    play: Play, scenario: dict[str, object], outcome: Outcome, told: str
) -> None:
    world = play("batch", **scenario)
    request, status = end_of(world)
    assert status.outcome is outcome
    assert told in str(status.reason)
    assert released(world, request)


def test_an_environment_that_becomes_invalid_is_told_by_the_services_words(play: Play) -> None:
    world = play("batch", environment_error="CLIENT_ERROR - You are not authorized to use launch templates.")
    provider = world.connect()
    request = provider.render(world.plan("true"), 1)
    with pytest.raises(InfrastructureError, match="cannot be used") as refused:
        list(provider.provision(request))
    assert "not authorized to use launch templates" in str(refused.value.why)
    assert released(world, request)


@pytest.mark.parametrize(
    ("scenario", "error"), [({"no_capacity": True}, CapacityError), ({"vcpu_limit": 4}, QuotaError)]
)
def test_instances_that_cannot_be_had_are_refused_all_together(
    play: Play, scenario: dict[str, object], error: type[Exception]
) -> None:
    world = play("ec2", **scenario)
    provider = world.connect()
    request = provider.render(world.plan("true"), 1)
    list(provider.provision(request))
    with pytest.raises(error):
        provider.submit(request)
    assert not world.living(request.plan)
    assert released(world, request)


def test_a_spot_instance_that_is_taken_back_ends_the_run_and_its_logs_stay(play: Play, tmp_path: Path) -> None:
    world = play("ec2")
    provider = world.connect()
    request = start(provider, world.plan(FOREVER, priority="low-priority"))
    wait_for_line(provider, request, b"line")

    world.stand_in.interrupt(world.instances(request.plan)[1]["InstanceId"])
    status = ended(provider, request)

    assert status.outcome is Outcome.PREEMPTED
    assert "1 of 2 spot instances" in str(status.reason)
    provider.collect(request.job, tmp_path / "home")
    assert (tmp_path / "home" / "node-0" / "rank-0.log").read_bytes().startswith(b"line\n")
    assert released(world, request)


def test_a_batch_job_whose_spot_machine_is_taken_back_is_preempted(play: Play) -> None:
    world = play("batch")
    provider = world.connect()
    request = start(provider, world.plan(FOREVER, nodes=1, priority="low-priority"))
    wait_for_line(provider, request, b"line")

    world.stand_in.interrupt(world.instances()[0]["InstanceId"])
    status = ended(provider, request)

    assert status.outcome is Outcome.PREEMPTED
    assert "Host EC2" in str(status.reason)
    assert released(world, request)


@pytest.mark.parametrize("service", ["batch", "ec2"])
@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param({"throttle_every": 3}, marks=pytest.mark.slow),
        {"fail_after_success": 6},
        pytest.param({"stale_reads_s": 1.5}, marks=pytest.mark.slow),
        {"fail_deletes": 3},
    ],
    ids=["throttling", "500-after-success", "stale-reads", "failing-deletes"],
)
def test_services_that_stumble_lead_to_one_job_and_to_nothing_left(
    play: Play, service: str, scenario: dict[str, object]
) -> None:
    world = play(service, **scenario)
    request, status = end_of(world, "echo once")
    assert status.outcome is Outcome.SUCCEEDED
    assert read_log(world.connect(), request, 1, "rank-1.log") == b"once\n"
    assert released(world, request)


def test_a_job_whose_answer_was_lost_is_found_and_not_submitted_twice(play: Play) -> None:
    world = play("batch")
    provider = world.connect()
    request = provider.render(world.plan("echo once", nodes=1), 1)
    list(provider.provision(request))
    world.stand_in._failures._successes_left = 1

    provider.submit(request)

    assert world.stand_in._failures._successes_left == 0
    assert world.stand_in.calls["batch:SubmitJob"] == 1
    assert ended(provider, request).outcome is Outcome.SUCCEEDED
    assert released(world, request)


def test_instances_whose_answer_was_lost_are_the_same_ones(play: Play) -> None:
    world = play("ec2")
    provider = world.connect()
    request = provider.render(world.plan(FOREVER), 1)
    list(provider.provision(request))
    world.stand_in._failures._successes_left = 1

    provider.submit(request)
    world.connect().submit(request)

    assert world.stand_in.calls["ec2:RunInstances"] == 2
    assert len(world.instances(request.plan)) == 2
    assert released(world, request)


@pytest.mark.slow
def test_what_runs_share_is_left_to_the_last_one_that_needs_it(play: Play) -> None:
    world = play("batch")
    provider = world.connect()
    first, second = (start(provider, world.plan(FOREVER, nodes=1)) for _ in range(2))
    assert [step.handle.id for step in first.steps[1:-2]] == [step.handle.id for step in second.steps[1:-2]]
    wait_for_line(provider, second, b"line")

    until(lambda: release_all(provider, [step.handle for step in first.steps]))

    assert not provider.poll([second.job])[second.job].ended
    assert list(world.things())
    assert released(world, second)


@pytest.mark.slow
def test_an_environment_that_was_taken_away_meanwhile_is_made_again(play: Play) -> None:
    world = play("batch")
    provider = world.connect()
    first = start(provider, world.plan("true", nodes=1))
    ended(provider, first)
    second = provider.render(world.plan("echo second", nodes=1), 1)
    list(provider.provision(second))

    until(lambda: release_all(provider, [step.handle for step in first.steps]))
    provider.submit(second)

    assert ended(provider, second).outcome is Outcome.SUCCEEDED
    assert released(world, second)


def test_a_name_that_belongs_to_another_run_is_refused(play: Play) -> None:
    world = play("batch")
    plan = world.plan("true", nodes=1)
    theirs = start(world.connect(), plan)
    ours = world.connect().render(msgspec.structs.replace(plan, owner="somebody-else"), 1)
    with pytest.raises(UsageError, match="belong to another run"):
        list(world.connect().provision(ours))
    assert released(world, theirs)


def test_what_a_container_printed_comes_home_when_its_job_fails(play: Play, tmp_path: Path) -> None:
    world = play("batch")
    request, status = end_of(world, "echo broken; exit 3")
    assert status.outcome is Outcome.FAILED
    world.connect().collect(request.job, tmp_path)
    assert "broken" in (tmp_path / "service" / "node-0.txt").read_text()
    assert (tmp_path / "service" / "node-1.txt").exists()
    assert released(world, request)


@pytest.mark.slow
def test_each_node_prints_into_a_stream_of_its_own_while_it_runs(play: Play) -> None:
    world = play("batch")
    provider = world.connect()
    request = start(provider, world.plan('while :; do echo "rank $CLOUDBENCH_RANK"; sleep 0.2; done'))
    wait_for_line(provider, request, b"rank")
    batch, logs = world.client("batch"), world.client("logs")
    queue = request.steps[-1].body["submit_job"]["jobQueue"]
    [job] = batch.list_jobs(jobQueue=queue, jobStatus="RUNNING")["jobSummaryList"]
    nodes = batch.describe_jobs(jobs=[f"{job['jobId']}#{node}" for node in range(2)])["jobs"]

    def printed(node: int) -> str:
        stream = nodes[node]["container"]["logStreamName"]
        found = logs.get_log_events(logGroupName="/aws/batch/job", logStreamName=stream, startFromHead=True)
        return "".join(event["message"] for event in found["events"])

    for node in range(2):
        until(lambda node=node: f"rank-{node}: rank {node}" in printed(node))
    assert released(world, request)


@pytest.mark.slow
@pytest.mark.parametrize("service", ["batch", "ec2"])
def test_nodes_are_containers_where_there_is_an_engine(
    docker_engine: str, python_image: str, tmp_path: Path, service: str
) -> None:
    world = AwsWorld(tmp_path, service, containers=True)
    try:
        provider = world.connect()
        command = 'ls /.dockerenv; echo "rank $CLOUDBENCH_RANK"; touch "$CLOUDBENCH_STORAGE/here" && echo stored'
        request = start(provider, world.plan(command, image=python_image))
        assert ended(provider, request).outcome is Outcome.SUCCEEDED
        for node in (0, 1):
            lines = read_log(provider, request, node, f"rank-{node}.log").decode().splitlines()
            assert lines == ["/.dockerenv", f"rank {node}", "stored"]
        assert released(world, request)
    finally:
        world.close()


@pytest.mark.parametrize("service", ["batch", "ec2"])
def test_nodes_share_the_file_system_that_they_mount(play: Play, tmp_path: Path, service: str) -> None:
    (tmp_path / "efs" / "fs-1").mkdir(parents=True)
    world = play(service)
    provider = world.connect(file_system="fs-1")
    request = start(provider, world.plan('echo stored > "$CLOUDBENCH_STORAGE/$CLOUDBENCH_RANK"', storage="efs"))
    assert ended(provider, request).outcome is Outcome.SUCCEEDED
    stored = [path for path in (tmp_path / "efs" / "fs-1").rglob("*") if path.is_file()]
    assert sorted(path.name for path in stored) == ["0", "1"]
    assert released(world, request)
