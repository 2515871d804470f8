"""What a run can cost at the most, and what that is counted with."""

from __future__ import annotations

import msgspec
import pytest

from cloudbench.cost import limit_cost, price_basis
from cloudbench.plan import Rehearsal
from tests.experiments import experiment, on_azure, plans


def test_the_most_that_a_run_can_cost_is_its_price_until_the_limit() -> None:
    (plan,) = plans(experiment(timeout="90m"))
    assert limit_cost(plan) == (None, "no hourly price is known for this setup")
    assert limit_cost(msgspec.structs.replace(plan, usd_per_hour=4.0)) == (6.0, None)


def test_the_limit_names_the_price_that_it_counts_with() -> None:
    (plan,) = plans(on_azure(sku="nc4as_t4_v3"))
    assert price_basis(plan) == "list price of Standard_NC4as_T4_v3: 0.53 USD/h in eastus on 2026-06-18"
    assert limit_cost(plan) == (pytest.approx(2 * 0.526 * (0.5 + 0.5)), None)


def test_a_price_without_a_day_says_so() -> None:
    (plan,) = plans(on_azure())
    assert price_basis(plan) == "list price of Standard_NC12: 1.80 USD/h when it was last listed"


def test_low_priority_costs_at_most_the_dedicated_price_for_every_attempt() -> None:
    (plan,) = plans(on_azure(sku="NC4as_T4_v3", priority="low-priority"), retries=2)
    assert plan.retries == 2
    assert limit_cost(plan) == (pytest.approx(3 * 2 * 0.526 * (0.5 + 0.5)), None)
    assert str(price_basis(plan)).endswith("; low-priority costs less, at a price that changes; 3 attempts at the most")


def test_a_size_without_a_price_has_no_limit_and_a_reason() -> None:
    (plan,) = plans(on_azure(sku="NC6s_v2"))
    assert limit_cost(plan) == (None, "no hourly price is known for NC6s_v2")
    assert price_basis(plan) is None


def test_a_rehearsal_costs_nothing() -> None:
    (plan,) = plans(on_azure(), rehearsal=Rehearsal())
    assert limit_cost(plan) == (0.0, None)
    assert price_basis(plan) == "a rehearsal costs nothing"


def test_training_on_this_machine_has_no_price() -> None:
    (plan,) = plans(experiment())
    assert price_basis(plan) is None
