"""Signatures are checked as AWS does; moto takes any.

Version 4 in headers and in URLs, and the older one in URLs of S3, which boto3 still makes. URLs end at their time by
the real clock: that is the one that their makers know.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import re
import time
from urllib.parse import parse_qsl, quote

from cloudbench.rehearsal.aws.wire import AwsError
from cloudbench.rehearsal.server import Request

_SIGNED = re.compile(r"AWS4-HMAC-SHA256 Credential=([^,]+), ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})")


def check(request: Request, access_key: str, secret_key: str) -> None:
    """Whether this key signed this request.

    Raises:
        AwsError: it did not, or its time is over.
    """
    if match := _SIGNED.fullmatch(request.headers.get("authorization", "")):
        scope, headers, signature = match.groups()
        stamp = request.headers.get("x-amz-date", "")
    elif "X-Amz-Signature" in request.query:
        scope, headers = request.query.get("X-Amz-Credential", ""), request.query.get("X-Amz-SignedHeaders", "")
        stamp, signature = request.query.get("X-Amz-Date", ""), request.query["X-Amz-Signature"]
        _check_time(_seconds(stamp) + float(request.query.get("X-Amz-Expires") or 0))
    elif "AWSAccessKeyId" in request.query:
        _check_time(float(request.query.get("Expires") or 0))
        expected = _former_signature(request, secret_key)
        _compare(request.query["AWSAccessKeyId"], access_key, request.query.get("Signature", ""), expected)
        return
    else:
        raise AwsError("AccessDenied", "Access Denied: the request is not signed", 403)
    key_id, _, scope = scope.partition("/")
    expected = _signature(request, secret_key, stamp, scope, headers)
    _compare(key_id, access_key, signature, expected)


def _signature(request: Request, secret_key: str, stamp: str, scope: str, headers: str) -> str:
    day, region, service, _ = scope.split("/")
    path = request.path if service == "s3" else quote(request.path, safe="/-_.~")
    pairs = parse_qsl(request.query_string, keep_blank_values=True)
    encoded = sorted((quote(n, safe="-_.~"), quote(v, safe="-_.~")) for n, v in pairs if n != "X-Amz-Signature")
    query = "&".join(f"{name}={value}" for name, value in encoded)
    lines = "".join(f"{name}:{' '.join(request.headers.get(name, '').split())}\n" for name in headers.split(";"))
    body = hashlib.sha256(request.body).hexdigest()
    if service == "s3":
        body = request.headers.get("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
    canonical = "\n".join((request.method, path, query, lines, headers, body))
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{secret_key}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, "\n".join(("AWS4-HMAC-SHA256", stamp, scope, digest)).encode(), "sha256").hex()


def _former_signature(request: Request, secret_key: str) -> str:
    headers = {name: value for name, value in request.headers.items() if name.startswith("x-amz-")}
    headers |= {name: value for name, value in request.query.items() if name.lower().startswith("x-amz-")}
    lines = "".join(f"{name.lower()}:{value}\n" for name, value in sorted(headers.items()))
    given = [request.method, request.headers.get("content-md5", ""), request.headers.get("content-type", "")]
    text = "\n".join((*given, request.query.get("Expires", ""), lines + request.path))
    return base64.b64encode(hmac.digest(secret_key.encode(), text.encode(), "sha1")).decode()


def _compare(key_id: str, access_key: str, signature: str, expected: str) -> None:
    if key_id != access_key:
        raise AwsError("InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.", 403)
    if not hmac.compare_digest(signature, expected):
        message = "The request signature we calculated does not match the signature you provided."
        raise AwsError("SignatureDoesNotMatch", message, 403)


def _check_time(until: float) -> None:
    if time.time() > until:
        raise AwsError("AccessDenied", "Request has expired", 403)


def _seconds(stamp: str) -> float:
    at = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ")
    return at.replace(tzinfo=datetime.timezone.utc).timestamp()
