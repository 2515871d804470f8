"""The bucket: what is put there for an attempt, whose it is, and how it goes away."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cloudbench.errors import UsageError
from cloudbench.plan import RunPlan
from cloudbench.providers.aws.account import Clients
from cloudbench.providers.aws.files import ADDRESSES, Bucket
from cloudbench.providers.aws.requests import marks
from tests.providers.aws.plans import aws_plan
from tests.providers.aws.world import AwsWorld, account_at


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsWorld]:
    world = AwsWorld(tmp_path_factory.mktemp("aws"), "batch")
    yield world
    world.close()


@pytest.fixture
def bucket(world: AwsWorld) -> Iterator[Bucket]:
    clients = Clients(account_at(world.endpoint))
    yield Bucket(account_at(world.endpoint), clients)
    clients.close()


def ask(url: str, data: bytes | None = None) -> http.client.HTTPResponse:
    """Read a file by its address, or write it."""
    method, headers = ("PUT", {"Content-Type": "text/plain"}) if data else ("GET", {})
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
    answer: http.client.HTTPResponse = urllib.request.urlopen(request)  # noqa: S310
    return answer


def made(bucket: Bucket, plan: RunPlan, *, meeting: bool = False) -> str:
    """Put the files of the plan's first attempt; their name."""
    name = f"{plan.id}-a1"
    bucket.make(name, plan, 1, lifetime_s=60.0, marks=marks(plan, 1, "batch"), meeting=meeting)
    return name


def loaded(bucket: Bucket, name: str) -> dict[str, dict[str, str]]:
    """The addresses that a node is given, as it reads them."""
    url = bucket.address(name, ADDRESSES, lifetime_s=60.0).reveal()
    with ask(url) as answer:
        found: dict[str, dict[str, str]] = json.load(answer)
    return found


def test_a_bucket_is_there_or_not(world: AwsWorld, bucket: Bucket) -> None:
    assert bucket.exists()
    account = msgspec.structs.replace(account_at(world.endpoint), bucket="another")
    clients = Clients(account)
    assert not Bucket(account, clients).exists()
    clients.close()


def test_one_address_leads_a_node_to_all_that_it_is_given(bucket: Bucket) -> None:
    addresses = loaded(bucket, made(bucket, aws_plan()))["files"]
    assert set(addresses) == {"job.json", "cloudbench-node.pyz", "secret", "push.json"}
    with ask(addresses["secret"]) as answer:
        assert len(answer.read()) >= 32


def test_an_address_allows_one_thing_to_be_done_with_one_file(bucket: Bucket) -> None:
    name = made(bucket, aws_plan())
    url = bucket.address(name, "node-0/rank-0.log", lifetime_s=60.0, verb="put").reveal()
    ask(url, b"a line\n").close()
    assert bucket.read_log(name, 0, "rank-0.log", 2).data == b"line\n"
    assert bucket.read_log(name, 0, "rank-0.log", 7).data == b""
    for tampered in (url.replace("rank-0", "rank-1"), url.split("?")[0]):
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(tampered, b"x")
        refused.value.close()


def test_nodes_meet_through_the_bucket_where_nothing_else_tells_them_of_each_other(bucket: Bucket) -> None:
    assert "meeting" not in loaded(bucket, made(bucket, aws_plan()))
    assert set(loaded(bucket, made(bucket, aws_plan(), meeting=True))["meeting"]) == {"put", "get"}


def test_what_is_whole_stays_as_it_is_and_what_is_not_is_made_again(bucket: Bucket) -> None:
    plan = aws_plan()
    name = made(bucket, plan)
    secret = bucket.read(name, "secret")
    made(bucket, plan)
    assert bucket.read(name, "secret") == secret
    bucket._s3.delete_object(Bucket="cloudbench", Key=f"runs/{name}/{ADDRESSES}")
    made(bucket, plan)
    assert bucket.read(name, "secret") != secret


def test_another_runs_files_are_not_taken(bucket: Bucket) -> None:
    plan = aws_plan()
    made(bucket, plan)
    with pytest.raises(UsageError, match="belong to another run"):
        made(bucket, msgspec.structs.replace(plan, owner="somebody-else"))


def test_files_are_found_by_their_owner_and_gone_once_removed(bucket: Bucket) -> None:
    plan = aws_plan(owner="finder")
    name = made(bucket, plan)
    assert [found["cloudbench-run"] for found in bucket.find("finder", "batch")] == [plan.id]
    assert list(bucket.find("finder", "ec2")) == []
    age_s = bucket.age_s(name)
    assert age_s is not None
    assert age_s < 60
    assert bucket.remove(name)
    assert bucket.remove(name)
    assert (bucket.marks(name), bucket.age_s(name)) == (None, None)
    assert list(bucket.find("finder", "batch")) == []


def test_only_logs_are_read_as_logs(bucket: Bucket, tmp_path: Path) -> None:
    name = made(bucket, aws_plan())
    for file in ("../secret", "status.json"):
        with pytest.raises(UsageError, match="is not the name of a log file"):
            bucket.read_log(name, 0, file, 0)
    bucket.collect(name, tmp_path / "home")
    assert not (tmp_path / "home").exists()
