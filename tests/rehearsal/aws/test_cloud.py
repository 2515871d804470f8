from __future__ import annotations

from collections.abc import Callable

from cloudbench.catalog import sizes
from cloudbench.rehearsal.aws.cloud import instance_type, instance_types
from cloudbench.rehearsal.aws.images import DEEP_LEARNING_IMAGE
from tests.rehearsal.aws.conftest import Account, Clients, refusal

IMAGE = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"


def test_two_accounts_know_nothing_of_each_other(make_account: Callable[..., Account]) -> None:
    first, second = make_account(), make_account()
    first.stand_in.make_bucket("of-the-first")
    assert [bucket["Name"] for bucket in first.client("s3").list_buckets()["Buckets"]] == ["of-the-first"]
    assert second.client("s3").list_buckets()["Buckets"] == []
    found = [account.client("sts").get_caller_identity()["Account"] for account in (first, second)]
    assert found == [first.stand_in.account, second.stand_in.account]
    assert len(set(found)) == 2
    first.close()
    second.stand_in.make_bucket("of-the-first")  # a name is free again when its account is gone


def test_an_object_keeps_the_names_of_its_metadata_and_its_tags(account: Account) -> None:
    s3 = account.client("s3")
    account.stand_in.make_bucket("bucket")
    s3.put_object(Bucket="bucket", Key="ü/a b", Body=b"text", Metadata={"the_owner": "me"}, Tagging="a=b")
    assert s3.head_object(Bucket="bucket", Key="ü/a b")["Metadata"] == {"the_owner": "me"}
    assert s3.get_object_tagging(Bucket="bucket", Key="ü/a b")["TagSet"] == [{"Key": "a", "Value": "b"}]
    assert [item["Key"] for item in s3.list_objects_v2(Bucket="bucket", Prefix="ü/")["Contents"]] == ["ü/a b"]


def test_sizes_that_are_retired_can_be_rehearsed(account: Account) -> None:
    for size in sizes("aws"):
        known = instance_type(size.name)
        assert known is not None
        if size.retired:
            assert known["VCpuInfo"]["DefaultVCpus"] == size.vcpus
            assert known["GpuInfo"]["Gpus"][0]["Count"] == size.gpus
    (found,) = account.ec2.describe_instance_types(InstanceTypes=["p3.8xlarge"])["InstanceTypes"]
    assert found["MemoryInfo"]["SizeInMiB"] == 244 * 1024
    assert instance_types("p2") == ["p2.xlarge", "p2.8xlarge", "p2.16xlarge"]


def test_the_deep_learning_images_have_their_public_parameter(account: Account) -> None:
    ssm = account.client("ssm")
    assert ssm.get_parameter(Name=IMAGE)["Parameter"]["Value"] == DEEP_LEARNING_IMAGE
    found = ssm.get_parameters(Names=[IMAGE, "/none"])
    assert [item["Name"] for item in found["Parameters"]] == [IMAGE]
    assert found["InvalidParameters"] == ["/none"]
    assert refusal(lambda: ssm.get_parameter(Name="/none"))[0] == "ParameterNotFound"
    (image,) = account.ec2.describe_images(ImageIds=[DEEP_LEARNING_IMAGE])["Images"]
    assert "Deep Learning" in image["Name"]


def test_moto_alone_does_not_have_it(moto: Clients) -> None:
    assert refusal(lambda: moto("ssm").get_parameter(Name=IMAGE))[0] == "ParameterNotFound"
