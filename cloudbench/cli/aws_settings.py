"""What a person has set about AWS, and the account that it makes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloudbench.cli.cloud_settings import CloudSettings, is_url
from cloudbench.errors import CredentialsError

if TYPE_CHECKING:
    from cloudbench.providers.aws import AwsAccount

_NEEDED = ("region", "bucket")
_REGION = re.compile("[a-z0-9]+(-[a-z0-9]+)*")
_BUCKET = re.compile("(?!.{64})(?=.{3})[a-z0-9]+([.-]+[a-z0-9]+)*")
_SETTINGS = CloudSettings(
    cloud="aws",
    title="AWS",
    known={
        "region": ("AWS_DEFAULT_REGION", "the region, such as us-east-1"),
        "bucket": (None, "an S3 bucket in that region; what nodes write goes there"),
        "profile": ("AWS_PROFILE", "whose credentials are used; by default those that AWS's own tools find"),
        "subnets": (None, "subnets for the machines, with commas; by default those of the default VPC"),
        "security_groups": (None, "their security groups, with commas; by default the VPC's own"),
        "instance_role": (None, "the instance profile of AWS Batch's machines; by default ecsInstanceRole"),
        "service_role": (None, "the role of AWS Batch; by default its service-linked one"),
        "file_system": (None, "the EFS file system for --storage efs"),
        "image": (None, "the AMI of EC2 machines, or an SSM parameter that names it"),
        "endpoint": (None, "where a stand-in of AWS answers"),
        "access_key": (None, "the access key that a stand-in takes"),
        "secret_key": (None, "the secret key that a stand-in takes"),
    },
    secret=("access_key", "secret_key"),
)


def parse_aws_options(assignments: Sequence[str]) -> dict[str, str]:
    """The settings in `--aws KEY=VALUE`.

    Raises:
        UsageError: not a setting, or a secret: everybody on this machine can read a command line.
    """
    return _SETTINGS.parse(assignments)


def aws_account(options: Mapping[str, str], *, complete: bool = True) -> AwsAccount:
    """The account that is set: by the options, then `$CLOUDBENCH_AWS_…`, then `$AWS_…`, then `config.toml`.

    AWS is asked for its number, so that every later command can tell whether it is the same.

    Args:
        complete: refuse an account of which something is missing; else it says itself what.

    Raises:
        CredentialsError: something is missing, or AWS does not know us; it lists what, and where to set it.
        UsageError: `config.toml` cannot be read, or a setting cannot be right.
    """
    from cloudbench.providers.aws import AwsAccount, identified
    from cloudbench.providers.secret import Secret

    found = _SETTINGS.look_up(options)
    _SETTINGS.refuse_wrong(found, "endpoint", is_url, "a URL, such as http://127.0.0.1:4566")
    _SETTINGS.refuse_wrong(found, "region", _REGION.fullmatch, "the name of a region")
    words = "a name of 3 to 63 lower-case letters, digits, dots and hyphens"
    _SETTINGS.refuse_wrong(found, "bucket", _BUCKET.fullmatch, words)
    values: dict[str, Any] = {**{key: f"({key})" for key in _NEEDED}, **found}
    for key in ("access_key", "secret_key"):
        values[key] = Secret(found[key]) if key in found else None
    for key in ("subnets", "security_groups"):
        values[key] = tuple(found.get(key, "").replace(",", " ").split())
    account = identified(AwsAccount(**values, missing=_SETTINGS.missing(found, _NEEDED)))
    if account.missing and complete:
        raise CredentialsError(account.missing.what, why=account.missing.why, todo=account.missing.todo)
    return account


def aws_variables(values: Mapping[str, str]) -> dict[str, str]:
    """Settings as the variables that set them."""
    return _SETTINGS.variables(values)
