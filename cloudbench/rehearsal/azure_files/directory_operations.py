"""What can be asked of a directory: create, list, properties, metadata, delete."""

from __future__ import annotations

import base64
import xml.etree.ElementTree as ElementTree
from email.utils import formatdate

from cloudbench.rehearsal.azure_files import wire
from cloudbench.rehearsal.azure_files.call import Call
from cloudbench.rehearsal.azure_files.errors import RefusedError
from cloudbench.rehearsal.azure_files.shares import Item, Said
from cloudbench.rehearsal.server import Response

_ENCRYPTED = {"x-ms-request-server-encrypted": "true"}
_INCLUDES = ("Timestamps", "Etag", "Attributes", "PermissionKey")


def create(call: Call) -> Response:
    """Make an empty directory."""
    share, names = call.share, call.names
    said = wire.said_of(call.request, call.now, new=True, directory=True)
    if share.find(names) is not None:
        raise RefusedError("ResourceAlreadyExists")
    path = share.place(names)
    path.mkdir()
    share.forget(path)
    item = share.note(path, said)
    return Response(status=201, headers={**wire.version_headers(item), **wire.smb_headers(item), **_ENCRYPTED})


def properties(call: Call) -> Response:
    """What is known of a directory."""
    item = call.directory
    headers = {**wire.version_headers(item), **wire.smb_headers(item), **wire.metadata_headers(item.known.metadata)}
    return Response(status=200, headers={**headers, "x-ms-server-encrypted": "true"})


def set_properties(call: Call) -> Response:
    """Set attributes and times of a directory."""
    said = wire.said_of(call.request, call.now, new=False, directory=True)
    item = call.share.note(call.directory.path, said)
    return Response(status=200, headers={**wire.version_headers(item), **wire.smb_headers(item), **_ENCRYPTED})


def set_metadata(call: Call) -> Response:
    """Put other metadata in the place of a directory's."""
    item = call.share.note(call.directory.path, Said(metadata=wire.metadata_of(call.request)))
    return Response(status=200, headers={**wire.version_headers(item), **_ENCRYPTED})


def delete(call: Call) -> Response:
    """Remove a directory that holds nothing; the root goes with its share only."""
    item = call.directory
    if not call.names:
        raise RefusedError("InvalidUri")
    if any(item.path.iterdir()):
        raise RefusedError("DirectoryNotEmpty")
    item.path.rmdir()
    call.share.forget(item.path)
    return Response(status=202)


def list_entries(call: Call) -> Response:
    """One page of a directory, sorted by name."""
    request, directory = call.request, call.directory
    asked = wire.includes_of(request, _INCLUDES)
    extended = request.headers.get("x-ms-file-extended-info", "").lower() == "true" or bool(asked)
    prefix, marker = request.query.get("prefix", ""), request.query.get("marker", "")
    after = _after(marker)
    found = [
        item
        for item in call.share.items(directory)
        if item.name.casefold().startswith(prefix.casefold()) and _place(item) > after
    ]
    size = wire.page_size_of(request)
    entries = wire.element("Entries")
    entries.extend(_entry(item, asked, extended) for item in found[:size])
    root = wire.element(
        "EnumerationResults",
        ServiceEndpoint=f"{call.endpoint}/",
        ShareName=call.share.name,
        DirectoryPath="/".join(call.names),
    )
    root.append(wire.element("Prefix", prefix))
    root.append(wire.element("Marker", marker))
    if "maxresults" in request.query:
        root.append(wire.element("MaxResults", str(size)))
    root.append(entries)
    root.append(wire.element("NextMarker", _marker(found[size - 1]) if len(found) > size else ""))
    if extended:
        root.append(wire.element("DirectoryId", str(directory.number)))
    return wire.xml_response(root)


def _entry(item: Item, asked: set[str], extended: bool) -> ElementTree.Element:
    entry = wire.element("Directory" if item.is_directory else "File")
    entry.append(wire.element("Name", item.name))
    if extended:
        entry.append(wire.element("FileId", str(item.number)))
    properties = {} if item.is_directory else {"Content-Length": str(item.size)}
    if "timestamps" in asked:
        properties |= {
            "CreationTime": wire.ticks(item.known.created_at),
            "LastAccessTime": wire.ticks(item.written_at),
            "LastWriteTime": wire.ticks(item.written_at),
            "ChangeTime": wire.ticks(item.modified_at),
            "Last-Modified": formatdate(item.modified_at, usegmt=True),
        }
    if "etag" in asked:
        properties["Etag"] = item.etag
    entry.append(wire.nested("Properties", properties))
    if "attributes" in asked:
        entry.append(wire.element("Attributes", item.known.attributes))
    if "permissionkey" in asked:
        entry.append(wire.element("PermissionKey", wire.PERMISSION_KEY))
    return entry


def _place(item: Item) -> str:
    """Where an item stands in a listing; two names that differ in case only, which a node can make, stay two."""
    return f"{item.name.casefold()}\0{item.name}"


def _marker(item: Item) -> str:
    return base64.urlsafe_b64encode(_place(item).encode()).decode()


def _after(marker: str) -> str:
    try:
        return base64.b64decode(marker, altchars=b"-_", validate=True).decode()
    except ValueError as error:
        raise RefusedError("InvalidQueryParameterValue", details={"QueryParameterName": "marker"}) from error
