"""The catalogue of machine sizes: what a name means, what it costs, what is gone and what to take instead."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from cloudbench.catalog import Size, find_size, retirement_problem, sizes, successors
from cloudbench.errors import SpecError

PRICES = Path(__file__).parent.parent.parent / "shared" / "catalog"
EVERY_SIZE = [*sizes("azure"), *sizes("aws")]
CURRENT = [size for size in EVERY_SIZE if not size.retired]


@pytest.mark.parametrize("name", ["NC12", "nc12", "Standard_NC12", "standard_nc12", "STANDARD_NC12"])
def test_a_size_is_found_by_its_full_and_its_short_name_in_any_case(name: str) -> None:
    size = find_size("azure", name)
    assert (size.name, size.short_name, size.hardware) == ("Standard_NC12", "NC12", "2 x K80 of 12 GiB")


@pytest.mark.parametrize(
    ("provider", "name", "hardware", "vcpus", "memory_gib", "usd_per_hour", "rdma"),
    [
        ("azure", "NC24r", "4 x K80 of 12 GiB", 24, 224, 3.96, True),
        ("azure", "NC64as_T4_v3", "4 x T4 of 16 GiB", 64, 440, 4.352, False),
        ("azure", "NC80adis_H100_v5", "2 x H100 of 94 GiB", 80, 640, 13.96, False),
        ("azure", "ND96asr_v4", "8 x A100 of 40 GiB", 96, 900, 27.197, True),
        ("azure", "NV6ads_A10_v5", "1 x 1/6 A10 of 4 GiB", 6, 55, 0.454, False),
        ("aws", "p2.xlarge", "1 x K80 of 12 GiB", 4, 61, 0.9, False),
        ("aws", "P3dn.24xlarge", "8 x V100 of 32 GiB", 96, 768, 31.212, True),
        ("aws", "g6f.large", "1 x 1/8 L4 of 2.8 GiB", 2, 8, 0.202, False),
    ],
)
def test_a_size_tells_its_hardware_and_its_price(
    provider: str, name: str, hardware: str, vcpus: int, memory_gib: float, usd_per_hour: float, rdma: bool
) -> None:
    size = find_size(provider, name)
    found = (size.hardware, size.vcpus, size.memory_gib, size.usd_per_hour, size.rdma)
    assert found == (hardware, vcpus, memory_gib, usd_per_hour, rdma)


def test_a_price_has_its_day_and_its_region() -> None:
    size = find_size("azure", "NC4as_T4_v3")
    assert (size.price_region, size.priced_on) == ("eastus", "2026-06-18")
    last_listed = find_size("azure", "NC12")
    assert (last_listed.usd_per_hour, last_listed.priced_on) == (1.8, None)


def test_what_is_not_known_is_none() -> None:
    size = find_size("azure", "NC6s_v2")
    assert (size.usd_per_hour, size.price_region, size.local_nvme_gb) == (None, None, None)


@pytest.mark.parametrize(
    ("provider", "name", "says"),
    [
        ("azure", "NC13", "sku: azure has no GPU size 'NC13' that is known here; did you mean 'NC12'?"),
        ("azure", "standard_nc6v3", "did you mean 'NC6s_v3'?"),
        ("aws", "p3.9xlarge", "did you mean 'p3.8xlarge'?"),
        ("aws", "NC12", "sku: aws has no GPU size 'NC12' that is known here"),
    ],
)
def test_an_unknown_size_is_told_with_a_near_one(provider: str, name: str, says: str) -> None:
    with pytest.raises(SpecError) as wrong:
        find_size(provider, name)
    assert says in wrong.value.what


def test_an_unknown_size_is_told_with_a_current_one_for_each_gpu() -> None:
    with pytest.raises(SpecError) as wrong:
        find_size("azure", "big")
    assert wrong.value.todo is not None
    assert "NC4as_T4_v3 (T4)" in wrong.value.todo
    assert "K80" not in wrong.value.todo


@pytest.mark.parametrize(
    ("provider", "name", "nearest"),
    [
        ("azure", "NC6", ["NC4as_T4_v3", "NC8ads_A10_v4", "NC24ads_A100_v4"]),
        ("azure", "NC12", ["NC32ads_A10_v4", "NC48ads_A100_v4", "NC80adis_H100_v5"]),
        ("azure", "ND24rs", ["NC64as_T4_v3", "NC96ads_A100_v4", "NC32ads_A10_v4"]),
        ("aws", "p2.8xlarge", ["g4dn.metal", "g6.48xlarge", "g5.48xlarge"]),
        ("aws", "p3.2xlarge", ["g4dn.xlarge", "g6.xlarge", "g5.xlarge"]),
    ],
)
def test_the_nearest_sizes_have_as_many_gpus_then_as_much_memory_then_a_low_price(
    provider: str, name: str, nearest: list[str]
) -> None:
    assert [size.short_name for size in successors(find_size(provider, name))] == nearest


@pytest.mark.parametrize("size", EVERY_SIZE, ids=lambda size: size.name)
def test_a_successor_can_be_had_and_runs_the_same_images(size: Size) -> None:
    found = successors(size, 2)
    assert len(found) == 2
    for other in found:
        assert not other.retired
        assert other != size
        assert other.provider == size.provider
    assert (found[0].gpu_maker, found[0].architecture) == (size.gpu_maker, size.architecture) or size.gpu == "GB200"


@pytest.mark.parametrize(
    ("provider", "name", "since"),
    [
        ("azure", "NC24r", "2023-09-06"),
        ("azure", "NC6_Promo", "2023-09-06"),
        ("azure", "NC6s_v2", "2023-09-06"),
        ("azure", "NC24rs_v3", "2025-09-30"),
        ("azure", "ND6s", "2023-09-06"),
        ("azure", "NV24", "2023-09-06"),
        ("azure", "NV48s_v3", "2026-09-30"),
        ("aws", "p2.16xlarge", None),
        ("aws", "p3.16xlarge", None),
    ],
)
def test_old_sizes_are_retired(provider: str, name: str, since: str | None) -> None:
    size = find_size(provider, name)
    assert size.retired
    assert size.retired_on == since
    assert (size.retirement is None) == (since is not None)


@pytest.mark.parametrize("name", ["NC4as_T4_v3", "ND40rs_v2"])
def test_a_current_size_has_no_problem(name: str) -> None:
    assert retirement_problem(find_size("azure", name), rehearsal=False) is None


def test_a_retired_size_is_refused_with_since_when_and_what_to_take() -> None:
    problem = retirement_problem(find_size("azure", "NC12"), rehearsal=False)
    assert problem is not None
    assert problem.severity == "error"
    assert problem.what == "Standard_NC12 (2 x K80 of 12 GiB) has been retired since 2023-09-06"
    assert "NC32ads_A10_v4 (2 x A10 of 24 GiB, 4.40 USD/h)" in problem.todo


def test_a_retired_size_without_a_day_is_refused_with_the_reason() -> None:
    problem = retirement_problem(find_size("aws", "p2.xlarge"), rehearsal=False)
    assert problem is not None
    assert "seems to be retired: the EC2 API" in problem.what


def test_a_rehearsal_only_warns_of_a_retired_size() -> None:
    problem = retirement_problem(find_size("azure", "NC12"), rehearsal=True)
    assert problem is not None
    assert problem.severity == "warning"
    assert problem.why.endswith("only this rehearsal does")


@pytest.mark.parametrize("provider", ["azure", "aws"])
def test_the_names_of_a_provider_mean_one_size_each(provider: str) -> None:
    names = [name.lower() for size in sizes(provider) for name in {size.name, size.short_name}]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("size", EVERY_SIZE, ids=lambda size: size.name)
def test_a_size_makes_sense(size: Size) -> None:
    assert 1 <= size.gpus <= 16
    assert 0 < size.gpu_memory_gib < 300
    assert size.vcpus > 0
    assert size.memory_gib >= size.vcpus / 2
    assert size.usd_per_hour is None or 0 < size.usd_per_hour < 200
    for day in filter(None, (size.priced_on, size.retired_on)):
        assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", day)
    assert size.priced_on is None or size.usd_per_hour is not None


@pytest.mark.shared
@pytest.mark.parametrize(
    ("provider", "file", "price"),
    [
        ("azure", "azure-gpu-2026-06-18.csv", "ondemand_eastus"),
        ("aws", "aws-gpu-2026-07-20.csv", "ondemand_us_east_1"),
    ],
)
def test_the_prices_are_those_of_the_price_list(provider: str, file: str, price: str) -> None:
    if not (PRICES / file).exists():
        pytest.skip(f"{PRICES / file} is not here")
    with (PRICES / file).open(newline="") as lines:
        listed = {row["instance"].strip(): row[price] for row in csv.DictReader(lines)}
    dated = [size for size in sizes(provider) if size.priced_on and size.price_region in ("eastus", "us-east-1")]
    assert len(dated) > 40
    assert {size.name: size.usd_per_hour for size in dated} == {size.name: float(listed[size.name]) for size in dated}
