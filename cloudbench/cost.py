"""What a run can cost at the most, and what that is counted with. Pure."""

from __future__ import annotations

from cloudbench.catalog import find_size
from cloudbench.plan import POOL_IDLE_S, RunPlan


def limit_cost(plan: RunPlan) -> tuple[float | None, str | None]:
    """The most that the run can cost in US dollars, or `None` and the reason.

    Each of its attempts counts until the cloud ends its machines; only low-priority ones are tried again.
    """
    if plan.usd_per_hour is None:
        return None, f"no hourly price is known for {plan.setup.sku or 'this setup'}"
    attempts = 1 + plan.retries if plan.setup.priority == "low-priority" else 1
    lasting_s = plan.machines_limit_s + (POOL_IDLE_S if plan.setup.pool else 0.0)
    return attempts * plan.usd_per_hour * lasting_s / 3600, None


def price_basis(plan: RunPlan) -> str | None:
    """What `limit_cost` counts with, in words; `None` where there is no price."""
    if plan.rehearsal:
        return "a rehearsal costs nothing"
    if plan.setup.provider == "local" or plan.setup.sku is None:
        return None
    size = find_size(plan.setup.provider, plan.setup.sku)
    if size.usd_per_hour is None:
        return None
    basis = f"list price of {size.name}: {size.usd_per_hour:.2f} USD/h"
    basis += f" in {size.price_region}" if size.price_region else ""
    basis += f" on {size.priced_on}" if size.priced_on else " when it was last listed"
    if plan.setup.priority == "low-priority":
        basis += f"; low-priority costs less, at a price that changes; {1 + plan.retries} attempts at the most"
    return basis
