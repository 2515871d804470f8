"""Whether an AWS account is ready for runs: a list of findings, from reading alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cloudbench.errors import CloudbenchError, CredentialsError
from cloudbench.providers.aws.account import AwsAccount, Clients, code_of, translated
from cloudbench.providers.aws.batch import AwsBatchProvider
from cloudbench.providers.aws.batch_things import default_network
from cloudbench.providers.aws.ec2 import AwsEc2Provider
from cloudbench.providers.aws.ec2_requests import IMAGE_PARAMETER
from cloudbench.providers.aws.files import Bucket
from cloudbench.providers.aws.requests import SECURITY_GROUPS, SUBNETS
from cloudbench.providers.base import Problem
from cloudbench.providers.findings import Finding


def find_out(account: AwsAccount, *, owner: str, service: str) -> list[Finding]:
    """Look at the settings, the bucket, the network, what the service needs, and what is left of that owner's runs."""
    if account.missing:
        return [_failed(account.missing)]
    provider = AwsEc2Provider(account) if service == "ec2" else AwsBatchProvider(account)
    clients = provider.clients
    try:
        return [
            _settings(account),
            _asked(lambda: _bucket(account, clients)),
            _asked(lambda: _network(account, clients)),
            _asked(lambda: _inbound(account, clients)),
            _asked(lambda: _image(account, clients) if service == "ec2" else _instance_role(account, clients)),
            _asked(lambda: _left(provider, owner)),
            Finding(
                state="note",
                what="quotas are not looked at: they count vCPUs for each family of machines",
                todo="aws service-quotas list-service-quotas --service-code ec2",
            ),
        ]
    finally:
        provider.close()


def _settings(account: AwsAccount) -> Finding:
    where = " (a stand-in on this machine)" if account.is_stand_in else ""
    whose = f", with profile {account.profile}" if account.profile else ""
    return Finding(
        state="ok", what=f"AWS knows us: account {account.account_id}, region {account.region}{where}{whose}"
    )


def _bucket(account: AwsAccount, clients: Clients) -> Finding:
    if Bucket(account, clients).exists():
        return Finding(state="ok", what=f"bucket {account.bucket} is there")
    return Finding(
        state="failed",
        what=f"there is no bucket {account.bucket}",
        todo=f"aws s3 mb s3://{account.bucket} --region {account.region}",
    )


def _network(account: AwsAccount, clients: Clients) -> Finding:
    found = default_network(clients.get("ec2"), account)
    subnets = ", ".join(account.subnets or found[SUBNETS])
    return Finding(state="ok", what=f"machines start in {subnets}")


def _inbound(account: AwsAccount, clients: Clients) -> Finding:
    """Whether anybody but the machines themselves reaches a machine."""
    groups = account.security_groups or default_network(clients.get("ec2"), account)[SECURITY_GROUPS]
    with translated("reading the security groups"):
        found = clients.get("ec2").describe_security_groups(GroupIds=list(groups))["SecurityGroups"]
    open_groups = [group["GroupId"] for group in found if any(map(_lets_others_in, group["IpPermissions"]))]
    if open_groups:
        return Finding(
            state="note",
            what=f"security group {', '.join(open_groups)} lets others in than its own machines; runs do not need that",
            todo="--aws security_groups=sg-… names another one",
        )
    return Finding(state="ok", what=f"nobody but the machines themselves gets in ({', '.join(groups)})")


def _lets_others_in(permission: dict[str, Any]) -> bool:
    return any(permission.get(key) for key in ("IpRanges", "Ipv6Ranges", "PrefixListIds"))


def _instance_role(account: AwsAccount, clients: Clients) -> Finding:
    from botocore.exceptions import ClientError

    with translated(f"looking for the instance profile {account.instance_role}"):
        try:
            clients.get("iam").get_instance_profile(InstanceProfileName=account.instance_role.rpartition("/")[2])
        except ClientError as error:
            if code_of(error) != "NoSuchEntity":
                raise
            return Finding(
                state="failed",
                what=f"there is no instance profile {account.instance_role}",
                why="AWS Batch gives it to the machines that it starts",
                todo="docs/aws.md says how to make it; --aws instance_role=NAME names another one",
            )
    return Finding(state="ok", what=f"AWS Batch's machines have the instance profile {account.instance_role}")


def _image(account: AwsAccount, clients: Clients) -> Finding:
    if account.image and account.image.startswith("ami-"):
        return Finding(state="ok", what=f"instances start from {account.image}")
    parameter = account.image or IMAGE_PARAMETER.format("x86_64")
    with translated(f"asking for the machine image {parameter}"):
        image = clients.get("ssm").get_parameter(Name=parameter)["Parameter"]["Value"]
    return Finding(state="ok", what=f"instances start from {image} ({parameter})")


def _left(provider: AwsBatchProvider | AwsEc2Provider, owner: str) -> Finding:
    left = [f"{handle.kind} {handle.id}" for handle in provider.find(owner)]
    if not left:
        return Finding(state="ok", what=f"nothing of {owner} is left there")
    return Finding(
        state="note",
        what=f"{len(left)} things of {owner} are there: {', '.join(left)}",
        todo="cloudbench status tells which runs they belong to; cloudbench cancel RUN takes them away",
    )


def _asked(ask: Callable[[], Finding]) -> Finding:
    try:
        return ask()
    except CloudbenchError as error:
        return _failed(error)


def _failed(error: CloudbenchError | Problem) -> Finding:
    code = 3 if error.exit_code == CredentialsError.exit_code else 4
    todo = None if error.todo == "cloudbench doctor --provider aws" else error.todo
    return Finding(state="failed", what=error.what, why=error.why, todo=todo, exit_code=code)
