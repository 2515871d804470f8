from __future__ import annotations

from collections.abc import Callable

from cloudbench.rehearsal.aws import Scenario
from tests.rehearsal.aws.conftest import Account, definition, new_name, refusal


def test_every_so_manieth_request_is_one_too_many(make_account: Callable[..., Account]) -> None:
    account = make_account(Scenario(throttle_every=2))
    calls = {
        "batch": (lambda: account.batch.describe_jobs(jobs=["none"]), "TooManyRequestsException"),
        "ec2": (account.instances, "RequestLimitExceeded"),
    }
    for call, code in calls.values():
        call()
        assert refusal(call) == (code, "Rate exceeded")


def test_a_request_can_be_carried_out_and_fail(make_account: Callable[..., Account]) -> None:
    account = make_account(Scenario(fail_after_success=1))
    name = new_name()
    wanted = {"jobDefinitionName": name, **definition("true")}
    assert refusal(lambda: account.batch.register_job_definition(**wanted))[0] == "ServerException"
    assert len(account.batch.describe_job_definitions(jobDefinitionName=name)["jobDefinitions"]) == 1
    assert account.batch.register_job_definition(**wanted)["revision"] == 2


def test_deletes_can_fail(make_account: Callable[..., Account]) -> None:
    account = make_account(Scenario(fail_deletes=1))
    name = account.define("true")

    def deregister() -> None:
        account.batch.deregister_job_definition(jobDefinition=f"{name}:1")

    assert refusal(deregister)[0] == "ServerException"
    assert account.batch.describe_job_definitions(jobDefinitionName=name, status="ACTIVE")["jobDefinitions"]
    deregister()
    assert not account.batch.describe_job_definitions(jobDefinitionName=name, status="ACTIVE")["jobDefinitions"]


def test_what_comes_with_a_signed_url_is_not_throttled_and_counted_apart(
    make_account: Callable[..., Account],
) -> None:
    import urllib.request

    account = make_account(Scenario(throttle_every=2))
    account.stand_in.make_bucket("bucket")
    url = account.client("s3").generate_presigned_url("put_object", Params={"Bucket": "bucket", "Key": "key"})
    for _ in range(3):
        with urllib.request.urlopen(urllib.request.Request(url, data=b"x", method="PUT")) as answer:  # noqa: S310
            assert answer.status == 200
    assert account.stand_in.presigned == {"s3:PutObject": 3}
    assert account.stand_in.calls == {}
