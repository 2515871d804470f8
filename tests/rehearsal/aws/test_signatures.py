from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.rehearsal.aws.conftest import Account, refusal

KEY = ("rehearsal", "rehearsal")


@pytest.fixture
def account(make_account: Callable[..., Account]) -> Iterator[Account]:
    made = make_account(key=KEY)
    made.stand_in.make_bucket("bucket")
    return made


def send(url: str, method: str, body: bytes | None = None) -> int:
    """The status of a request that says nothing of its content's type."""
    headers = {"Content-Type": ""} if body else {}
    sent = urllib.request.Request(url, data=body, method=method, headers=headers)  # noqa: S310
    try:
        with urllib.request.urlopen(sent) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def connect(account: Account, service: str, version: str | None = None, **changes: Any) -> Any:
    """A client that signs in this way, with another key where one is given."""
    key = {"aws_access_key_id": KEY[0], "aws_secret_access_key": KEY[1], **changes}
    config = Config(signature_version=version, retries={"total_max_attempts": 1})
    return boto3.client(service, endpoint_url=account.url, region_name="us-east-1", config=config, **key)


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_a_signed_url_is_good_for_what_it_says_only(account: Account, version: str) -> None:
    client = connect(account, "s3", version)
    what = {"Bucket": "bucket", "Key": "a folder/a+b"}
    put, get = (client.generate_presigned_url(f"{verb}_object", Params=what) for verb in ("put", "get"))
    assert send(put, "PUT", b"text") == 200
    assert send(get, "GET") == 200
    assert send(put, "GET") == 403
    assert send(get, "PUT", b"other") == 403
    assert send(put.replace("a%2Bb", "c"), "PUT", b"other") == 403
    assert send(put.partition("?")[0], "GET") == 403
    over = client.generate_presigned_url("get_object", Params=what, ExpiresIn=-1)
    assert send(over, "GET") == 403
    client.close()


def test_clients_of_every_kind_of_service_are_known_by_their_signature(account: Account) -> None:
    account.client("sts").get_caller_identity()
    account.client("s3").put_object(Bucket="bucket", Key="a b", Body=b"text")
    account.client("ssm").describe_parameters()
    arn = f"arn:aws:batch:us-east-1:{account.stand_in.account}:job/none"
    account.batch.tag_resource(resourceArn=arn, tags={"a": "b"})
    account.batch.untag_resource(resourceArn=arn, tagKeys=["a", "c"])
    assert account.instances() == []
    wanted = {"sts:GetCallerIdentity", "s3:PutObject", "ssm:DescribeParameters", "batch:TagResource"}
    assert set(account.stand_in.calls) == {*wanted, "batch:UntagResource", "ec2:DescribeInstances"}


def test_another_key_is_refused(account: Account) -> None:
    for changes, code in (
        ({"aws_secret_access_key": "other"}, "SignatureDoesNotMatch"),
        ({"aws_access_key_id": "other"}, "InvalidAccessKeyId"),
    ):
        client = connect(account, "sts", **changes)
        assert refusal(client.get_caller_identity)[0] == code
        client.close()


def test_moto_alone_takes_any_signature(moto: Any) -> None:
    moto("s3").create_bucket(Bucket="of-moto")
    url = moto("s3").generate_presigned_url("get_object", Params={"Bucket": "of-moto", "Key": "key"})
    assert send(url, "PUT", b"text") == 200
