"""What can be asked of a file: create, read, write and clear ranges, resize, properties, metadata, delete."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from cloudbench.rehearsal.azure_files import wire
from cloudbench.rehearsal.azure_files.call import Call
from cloudbench.rehearsal.azure_files.errors import RefusedError, invalid_header, missing_header
from cloudbench.rehearsal.azure_files.shares import Item, Said
from cloudbench.rehearsal.server import Request, Response

LARGEST_WRITE_BYTES = 4 * wire.MIB
RANGE_UNIT_BYTES = 512

_ENCRYPTED = {"x-ms-request-server-encrypted": "true"}


def create(call: Call) -> Response:
    """Make a file of the given size, all zeros; in the place of one that is there."""
    request, share, names = call.request, call.share, call.names
    size = wire.file_size_of(request)
    if size is None:
        raise missing_header("x-ms-content-length")
    kind = wire.required(request, "x-ms-type")
    if kind.lower() != "file":
        raise invalid_header("x-ms-type", kind)
    said = wire.said_of(request, call.now, new=True, directory=False)
    existing = share.find(names)
    if existing is not None and existing.is_directory:
        raise RefusedError("ResourceTypeMismatch")
    if existing is not None and not call.grant.may("w"):
        raise RefusedError("AuthorizationPermissionMismatch")
    path = share.place(names) if existing is None else existing.path
    with path.open("wb") as file:
        file.truncate(size)
    share.forget(path)
    item = share.note(path, said)
    return Response(status=201, headers={**wire.version_headers(item), **wire.smb_headers(item), **_ENCRYPTED})


def read(call: Call) -> Response:
    """The file's bytes, or those of one range."""
    item = call.file
    headers = wire.file_headers(item)
    span = wire.range_of(call.request)
    wants_md5 = call.request.headers.get("x-ms-range-get-content-md5", "").lower() == "true"
    if span is None:
        if wants_md5:
            raise missing_header("Range")
        return Response(status=200, headers=headers, body=_bytes(item, 0, item.size))
    first, last = span[0], item.size - 1 if span[1] is None else min(span[1], item.size - 1)
    if first >= item.size:
        raise RefusedError("InvalidRange", headers={"Content-Range": f"bytes */{item.size}"})
    body = _bytes(item, first, last + 1)
    if "Content-MD5" in headers:
        headers["x-ms-content-md5"] = headers.pop("Content-MD5")
    if wants_md5:
        if last + 1 - first > LARGEST_WRITE_BYTES:
            raise invalid_header("x-ms-range-get-content-md5", "true")
        headers["Content-MD5"] = _md5(body)
    headers["Content-Range"] = f"bytes {first}-{first + len(body) - 1}/{item.size}"
    return Response(status=206, headers=headers, body=body)


def properties(call: Call) -> Response:
    """What is known of a file; its size is the Content-Length."""
    item = call.file
    headers = {**wire.file_headers(item), "x-ms-type": "File", "Content-Length": str(item.size)}
    return Response(status=200, headers=headers)


def delete(call: Call) -> Response:
    """Remove a file."""
    item = call.file
    item.path.unlink()
    call.share.forget(item.path)
    return Response(status=202)


def set_properties(call: Call) -> Response:
    """Set headers, attributes and times of a file, and its size where one is given; headers not given are cleared."""
    item, size = call.file, wire.file_size_of(call.request)
    said = wire.said_of(call.request, call.now, new=False, directory=False)
    if size is not None:
        os.truncate(item.path, size)
    item = call.share.note(item.path, said)
    return Response(status=200, headers={**wire.version_headers(item), **wire.smb_headers(item), **_ENCRYPTED})


def set_metadata(call: Call) -> Response:
    """Put other metadata in the place of a file's."""
    item = call.share.note(call.file.path, Said(metadata=wire.metadata_of(call.request)))
    return Response(status=200, headers={**wire.version_headers(item), **_ENCRYPTED})


def write_range(call: Call) -> Response:
    """Write or clear one range of a file, inside its size."""
    request, item = call.request, call.file
    first, last = wire.write_range_of(request)
    mode = wire.required(request, "x-ms-write").lower()
    if mode not in ("update", "clear"):
        raise invalid_header("x-ms-write", mode)
    headers = {}
    if mode == "update":
        headers["Content-MD5"] = _check_body(request, last + 1 - first)
    elif request.body:
        raise invalid_header("Content-Length", str(len(request.body)))
    if last >= item.size:
        raise RefusedError("InvalidRange")
    _write(item.path, first, last + 1 - first, request.body)
    keeps_time = request.headers.get("x-ms-file-last-write-time", "now").lower() == "preserve"
    item = call.share.note(item.path, Said(written_at=item.written_at if keeps_time else None))
    headers |= {**wire.version_headers(item), **_ENCRYPTED, "x-ms-file-last-write-time": wire.ticks(item.written_at)}
    return Response(status=201, headers=headers)


def list_ranges(call: Call) -> Response:
    """The ranges of a file that hold anything but zeros, in units of 512 bytes."""
    item = call.file
    span = wire.range_of(call.request) or (0, None)
    end = item.size if span[1] is None else min(span[1] + 1, item.size)
    root = wire.element("Ranges")
    for first, last in _written(item.path, span[0], end):
        root.append(wire.nested("Range", {"Start": str(first), "End": str(last)}))
    return wire.xml_response(root, {**wire.version_headers(item), "x-ms-content-length": str(item.size)})


def _check_body(request: Request, length: int) -> str:
    """The MD5 of a body that is as long as its range, and what its sender meant to send."""
    if length > LARGEST_WRITE_BYTES or len(request.body) > LARGEST_WRITE_BYTES:
        raise RefusedError("RequestBodyTooLarge", details={"MaxLimit": str(LARGEST_WRITE_BYTES)})
    if len(request.body) != length:
        raise invalid_header("Content-Length", str(len(request.body)))
    digest = _md5(request.body)
    if request.headers.get("content-md5", digest) != digest:
        raise RefusedError("Md5Mismatch", details={"UserSpecifiedMd5": request.headers["content-md5"]})
    return digest


def _write(path: Path, first: int, length: int, body: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(first)
        if body:
            file.write(body)
            return
        while length > 0:
            length -= file.write(bytes(min(length, wire.MIB)))


def _bytes(item: Item, first: int, end: int) -> bytes:
    with item.path.open("rb") as file:
        file.seek(first)
        return file.read(end - first)


def _written(path: Path, first: int, end: int) -> Iterator[tuple[int, int]]:
    start = None
    at = first - first % RANGE_UNIT_BYTES
    with path.open("rb") as file:
        file.seek(at)
        while at < end:
            chunk = file.read(min(wire.MIB, end - at))
            if not chunk:
                break
            for offset in range(0, len(chunk), RANGE_UNIT_BYTES):
                if chunk[offset : offset + RANGE_UNIT_BYTES].strip(b"\0"):
                    start = at + offset if start is None else start
                elif start is not None:
                    yield start, at + offset - 1
                    start = None
            at += len(chunk)
    if start is not None:
        yield start, at - 1


def _md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
