"""Machine sizes of the clouds: their GPUs, dated list prices, what is retired and what comes nearest to it.

The figures are data, `data/sizes/PROVIDER.csv`, whose first lines name their sources; they are read when asked for.
"""

from __future__ import annotations

import csv
import difflib
import functools
import math
from importlib import resources
from typing import Any, Literal

import msgspec

from cloudbench.errors import SpecError

_PREFIXES = {"azure": "Standard_"}
"""What a full name begins with and a person leaves out."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """One machine size. What is not known is `None`.

    `gpu_memory_gib` is that of one GPU; where a machine has a share of one, `gpu` says which (`1/6 A10`) and the memory
    is the share's. `local_nvme_gb` counts all NVMe disks. `rdma` is InfiniBand on Azure, the Elastic Fabric Adapter
    on AWS. `usd_per_hour` is the list price of one dedicated machine in `price_region`, on `priced_on` (an ISO date) or
    where there is no date, when it was last listed. `retired_on` is an ISO date; `retirement` says why a size counts
    as retired where no date was announced.
    """

    provider: str
    name: str
    gpu_maker: str
    gpu: str
    gpus: int
    gpu_memory_gib: float
    vcpus: int
    memory_gib: float
    architecture: Literal["x86_64", "arm64"]
    local_nvme_gb: int | None = None
    rdma: bool
    usd_per_hour: float | None = None
    price_region: str | None = None
    priced_on: str | None = None
    retired_on: str | None = None
    retirement: str | None = None

    @property
    def short_name(self) -> str:
        """The name as people say it: `NC12` for `Standard_NC12`."""
        return self.name.removeprefix(_PREFIXES.get(self.provider, ""))

    @property
    def retired(self) -> bool:
        """Whether nobody gets such a machine any more."""
        return self.retired_on is not None or self.retirement is not None

    @property
    def is_share(self) -> bool:
        """Whether it has a part of one GPU."""
        return "/" in self.gpu

    @property
    def hardware(self) -> str:
        """Its GPUs in words: `2 x K80 of 12 GiB`."""
        return f"{self.gpus} x {self.gpu} of {self.gpu_memory_gib:g} GiB"


class RetirementProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a size cannot be had, in the words of a provider's `Problem`."""

    severity: Literal["error", "warning"]
    what: str
    why: str
    todo: str


@functools.cache
def sizes(provider: str) -> tuple[Size, ...]:
    """All sizes of `azure` or `aws` that are known here, retired ones too."""
    text = (
        resources.files("cloudbench").joinpath("data").joinpath("sizes").joinpath(f"{provider}.csv").read_text("utf-8")
    )
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return tuple(_size(provider, row) for row in rows)


def find_size(provider: str, name: str) -> Size:
    """The size of that full or short name, in upper or lower case.

    Raises:
        SpecError: none is known by that name.
    """
    named = {key.lower(): size for size in sizes(provider) for key in (size.short_name, size.name)}
    if found := named.get(name.lower()):
        return found
    near = difflib.get_close_matches(name.lower(), named, n=1)
    examples = {size.gpu: size for size in reversed(sizes(provider)) if not size.retired and not size.is_share}
    raise SpecError(
        f"sku: {provider} has no GPU size {name!r} that is known here"
        + (f"; did you mean {named[near[0]].short_name!r}?" if near else ""),
        todo="a size such as " + ", ".join(f"{examples[gpu].short_name} ({gpu})" for gpu in sorted(examples)),
    )


def successors(size: Size, count: int = 3) -> tuple[Size, ...]:
    """The current sizes of the same provider that come nearest, the cheapest one for each GPU; nearest first.

    Near is, in this order: GPUs of the same maker behind the same kind of processor, whole GPUs, as many of them, as
    much memory on each, a low price.
    """

    def distance(other: Size) -> tuple[Any, ...]:
        return (
            other.gpu_maker != size.gpu_maker,
            other.architecture != size.architecture,
            other.is_share and not size.is_share,
            abs(other.gpus - size.gpus),
            abs(other.gpu_memory_gib - size.gpu_memory_gib),
            math.inf if other.usd_per_hour is None else other.usd_per_hour,
        )

    first: dict[tuple[str, int, float], Size] = {}
    for other in sorted(sizes(size.provider), key=distance):
        if not other.retired and other != size:
            first.setdefault((other.gpu, other.gpus, other.gpu_memory_gib), other)
    return tuple(first.values())[:count]


def retirement_problem(size: Size, *, rehearsal: bool) -> RetirementProblem | None:
    """Why nobody gets this size any more and what to take instead: an error, in a rehearsal a warning."""
    if not size.retired:
        return None
    since = (
        f"has been retired since {size.retired_on}" if size.retired_on else f"seems to be retired: {size.retirement}"
    )
    nearest = "; ".join(f"{other.short_name} ({other.hardware}, {_price(other)})" for other in successors(size))
    return RetirementProblem(
        severity="warning" if rehearsal else "error",
        what=f"{size.name} ({size.hardware}) {since}",
        why=f"{size.provider} gives nobody such a machine any more"
        + (", only this rehearsal does" if rehearsal else ""),
        todo=f"the nearest that it has: {nearest}",
    )


def _price(size: Size) -> str:
    return "price not known" if size.usd_per_hour is None else f"{size.usd_per_hour:.2f} USD/h"


def _size(provider: str, row: dict[str, str]) -> Size:
    filled = {key: value for key, value in row.items() if value}
    return msgspec.convert({"provider": provider, **filled}, Size, strict=False)
