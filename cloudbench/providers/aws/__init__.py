"""AWS as a provider: AWS Batch and plain EC2 instances, with an S3 bucket for what nodes write."""

from __future__ import annotations

from cloudbench.errors import UsageError, did_you_mean
from cloudbench.providers.aws.account import AwsAccount, identified
from cloudbench.providers.base import Provider

__all__ = ["SERVICES", "AwsAccount", "aws_provider", "check_service", "identified"]

SERVICES = ("batch", "ec2")


def check_service(service: str | None) -> str:
    """The service that is meant: `batch` where it is None.

    Raises:
        UsageError: there is no such service.
    """
    if service is None:
        return SERVICES[0]
    if service not in SERVICES:
        raise UsageError(
            f"the aws provider has no service {service!r}{did_you_mean(service, SERVICES)}",
            todo=" or ".join(f"--service {name}" for name in SERVICES),
        )
    return service


def aws_provider(account: AwsAccount, *, service: str | None) -> Provider:
    """The provider of one of AWS's services.

    Args:
        service: `batch`, also where it is None, or `ec2`.

    Raises:
        UsageError: no such service.
    """
    if check_service(service) == "ec2":
        from cloudbench.providers.aws.ec2 import AwsEc2Provider

        return AwsEc2Provider(account)
    from cloudbench.providers.aws.batch import AwsBatchProvider

    return AwsBatchProvider(account)
