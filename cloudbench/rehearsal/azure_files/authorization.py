"""Who may send a request to Azure Files: signatures of the account's key, and of service SAS made with it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from urllib.parse import unquote

import msgspec

from cloudbench.rehearsal.azure_files.errors import RefusedError, missing_header
from cloudbench.rehearsal.server import Request

CLOCK_SKEW_S = 15 * 60

_SIGNED_HEADERS = (
    *("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date"),
    *("if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"),
)
_SIGNED_FIELDS = ("si", "sip", "spr", "sv", "rscc", "rscd", "rsce", "rscl", "rsct")


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a request may do.

    Args:
        permissions: letters of a SAS; None for the account's key, which may do everything.
        resource: `share` or `file`, what a SAS was made for; None for the account's key.
    """

    permissions: str | None = None
    resource: str | None = None

    def may(self, any_of: str) -> bool:
        """Whether one of these permissions was given; no SAS gives what none of them stands for."""
        return self.permissions is None or any(letter in self.permissions for letter in any_of)


def grant(request: Request, *, account: str, key: bytes, now: float, real_now: float) -> Grant:
    """What the request's signature lets it do.

    Args:
        now: the rehearsal's time, which SAS expire by.
        real_now: the time of this machine, which clients date their requests with.

    Raises:
        RefusedError: no signature, a wrong one, or one that is not valid at this time.
    """
    if "authorization" in request.headers:
        _check_shared_key(request, account, key, real_now)
        return Grant()
    if "sig" in request.query:
        return _shared_access(request, account, key, now)
    raise RefusedError("NoAuthenticationInformation")


def _check_shared_key(request: Request, account: str, key: bytes, real_now: float) -> None:
    scheme, _, rest = request.headers["authorization"].partition(" ")
    named, _, signature = rest.partition(":")
    if scheme != "SharedKey" or not signature:
        raise RefusedError("InvalidAuthenticationInfo")
    if named != account:
        raise _failed("The account of the Authorization header is not the one of this endpoint.")
    if "x-ms-version" not in request.headers:
        raise missing_header("x-ms-version")
    _check_date(request, real_now)
    if not any(_is_signature(signature, text, key) for text in _texts_to_sign(request, account)):
        raise _failed("The MAC signature found in the HTTP request is not the same as any computed signature.")


def _check_date(request: Request, real_now: float) -> None:
    date = request.headers.get("x-ms-date") or request.headers.get("date")
    if date is None:
        raise missing_header("x-ms-date")
    try:
        sent_at = parsedate_to_datetime(date)
    except ValueError as error:
        raise _failed(f"The Date header is not a date: {date}") from error
    if sent_at.tzinfo is None:
        sent_at = sent_at.replace(tzinfo=timezone.utc)
    if abs(sent_at.timestamp() - real_now) > CLOCK_SKEW_S:
        raise _failed(f"Request date header too old: '{date}'")


def _texts_to_sign(request: Request, account: str) -> Iterator[str]:
    """The text under a shared key's signature.

    The documents sort the headers by their characters, Microsoft's own clients as words, where a hyphen counts last:
    the service takes both.
    """
    headers = {name: " ".join(value.split()) for name, value in request.headers.items()}
    if headers.get("content-length") == "0":
        del headers["content-length"]
    if "x-ms-date" in headers:
        headers.pop("date", None)
    first = "".join(headers.get(name, "") + "\n" for name in _SIGNED_HEADERS)
    names = sorted(name for name in headers if name.startswith("x-ms-"))
    query = sorted((name.lower(), value) for name, value in request.query.items())
    resource = f"/{account}{request.path}" + "".join(f"\n{name}:{value}" for name, value in query)
    for order in (names, sorted(names, key=lambda name: (name.replace("-", ""), name))):
        own = "".join(f"{name}:{headers[name]}\n" for name in order)
        yield f"{request.method}\n{first}{own}{resource}"


def _shared_access(request: Request, account: str, key: bytes, now: float) -> Grant:
    query = request.query
    missing = [name for name in ("sv", "sr", "se", "sp") if not query.get(name)]
    if missing:
        raise _failed(f"{missing[0]} is mandatory. Cannot be empty")
    names = unquote(request.path).strip("/")
    resource = {"s": "share", "f": "file"}.get(query["sr"])
    if resource is None:
        raise _failed(f"sr={query['sr']} is not a resource of a service SAS of the File service")
    signed_path = names.partition("/")[0] if resource == "share" else names
    lines = [query["sp"], query.get("st", ""), query["se"], f"/file/{account}/{signed_path}"]
    lines += [query.get(name, "") for name in _SIGNED_FIELDS]
    if not _is_signature(query["sig"], "\n".join(lines), key):
        raise _failed("Signature did not match.")
    if query.get("si"):
        raise _failed("The share has no stored access policies.")
    _check_period(query.get("st", ""), query["se"], now)
    if query.get("spr", "https,http") != "https,http":
        raise RefusedError("AuthorizationProtocolMismatch")
    return Grant(permissions=query["sp"], resource=resource)


def _check_period(start: str, expiry: str, now: float) -> None:
    if now >= _seconds(expiry):
        raise _failed(f"Signature not valid in the specified time frame: Expiry [{expiry}]")
    if start and now < _seconds(start):
        raise _failed(f"Signature not valid in the specified time frame: Start [{start}]")


def _seconds(text: str) -> float:
    """Seconds since 1970 of one of the forms of ISO 8601 that a SAS may use."""
    for form in ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ", "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S.%fZ"):
        try:
            return datetime.strptime(text, form).replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            continue
    raise _failed(f"{text} is not a time that a SAS may name")


def _is_signature(signature: str, text: str, key: bytes) -> bool:
    try:
        given = base64.b64decode(signature, validate=True)
    except binascii.Error:
        return False
    return hmac.compare_digest(given, hmac.digest(key, text.encode(), hashlib.sha256))


def _failed(detail: str) -> RefusedError:
    return RefusedError("AuthenticationFailed", details={"AuthenticationErrorDetail": detail})
