"""How AWS is asked and answers: which operation of which service a request is, and what its errors look like."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4
from xml.sax.saxutils import escape

import msgspec

from cloudbench.rehearsal.server import Request, Response

Body = dict[str, Any]

_MODELS = {"elasticfilesystem": "efs"}  # botocore calls it otherwise than its signatures do

# How each service that a run needs speaks; another one is answered as the first are.
_JSON_1, _EC2, _QUERY, _S3 = {"ssm", "logs"}, {"ec2"}, {"sts", "iam"}, {"s3"}


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request and what it asks for.

    Args:
        service: as signatures name it, such as `batch`.
        operation: as the API names it, such as `SubmitJob`.
        parameters: the JSON body, or the form of a query; empty for S3.
        presigned: it came with a URL that somebody else had signed.
    """

    service: str
    operation: str
    parameters: Body
    request: Request
    presigned: bool = False

    @property
    def name(self) -> str:
        """`SERVICE:OPERATION`."""
        return f"{self.service}:{self.operation}"

    def listed(self, name: str) -> list[str]:
        """The values that a query's form counts up: `Name.1`, `Name.2`."""
        found = [(key, value) for key, value in self.parameters.items() if re.fullmatch(rf"{name}\.\d+", key)]
        return [value for _, value in sorted(found, key=lambda pair: int(pair[0].rpartition(".")[2]))]


# What answers a call instead of moto; the second argument asks moto.
Extension = Callable[[Call, Callable[[], Response]], Response]


class AwsError(Exception):
    """A refusal in the service's own words."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status

    def response(self, service: str) -> Response:
        """As the service puts it."""
        code, message = escape(self.code), escape(self.message)
        if service in _EC2:
            error = f"<Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
            return _xml(self.status, f"<Response>{error}<RequestID>{uuid4()}</RequestID></Response>")
        if service in _QUERY:
            error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
            return _xml(self.status, f"<ErrorResponse>{error}<RequestId>{uuid4()}</RequestId></ErrorResponse>")
        if service in _S3:
            return _xml(self.status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>")
        return json_response(
            {"__type": self.code, "message": self.message}, self.status, {"x-amzn-ErrorType": self.code}
        )


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A body in JSON."""
    headers = {"Content-Type": "application/json", "x-amzn-RequestId": str(uuid4()), **(headers or {})}
    return Response(status=status, headers=headers, body=msgspec.json.encode(body))


def read_call(request: Request) -> Call:
    """Which operation it is.

    Raises:
        AwsError: nobody signed it.
    """
    authorization = request.headers.get("authorization", "")
    presigned = False
    if match := re.search(r"Credential=[^/,]+/\d+/[^/]+/([^/]+)/aws4_request", authorization):
        service = match[1]
    elif scope := request.query.get("X-Amz-Credential"):
        service, presigned = scope.split("/")[3], True
    elif "AWSAccessKeyId" in request.query:  # an S3 URL signed in the older way
        service, presigned = "s3", True
    elif authorization.startswith("AWS "):
        service = "s3"
    else:
        raise AwsError("AccessDenied", "Access Denied: the request is not signed", 403)
    operation, parameters = _read(service, request)
    return Call(service=service, operation=operation, parameters=parameters, request=request, presigned=presigned)


def _read(service: str, request: Request) -> tuple[str, Body]:
    if service in _S3:
        return _s3_operation(request), {}
    if target := request.headers.get("x-amz-target"):
        return target.rpartition(".")[2], _json(request)
    if service in _EC2 | _QUERY:
        form = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
        return form.get("Action", "Unknown"), form
    return _rest_operation(service, request), _json(request)


def _json(request: Request) -> Body:
    body = msgspec.json.decode(request.body) if request.body else {}
    return body if isinstance(body, dict) else {}


def _rest_operation(service: str, request: Request) -> str:
    """The operation whose path this is, in botocore's model of the service."""
    for name, method, pattern in _rest_operations(service):
        if method == request.method and pattern.fullmatch(request.path):
            return name
    return "Unknown"


@functools.cache
def _rest_operations(service: str) -> tuple[tuple[str, str, re.Pattern[str]], ...]:
    """Name, method and path of each operation."""
    import botocore.exceptions
    import botocore.session

    try:
        model = botocore.session.get_session().get_service_model(_MODELS.get(service, service))
    except botocore.exceptions.UnknownServiceError:
        return ()
    found = []
    for name in model.operation_names:
        http = model.operation_model(name).http
        parts = re.split(r"\{[^}]*\}", http["requestUri"].partition("?")[0])
        found.append((str(name), http["method"], re.compile("[^/].*".join(map(re.escape, parts)))))
    return tuple(found)


def _s3_operation(request: Request) -> str:
    """What S3 is asked for, as far as runs ask: one bucket's objects and their tags."""
    _, _, key = request.path.lstrip("/").partition("/")
    query, method = request.query, request.method
    if key:
        if "tagging" in query:
            return {"GET": "GetObjectTagging", "PUT": "PutObjectTagging"}.get(method, "DeleteObjectTagging")
        if method == "PUT" and "x-amz-copy-source" in request.headers:
            return "CopyObject"
        if "uploads" in query or "uploadId" in query:
            return "MultipartUpload"
        names = {"GET": "GetObject", "HEAD": "HeadObject", "PUT": "PutObject", "DELETE": "DeleteObject"}
        return names.get(method, "Unknown")
    if not request.path.strip("/"):
        return "ListBuckets"
    if method == "POST" and "delete" in query:
        return "DeleteObjects"
    if method == "GET":
        part = next(
            (name for name in ("location", "tagging", "versioning", "lifecycle", "policy") if name in query), ""
        )
        return f"GetBucket{part.capitalize()}" if part else "ListObjectsV2"
    return {"HEAD": "HeadBucket", "PUT": "CreateBucket", "DELETE": "DeleteBucket"}.get(method, "Unknown")


def _xml(status: int, text: str) -> Response:
    return Response(
        status=status,
        headers={"Content-Type": "text/xml"},
        body=f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode(),
    )
