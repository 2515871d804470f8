"""The AWS account: where and as whom, the clients that speak for it, and its errors in our words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from cloudbench.errors import (
    CapacityError,
    CloudbenchError,
    CredentialsError,
    InfrastructureError,
    QuotaError,
    UsageError,
)
from cloudbench.plan import STAND_IN
from cloudbench.providers.base import Problem
from cloudbench.providers.secret import Secret

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

NO_ACCOUNT = "(account)"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 60
_ATTEMPTS = 8

_CREDENTIALS = (
    *("AccessDenied", "AccessDeniedException", "AuthFailure", "UnauthorizedOperation", "OptInRequired"),
    *("ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidAccessKeyId", "InvalidClientTokenId"),
    *("SignatureDoesNotMatch", "UnrecognizedClientException", "403"),
)
_QUOTA = (
    *("VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "ServiceQuotaExceededException"),
    *("LimitExceededException", "ResourceCountLimitExceeded", "MaxSpotFleetRequestCountExceeded"),
)
_CAPACITY = (
    *("InsufficientInstanceCapacity", "InsufficientCapacity", "InsufficientHostCapacity", "UnfulfillableCapacity"),
    *("SpotMaxPriceTooLow", "Unsupported", "UnsupportedOperation"),
)


class AwsAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Whose machines and whose bucket are used.

    Credentials are those that AWS's own tools find for `profile`, except on a stand-in, whose `endpoint` answers for
    every service and takes `access_key` and `secret_key`. `subnets` and `security_groups` are those of the region's
    default VPC where none are named. `image` is an AMI or an SSM parameter that names one, for EC2. `missing` is why
    the account cannot be used yet; what is not set stands as `(name of the setting)` in requests then.
    """

    account_id: str = NO_ACCOUNT
    region: str
    bucket: str
    profile: str | None = None
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    instance_role: str = "ecsInstanceRole"
    service_role: str | None = None
    file_system: str | None = None
    image: str | None = None
    endpoint: str | None = None
    access_key: Secret | None = None
    secret_key: Secret | None = None
    missing: Problem | None = None

    @property
    def name(self) -> str:
        """What a journal records of a run, and every later command must match."""
        return f"{STAND_IN if self.is_stand_in else ''}aws:{self.account_id}:{self.region}/{self.bucket}"

    @property
    def is_stand_in(self) -> bool:
        """Whether the endpoint is on this machine, and so costs nothing."""
        return self.endpoint is not None and urlsplit(self.endpoint).hostname in _LOOPBACK

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Everything that must not be told."""
        return tuple(filter(None, (self.access_key, self.secret_key)))


class Clients:
    """The clients of an account, made when they are first needed."""

    def __init__(self, account: AwsAccount) -> None:
        self._account = account
        self._session: Any = None
        self._made: dict[tuple[str, bool], Any] = {}

    @property
    def session(self) -> Any:
        """The SDK's session, whose events tell of every call.

        Raises:
            UsageError: the SDK is not installed, or has no such profile.
        """
        if self._session is None:
            self._session = _session(self._account)
        return self._session

    def get(self, service: str, *, retries: bool = True) -> Any:
        """The client of a service such as `s3`; without retries for a request that must not be sent twice.

        Raises:
            UsageError: the SDK is not installed, or has no such profile.
        """
        key = (service, retries)
        if key not in self._made:
            self._made[key] = self._make(service, retries)
        return self._made[key]

    def close(self) -> None:
        """Close the connections."""
        for client in self._made.values():
            client.close()
        self._made.clear()

    def _make(self, service: str, retries: bool) -> Any:
        session = self.session
        from botocore.config import Config

        config = Config(
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS if retries else 1},
            signature_version="s3v4" if service == "s3" else None,
            # A node sends its files without the SDK, and so without its checksums.
            request_checksum_calculation="when_required",
            s3={"addressing_style": "path" if self._account.is_stand_in else "virtual"},
            user_agent_extra="cloudbench",
        )
        # Stand-ins are on this machine: no proxy is asked for them.
        config = config.merge(Config(proxies={})) if self._account.is_stand_in else config
        return session.client(service, endpoint_url=self._account.endpoint, config=config)


def _session(account: AwsAccount) -> Any:
    try:
        import boto3
        import botocore.exceptions
    except ImportError as error:
        raise UsageError(
            "the AWS provider needs AWS's Python package", why=str(error), todo="pip install 'cloudbench[aws]'"
        ) from error
    options: dict[str, Any] = {"region_name": account.region}
    if account.is_stand_in:
        # Never a person's own keys: whoever listens on this machine would be sent requests signed by them.
        if account.access_key is None or account.secret_key is None:
            raise CredentialsError(
                "a stand-in takes its own keys only", todo="cloudbench rehearse --serve prints what to set"
            )
        options |= {
            "aws_access_key_id": account.access_key.reveal(),
            "aws_secret_access_key": account.secret_key.reveal(),
        }
    elif account.profile:
        options["profile_name"] = account.profile
    try:
        return boto3.Session(**options)
    except botocore.exceptions.ProfileNotFound as error:
        raise CredentialsError(str(error), todo=f"aws configure --profile {account.profile}") from None


def identified(account: AwsAccount) -> AwsAccount:
    """The account with its number, which AWS tells to whom it knows; with a reason in `missing` where it does not."""
    if account.missing is not None or account.account_id != NO_ACCOUNT:
        return account
    clients = Clients(account)
    try:
        with translated("asking AWS which account this is"):
            number = clients.get("sts").get_caller_identity()["Account"]
    except CloudbenchError as error:
        why = Problem(severity="error", what=error.what, why=error.why, todo=error.todo, exit_code=error.exit_code)
        return msgspec.structs.replace(account, missing=why)
    finally:
        clients.close()
    return msgspec.structs.replace(account, account_id=number)


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn the SDK's errors into ours; `doing` is what was tried, such as `making the queue NAME`.

    Raises:
        CredentialsError: refused for who we are; QuotaError, CapacityError: for what is asked;
        InfrastructureError: anything else.
    """
    try:
        import botocore.exceptions as exceptions
    except ImportError as error:
        raise UsageError(
            "the AWS provider needs AWS's Python package", why=str(error), todo="pip install 'cloudbench[aws]'"
        ) from error
    unknown = (
        *(exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.CredentialRetrievalError),
        *(exceptions.TokenRetrievalError, exceptions.SSOError, exceptions.ConfigNotFound, exceptions.ConfigParseError),
    )
    try:
        yield
    except exceptions.ClientError as error:
        raise _translate(doing, error) from None
    except unknown as error:
        raise _credentials_error(doing, _first_line(str(error))) from None
    except exceptions.BotoCoreError as error:
        raise InfrastructureError(
            f"{doing}: AWS does not answer", why=_first_line(str(error)), todo="cloudbench doctor --provider aws"
        ) from None


def code_of(error: ClientError) -> str:
    """The service's code for an error, such as `InsufficientInstanceCapacity`."""
    return str(error.response.get("Error", {}).get("Code", ""))


def words_of(error: ClientError) -> str:
    """The service's own words, as `Code: message`."""
    message = str(error.response.get("Error", {}).get("Message", ""))
    # What follows is a long text that only AWS can read.
    message = message.partition("Encoded authorization failure message")[0].strip()
    return ": ".join(filter(None, [code_of(error), _first_line(message)]))


def _translate(doing: str, error: ClientError) -> CloudbenchError:
    code, words = code_of(error), words_of(error)
    if code in _CREDENTIALS:
        return _credentials_error(doing, words)
    if code in _QUOTA:
        return QuotaError(f"{doing}: the account's quota does not allow it", why=words)
    if code in _CAPACITY:
        return CapacityError(f"{doing}: there is no such machine to be had", why=words)
    return InfrastructureError(f"{doing}: AWS refused it", why=words)


def _credentials_error(doing: str, words: str) -> CredentialsError:
    return CredentialsError(f"{doing}: AWS refused the credentials", why=words, todo="cloudbench doctor --provider aws")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
