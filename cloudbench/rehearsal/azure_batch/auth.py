"""Shared-key signatures: made over what was sent, so that a wrong key or a changed request is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from email.utils import parsedate_to_datetime

from cloudbench.rehearsal.azure_batch.wire import ServiceError
from cloudbench.rehearsal.server import Request

_SIGNED = (
    *("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date"),
    *("if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"),
)
_MOST_AGE_S = 15 * 60


def authenticate(request: Request, account: str, key: str) -> None:
    """Refuse a request that the account's key did not sign, or not in the last quarter of an hour.

    Raises:
        ServiceError: 401 where there is no signature, 403 where it is not this account's.
    """
    kind, _, credential = request.headers.get("authorization", "").partition(" ")
    name, _, signature = credential.partition(":")
    if kind != "SharedKey":
        challenge = {"WWW-Authenticate": 'SharedKey realm="batch"'}
        raise _refusal(401, "The request carries no shared-key signature.", challenge)
    sent = request.headers.get("ocp-date") or request.headers.get("date")
    if not sent or not _is_recent(sent):
        raise _refusal(403, "The date header is missing, or not of the last fifteen minutes.")
    expected = hmac.new(base64.b64decode(key), _signed_text(request, account).encode(), hashlib.sha256).digest()
    if name != account or not hmac.compare_digest(signature, base64.b64encode(expected).decode()):
        raise _refusal(403, "The MAC signature found in the HTTP request is not the same as any computed signature.")


def _signed_text(request: Request, account: str) -> str:
    headers = dict(request.headers)
    if request.method not in ("GET", "HEAD"):
        headers.setdefault("content-length", "0")
    lines = [request.method, *(headers.get(name, "") for name in _SIGNED)]
    lines += [f"{name}:{value}" for name, value in sorted(headers.items()) if name.startswith("ocp-") and value]
    lines.append(f"/{account}{request.path}")
    lines += [f"{name}:{value}" for name, value in sorted(request.query.items()) if value]
    return "\n".join(lines)


def _is_recent(sent: str) -> bool:
    """Against the real time: clients do not know that a stand-in's clock was turned."""
    try:
        return abs(parsedate_to_datetime(sent).timestamp() - time.time()) <= _MOST_AGE_S
    except ValueError:
        return False


def _refusal(status: int, why: str, headers: dict[str, str] | None = None) -> ServiceError:
    message = (
        "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly."
    )
    return ServiceError(
        status, "AuthenticationFailed", message, values={"AuthenticationErrorDetail": why}, headers=headers
    )
