"""Machines that are kept for several runs, and that Azure takes away when nobody uses them any more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cloudbench.cost import limit_cost
from cloudbench.errors import CapacityError, SpecError, UsageError
from cloudbench.plan import POOL_IDLE_S, RunPlan
from cloudbench.providers.azure.batch_requests import render
from cloudbench.run import Outcome
from tests.providers.azure.plans import ACCOUNT, azure_plan
from tests.providers.azure.world import AzureBatchWorld
from tests.providers.conformance import ended, release_all, start, until


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AzureBatchWorld]:
    world = AzureBatchWorld(tmp_path / "rehearsal")
    yield world
    world.close()


def pooled(world: AzureBatchWorld, command: str = "true", *, pool: str = "mine", **changes: object) -> RunPlan:
    plan = world.plan(command, **changes)  # type: ignore[arg-type]
    return msgspec.structs.replace(plan, setup=msgspec.structs.replace(plan.setup, pool=pool))


def pools(world: AzureBatchWorld) -> list[str]:
    return [str(pool.id) for pool in world.connect()._client.list_pools()]


def test_the_next_run_has_the_machines_of_the_one_before(world: AzureBatchWorld) -> None:
    seen = []
    for _ in range(2):
        provider = world.connect()
        request = start(provider, pooled(world))
        assert [step.handle.kind for step in request.steps] == ["files", "lease", "job"]
        assert ended(provider, request).outcome is Outcome.SUCCEEDED
        seen.append(pools(world))
        assert set(provider.find(request.plan.owner)) == {step.handle for step in request.steps}
        until(lambda request=request: release_all(world.connect(), [step.handle for step in request.steps]))
        assert not list(provider.find(request.plan.owner))
    assert seen[0] == seen[1] == pools(world)
    assert len(seen[0]) == 1


def test_azure_takes_machines_away_that_nobody_uses(world: AzureBatchWorld) -> None:
    provider = world.connect()
    request = start(provider, pooled(world))
    ended(provider, request)
    until(lambda: release_all(provider, [step.handle for step in request.steps]))
    assert pools(world)
    world.rehearsal.clock.advance(POOL_IDLE_S + 60)
    until(lambda: not pools(world))


def test_azure_takes_machines_away_whose_client_never_came_back(world: AzureBatchWorld) -> None:
    request = start(world.connect(), pooled(world, "sleep 300", nodes=1))
    world.rehearsal.clock.advance(request.plan.machines_limit_s + POOL_IDLE_S + 60)
    until(lambda: not pools(world))


def test_a_pool_in_use_is_not_left_by_who_uses_it_still(world: AzureBatchWorld) -> None:
    provider = world.connect()
    first = start(provider, pooled(world, "sleep 300", nodes=1))
    second = start(provider, pooled(world, nodes=1))
    lease = second.steps[1].handle
    assert not provider.release(lease), "its job is there"
    until(lambda: provider.release(second.job))
    assert provider.release(lease)
    assert provider.release(lease), "what is left stays left"
    world.rehearsal.clock.advance(POOL_IDLE_S + 60)
    assert not provider.poll([first.job])[first.job].ended


def test_a_pool_of_another_owner_is_refused(world: AzureBatchWorld) -> None:
    provider = world.connect()
    start(provider, pooled(world, "sleep 300", nodes=1, owner="somebody-else"))
    with pytest.raises(UsageError, match="is not ours"):
        list(provider.provision(provider.render(pooled(world, nodes=1), 1)))


def test_a_pool_of_other_machines_is_refused(world: AzureBatchWorld) -> None:
    provider = world.connect()
    start(provider, pooled(world, "sleep 300", nodes=1))
    with pytest.raises(UsageError, match="other machines"):
        list(provider.provision(provider.render(pooled(world, nodes=1, sku="NC12"), 1)))
    start(provider, pooled(world, "sleep 300", nodes=2, pool="pair"))
    with pytest.raises(CapacityError, match="too few machines"):
        list(provider.provision(provider.render(pooled(world, nodes=3, pool="pair"), 1)))


def test_a_name_that_is_none_is_refused() -> None:
    plan = azure_plan()
    with pytest.raises(SpecError, match="is not a name"):
        render(msgspec.structs.replace(plan, setup=msgspec.structs.replace(plan.setup, pool="a b")), 1, ACCOUNT)


def test_what_keeping_machines_costs_is_counted() -> None:
    plan = azure_plan(usd_per_hour=3600.0, timeout_s=100.0)
    kept = msgspec.structs.replace(plan, setup=msgspec.structs.replace(plan.setup, pool="mine"))
    alone_usd, kept_usd = limit_cost(plan)[0], limit_cost(kept)[0]
    assert alone_usd
    assert kept_usd == alone_usd + POOL_IDLE_S
