"""What goes over the wire: errors, times and bodies as Azure Resource Manager writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

from cloudbench.rehearsal.server import Response

Body = dict[str, Any]


class RefusedError(Exception):
    """A request that is refused: the HTTP status, the service's error code, a sentence for a person, and details."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        details: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.details = tuple(details)
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """The whole answer."""
        return answer({"error": error_body(self.code, self.message, self.details)}, self.status, self.headers)


def error_body(code: str, message: str, details: Sequence[Mapping[str, Any]] = ()) -> Body:
    """An error as answers, deployments and machines carry it."""
    body: Body = {"code": code, "message": message}
    return {**body, "details": [dict(detail) for detail in details]} if details else body


def answer(body: object | None, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with the headers that all of them have; without a body where that is None."""
    usual = {"x-ms-request-id": str(uuid4()), "x-ms-correlation-request-id": str(uuid4()), "Cache-Control": "no-cache"}
    if body is None:
        return Response(status=status, headers={**usual, **(headers or {})})
    content = {"Content-Type": "application/json; charset=utf-8"}
    return Response(status=status, headers={**usual, **content, **(headers or {})}, body=json.dumps(body).encode())


def stamp(seconds: float) -> str:
    """A time since 1970 in seconds, as bodies carry it: UTC with seven decimals."""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S.%f}0Z"
