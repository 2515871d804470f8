"""One call of the service: what was asked, the conditions on it, and the usual kinds of answers."""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime
from typing import Any
from uuid import uuid4

import msgspec

from cloudbench.rehearsal.azure_batch import models
from cloudbench.rehearsal.azure_batch.service import Service
from cloudbench.rehearsal.azure_batch.wire import MEDIA_TYPE, Body, ServiceError, encode, http_date
from cloudbench.rehearsal.server import Request, Response

FORMER_VERSION = "2024-02-01.19.0"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was authenticated and has found its operation.

    Args:
        ids: what stands in the path: `pool`, `job`, `task`, `node`, `file`.
    """

    service: Service
    request: Request
    ids: dict[str, str]

    @property
    def url(self) -> str:
        """The address that was called, without its query."""
        return self.service.world.url + self.request.path

    def body(self, model: str) -> Body:
        """The request's body, which must be what the SDK's class of that name describes.

        Raises:
            ServiceError: 400, 415.
        """
        content_type = self.request.headers.get("content-type", "").replace(" ", "").lower()
        if content_type.split(";")[0] != "application/json":
            raise ServiceError(415, "UnsupportedMediaType", f"The body must be sent as {MEDIA_TYPE}.")
        try:
            body = json.loads(self.request.body)
        except ValueError as error:
            message = "The specified Request Body is not syntactically valid."
            raise ServiceError(400, "InvalidRequestBody", message, values={"Reason": str(error)}) from error
        if isinstance(body, dict):
            body.pop("odata.metadata", None)  # the SDK sends it back with what it has read
        models.check(model, body, former=self.request.query.get("api-version") == FORMER_VERSION)
        return dict(body)

    def optional_body(self, model: str) -> Body:
        """The body of a request that may have none."""
        return self.body(model) if self.request.body else {}

    def check_conditions(self, etag: str, modified_at: float) -> None:
        """Refuse what is only asked of another version.

        Raises:
            ServiceError: 304 for a read, 412 for a write.
        """
        headers = self.request.headers
        reads = self.request.method in ("GET", "HEAD")
        since, until = (_time(headers.get(name)) for name in ("if-modified-since", "if-unmodified-since"))
        wanted, unwanted = (headers.get(name, "").strip('"') for name in ("if-match", "if-none-match"))
        if (wanted and wanted not in ("*", etag)) or (until is not None and int(modified_at) > until):
            raise ServiceError(
                412, "ConditionNotMet", "The condition specified in the conditional headers was not met."
            )
        if (unwanted and unwanted in ("*", etag)) or (since is not None and int(modified_at) <= since):
            status = 304 if reads else 412
            raise ServiceError(
                status, "ConditionNotMet", "The condition specified in the conditional headers was not met."
            )

    def answer(
        self, status: int, body: Body | None = None, *, metadata: str = "", thing: Any = None, location: str = ""
    ) -> Response:
        """An answer with the usual headers.

        Args:
            metadata: what the body describes, for its `odata.metadata`.
            thing: a pool, a job or a task, whose version the headers tell.
            location: where it is from now on.
        """
        headers = {"request-id": str(uuid4()), "DataServiceVersion": "3.0", **self._echo()}
        if thing is not None:
            headers |= {"ETag": thing.etag, "Last-Modified": http_date(thing.modified_at)}
        if location:
            headers |= {"DataServiceId": location, "Location": location}
        if body is None:
            return Response(status=status, headers=headers)
        world = self.service.world
        full = {"odata.metadata": f"{world.url}/$metadata#{metadata}", **body}
        if self.request.query.get("api-version") == FORMER_VERSION:
            full = _as_former(full)
        return Response(status=status, headers={**headers, "Content-Type": MEDIA_TYPE}, body=encode(full))

    def _echo(self) -> dict[str, str]:
        headers = self.request.headers
        if headers.get("return-client-request-id", "").lower() == "true" and "client-request-id" in headers:
            return {"client-request-id": headers["client-request-id"]}
        return {}


_ONLY_NEW = {"ipv6Address", "deallocated", "deallocating"}


def _as_former(body: Any) -> Any:
    """What the older version of the interface does not know is not told in it."""
    if isinstance(body, dict):
        return {name: _as_former(value) for name, value in body.items() if name not in _ONLY_NEW}
    return [_as_former(each) for each in body] if isinstance(body, list) else body


def _time(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except ValueError as error:
        raise ServiceError(400, "InvalidHeaderValue", "A date in the headers was not in the correct format.") from error
