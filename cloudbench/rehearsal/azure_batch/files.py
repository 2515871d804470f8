"""Files of nodes and tasks as the service hands them out."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote
from uuid import uuid4

from cloudbench.rehearsal.azure_batch.calls import Call
from cloudbench.rehearsal.azure_batch.query import listing
from cloudbench.rehearsal.azure_batch.wire import Body, ServiceError, http_date, stamp
from cloudbench.rehearsal.server import Response

_RANGE = re.compile(r"bytes=(?P<first>\d+)-(?P<last>\d*)")


class Root(NamedTuple):
    """The folder that files are told from."""

    folder: Path

    def file(self, name: str) -> Path:
        """The file of that name below it.

        Raises:
            ServiceError: 404.
        """
        path = self.folder / name.replace("\\", "/").strip("/")
        if ".." in path.relative_to(self.folder).parts or not path.exists():
            raise ServiceError(404, "FileNotFound", "The specified file does not exist.")
        return path


def list_below(call: Call, root: Root, url: Callable[[str], str]) -> Response:
    """The files of a folder, with those of its folders where `recursive` asks for them.

    Args:
        url: the address of the file of a name.
    """
    recursive = call.request.query.get("recursive", "").lower() == "true"
    paths = root.folder.rglob("*") if recursive else root.folder.iterdir()
    items = [_described(path, root, url) for path in paths if path.exists()]
    body = listing(items, call.request.query, url=call.url, model="BatchNodeFile", key="name", fields={"name"})
    return call.answer(200, body, metadata="files")


def read(call: Call, root: Root) -> Response:
    """One file, or the bytes of it that `ocp-range` asks for; its properties only where it is a HEAD."""
    path = root.file(call.ids["file"])
    information = path.stat()
    headers = {
        "request-id": str(uuid4()),
        "DataServiceVersion": "3.0",
        "ETag": f'"0x{information.st_mtime_ns:X}"',
        "Last-Modified": http_date(information.st_mtime),
        "ocp-creation-time": http_date(information.st_mtime),
        "ocp-batch-file-isdirectory": str(path.is_dir()).lower(),
        "ocp-batch-file-mode": f"{information.st_mode:o}",
        "ocp-batch-file-url": quote(call.url, safe=":/%"),
        "Content-Type": "application/octet-stream",
    }
    if path.is_dir():
        if call.request.method == "GET":
            raise ServiceError(409, "OperationInvalidForCurrentState", "The specified file is a directory.")
        return Response(status=200, headers={**headers, "Content-Length": "0"})
    if call.request.method == "HEAD":
        return Response(status=200, headers={**headers, "Content-Length": str(information.st_size)})
    return Response(status=200, headers=headers, body=_bytes(path, call.request.headers.get("ocp-range")))


def delete(call: Call, root: Root) -> Response:
    """Take one file away; a folder with all that is in it only where `recursive` says so."""
    path = root.file(call.ids["file"])
    if not path.is_dir():
        path.unlink()
    elif call.request.query.get("recursive", "").lower() == "true":
        shutil.rmtree(path)
    elif any(path.iterdir()):
        raise ServiceError(409, "DirectoryNotEmpty", "The specified directory is not empty.")
    else:
        path.rmdir()
    return call.answer(200)


def _bytes(path: Path, wanted: str | None) -> bytes:
    with path.open("rb") as file:
        if not wanted:
            return file.read()
        match = _RANGE.fullmatch(wanted.strip())
        if match is None:
            raise ServiceError(400, "InvalidHeaderValue", "The ocp-range header was not in the correct format.")
        first = int(match["first"])
        if first >= path.stat().st_size:
            raise ServiceError(
                416, "InvalidRange", "The range specified is invalid for the current size of the resource."
            )
        file.seek(first)
        return file.read(int(match["last"]) - first + 1 if match["last"] else -1)


def _described(path: Path, root: Root, url: Callable[[str], str]) -> Body:
    name = path.relative_to(root.folder).as_posix()
    body: Body = {"name": name, "url": url(quote(name)), "isDirectory": path.is_dir()}
    if not path.is_dir():
        information = path.stat()
        body["properties"] = {
            "lastModified": stamp(information.st_mtime),
            "contentLength": information.st_size,
            "contentType": "application/octet-stream",
            "fileMode": f"{information.st_mode:o}",
        }
    return body
