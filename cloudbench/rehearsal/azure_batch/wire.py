"""What goes over the wire: times, errors and bodies as the Batch service writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any
from uuid import uuid4

from cloudbench.rehearsal.server import Response

MEDIA_TYPE = "application/json; odata=minimalmetadata"
FOREVER = "P10675199DT2H48M5.4775807S"

Body = dict[str, Any]

_DURATION = re.compile(
    r"P(?:(?P<days>\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


class ServiceError(Exception):
    """A request that is refused: the HTTP status, the service's error code, and a sentence for a person."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        values: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.values = dict(values or {})
        self.headers = dict(headers or {})

    def body(self) -> Body:
        """The error as it stands in a response, or in the result of one task of a collection."""
        body: Body = {"code": self.code, "message": {"lang": "en-US", "value": self.message}}
        if self.values:
            body["values"] = [{"key": key, "value": value} for key, value in self.values.items()]
        return body

    def response(self, url: str) -> Response:
        """The whole answer; a 304 has no body."""
        body = self.body()
        request_id = str(uuid4())
        body["message"]["value"] += f"\nRequestId:{request_id}\nTime:{stamp(datetime.now(timezone.utc).timestamp())}"
        metadata = f"{url}/$metadata#Microsoft.Azure.Batch.Protocol.Entities.Container.errors/@Element"
        headers = {"Content-Type": MEDIA_TYPE, "request-id": request_id, "DataServiceVersion": "3.0", **self.headers}
        if self.status == 304:
            del headers["Content-Type"]
            return Response(status=304, headers=headers)
        return Response(status=self.status, headers=headers, body=encode({"odata.metadata": metadata, **body}))


def encode(body: object) -> bytes:
    """JSON in UTF-8."""
    return json.dumps(body).encode()


def stamp(seconds: float) -> str:
    """A time since 1970 in seconds, as bodies carry it: UTC with seven decimals."""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}0Z"


def http_date(seconds: float) -> str:
    """A time since 1970 in seconds, as headers carry it."""
    return format_datetime(datetime.fromtimestamp(seconds, timezone.utc), usegmt=True)


def duration_s(text: str) -> float:
    """Seconds of an ISO 8601 duration.

    Raises:
        ValueError: it is none, or counts months or years.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groupdict().values()):
        raise ValueError(f"{text!r} is no duration")
    parts = {unit: float(value) for unit, value in match.groupdict().items() if value}
    return timedelta(**parts).total_seconds()


def name_values(details: Mapping[str, str]) -> list[Body]:
    """Pairs as errors on pools, nodes and tasks carry them."""
    return [{"name": name, "value": value} for name, value in details.items()]
