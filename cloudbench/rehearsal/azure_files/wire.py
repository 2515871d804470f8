"""Headers and XML of Azure Files: what requests say in them, and how answers put things."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from email.utils import formatdate

from cloudbench.rehearsal.azure_files.errors import RefusedError, invalid_header, missing_header
from cloudbench.rehearsal.azure_files.shares import Item, Said, Share
from cloudbench.rehearsal.server import Request, Response

MIB = 1024 * 1024
LARGEST_FILE_BYTES = 4 * 1024 * 1024 * MIB
LARGEST_METADATA_BYTES = 8 * 1024
LARGEST_PAGE = 5000
DEFAULT_CONTENT_TYPE = "application/octet-stream"
PERMISSION_KEY = "0*0"

_HTTP_HEADERS = {
    "x-ms-content-type": "Content-Type",
    "x-ms-content-encoding": "Content-Encoding",
    "x-ms-content-language": "Content-Language",
    "x-ms-cache-control": "Cache-Control",
    "x-ms-content-md5": "Content-MD5",
    "x-ms-content-disposition": "Content-Disposition",
}
_METADATA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


def metadata_of(request: Request) -> dict[str, str]:
    """The metadata that a request sets; {} where it names none."""
    prefix = "x-ms-meta-"
    metadata = {name[len(prefix) :]: value for name, value in request.headers.items() if name.startswith(prefix)}
    if not all(_METADATA_NAME.fullmatch(name) for name in metadata):
        raise RefusedError("InvalidMetadata")
    if sum(len(name) + len(value) for name, value in metadata.items()) > LARGEST_METADATA_BYTES:
        raise RefusedError("MetadataTooLarge")
    return metadata


def http_headers_of(request: Request) -> dict[str, str]:
    """The headers that a file is to be given back with, by the names they then have."""
    return {ours: request.headers[sent] for sent, ours in _HTTP_HEADERS.items() if request.headers.get(sent)}


def required(request: Request, header: str) -> str:
    """A header that the request must have."""
    if header not in request.headers:
        raise missing_header(header)
    return request.headers[header]


def number_of(request: Request, header: str) -> int | None:
    """A header that holds a count; None where it is not sent."""
    text = request.headers.get(header)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise invalid_header(header, text)
    return int(text)


def file_size_of(request: Request) -> int | None:
    """The size in bytes that a file is to have; None where the request leaves it."""
    size = number_of(request, "x-ms-content-length")
    if size is not None and size > LARGEST_FILE_BYTES:
        raise RefusedError("OutOfRangeInput")
    return size


def said_of(request: Request, now: float, *, new: bool, directory: bool) -> Said:
    """What a request that creates a file or directory, or sets its properties, says of it."""
    created_at = _time_of(request, "x-ms-file-creation-time", now)
    return Said(
        metadata=metadata_of(request) if new else None,
        http_headers=None if directory else http_headers_of(request),
        attributes=_attributes_of(request, directory=directory),
        created_at=now if new and created_at is None else created_at,
        written_at=_time_of(request, "x-ms-file-last-write-time", now),
    )


def range_of(request: Request) -> tuple[int, int | None] | None:
    """First and last byte of the range that a request names, the last None where it is open."""
    header = "x-ms-range" if "x-ms-range" in request.headers else "range"
    if header not in request.headers:
        return None
    found = _RANGE.fullmatch(request.headers[header])
    if found is None or (found[2] and int(found[2]) < int(found[1])):
        raise invalid_header(header, request.headers[header])
    return int(found[1]), int(found[2]) if found[2] else None


def write_range_of(request: Request) -> tuple[int, int]:
    """First and last byte of what a request writes."""
    span = range_of(request)
    if span is None:
        raise missing_header("x-ms-range")
    first, last = span
    if last is None:
        raise invalid_header("x-ms-range", request.headers.get("x-ms-range", request.headers.get("range", "")))
    return first, last


def page_size_of(request: Request) -> int:
    """How many entries a listing may give at once."""
    text = request.query.get("maxresults", str(LARGEST_PAGE))
    if not re.fullmatch(r"-?\d{1,9}", text):
        raise RefusedError("InvalidQueryParameterValue", details=_parameter("maxresults", text))
    if int(text) < 1:
        raise RefusedError("OutOfRangeQueryParameterValue", details=_parameter("maxresults", text))
    return min(int(text), LARGEST_PAGE)


def includes_of(request: Request, known: Iterable[str]) -> set[str]:
    """What a listing is asked to tell beside names, in lower case."""
    asked = {name for name in request.query.get("include", "").lower().split(",") if name}
    if not asked <= {name.lower() for name in known}:
        raise RefusedError("InvalidQueryParameterValue", details=_parameter("include", request.query["include"]))
    return asked


def share_headers(share: Share) -> dict[str, str]:
    """ETag and Last-Modified of a share."""
    return {"ETag": share.etag, "Last-Modified": formatdate(share.modified_at, usegmt=True)}


def version_headers(item: Item) -> dict[str, str]:
    """ETag and Last-Modified of a file or directory."""
    return {"ETag": item.etag, "Last-Modified": formatdate(item.modified_at, usegmt=True)}


def smb_headers(item: Item) -> dict[str, str]:
    """What SMB knows of a file or directory."""
    return {
        "x-ms-file-attributes": item.known.attributes,
        "x-ms-file-creation-time": ticks(item.known.created_at),
        "x-ms-file-last-write-time": ticks(item.written_at),
        "x-ms-file-change-time": ticks(item.modified_at),
        "x-ms-file-permission-key": PERMISSION_KEY,
        "x-ms-file-id": str(item.number),
        "x-ms-file-parent-id": str(item.parent_number),
    }


def metadata_headers(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata as an answer gives it."""
    return {f"x-ms-meta-{name}": value for name, value in metadata.items()}


def file_headers(item: Item) -> dict[str, str]:
    """All that a file's properties are, but for its length."""
    return {
        **version_headers(item),
        **smb_headers(item),
        **metadata_headers(item.known.metadata),
        "Content-Type": DEFAULT_CONTENT_TYPE,
        **item.known.http_headers,
        "Accept-Ranges": "bytes",
        "x-ms-server-encrypted": "true",
        "x-ms-lease-status": "unlocked",
        "x-ms-lease-state": "available",
    }


def ticks(seconds: float) -> str:
    """A time with the seven decimals that Azure Files writes."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f") + "0Z"


def element(name: str, text: str = "", **attributes: str) -> ElementTree.Element:
    """One XML element."""
    made = ElementTree.Element(name, attributes)
    made.text = text or None
    return made


def nested(name: str, fields: Mapping[str, str]) -> ElementTree.Element:
    """One XML element with one element for each field."""
    made = element(name)
    made.extend(element(field, text) for field, text in fields.items())
    return made


def xml_response(root: ElementTree.Element, headers: Mapping[str, str] | None = None) -> Response:
    """200 with an XML document."""
    body = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return Response(status=200, headers={"Content-Type": "application/xml", **(headers or {})}, body=body)


def _parameter(name: str, value: str) -> dict[str, str]:
    return {"QueryParameterName": name, "QueryParameterValue": value}


def _time_of(request: Request, header: str, now: float) -> float | None:
    text = request.headers.get(header, "preserve")
    if text.lower() in ("now", "preserve"):
        return now if text.lower() == "now" else None
    try:
        moment, _, fraction = text.rstrip("Z").partition(".")
        seconds = datetime.strptime(moment, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
        return seconds + float(f"0.{fraction or 0}")
    except ValueError:
        raise invalid_header(header, text) from None


def _attributes_of(request: Request, *, directory: bool) -> str | None:
    """NTFS attributes; None where the request leaves them to the service."""
    given = [name.strip() for name in request.headers.get("x-ms-file-attributes", "None").split("|")]
    named = [name for name in given if name.lower() not in ("none", "directory", "preserve")]
    if not named:
        return None
    return " | ".join(["Directory", *named] if directory else named)
