"""What can be asked of shares, and of the account's File service as a whole."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from email.utils import formatdate

from cloudbench.rehearsal.azure_files import wire
from cloudbench.rehearsal.azure_files.call import Call
from cloudbench.rehearsal.azure_files.errors import invalid_header
from cloudbench.rehearsal.azure_files.shares import Share
from cloudbench.rehearsal.server import Request, Response

DEFAULT_QUOTA_GIB = 5120
LARGEST_QUOTA_GIB = 102400
ACCESS_TIER = "TransactionOptimized"


def create(call: Call) -> Response:
    """Make an empty share."""
    metadata, quota_gib = wire.metadata_of(call.request), _quota_gib(call.request) or DEFAULT_QUOTA_GIB
    share = call.shares.create(call.share_name, metadata=metadata, quota_gib=quota_gib)
    return Response(status=201, headers=wire.share_headers(share))


def properties(call: Call) -> Response:
    """What is known of a share."""
    share = call.share
    headers = {**wire.share_headers(share), **wire.metadata_headers(share.metadata)}
    headers |= {"x-ms-share-quota": str(share.quota_gib), "x-ms-access-tier": ACCESS_TIER}
    headers |= {"x-ms-enabled-protocols": "SMB"}
    return Response(status=200, headers={**headers, "x-ms-lease-status": "unlocked", "x-ms-lease-state": "available"})


def set_properties(call: Call) -> Response:
    """Set the quota of a share."""
    share = call.share
    share.change(quota_gib=_quota_gib(call.request))
    return Response(status=200, headers=wire.share_headers(share))


def set_metadata(call: Call) -> Response:
    """Put other metadata in the place of a share's."""
    share = call.share
    share.change(metadata=wire.metadata_of(call.request))
    return Response(status=200, headers=wire.share_headers(share))


def statistics(call: Call) -> Response:
    """How many bytes a share's files hold together."""
    share = call.share
    usage = {"ShareUsageBytes": str(share.usage_bytes())}
    return wire.xml_response(wire.nested("ShareStats", usage), wire.share_headers(share))


def delete(call: Call) -> Response:
    """Remove a share with all that lies in it."""
    call.shares.delete(call.share)
    return Response(status=202)


def list_shares(call: Call) -> Response:
    """One page of the account's shares, sorted by name; the marker is the name that comes next."""
    request = call.request
    asked = wire.includes_of(request, ("metadata", "snapshots", "deleted"))
    prefix, marker = request.query.get("prefix", ""), request.query.get("marker", "")
    found = [share for share in call.shares if share.name.startswith(prefix) and share.name >= marker]
    size = wire.page_size_of(request)
    root = wire.element("EnumerationResults", ServiceEndpoint=f"{call.endpoint}/")
    root.append(wire.element("Prefix", prefix))
    root.append(wire.element("Marker", marker))
    if "maxresults" in request.query:
        root.append(wire.element("MaxResults", str(size)))
    listed = wire.element("Shares")
    listed.extend(_listed(share, with_metadata="metadata" in asked) for share in found[:size])
    root.append(listed)
    root.append(wire.element("NextMarker", found[size].name if len(found) > size else ""))
    return wire.xml_response(root)


def service_properties(_: Call) -> Response:
    """The properties of the File service, as a new account has them."""
    root = wire.element("StorageServiceProperties")
    off = {"Version": "1.0", "Enabled": "false"}
    for name in ("HourMetrics", "MinuteMetrics"):
        metrics = wire.nested(name, off)
        metrics.append(wire.nested("RetentionPolicy", {"Enabled": "false"}))
        root.append(metrics)
    root.append(wire.element("Cors"))
    return wire.xml_response(root)


def _listed(share: Share, *, with_metadata: bool) -> ElementTree.Element:
    entry = wire.nested("Share", {"Name": share.name})
    properties = {
        "Last-Modified": formatdate(share.modified_at, usegmt=True),
        "Etag": share.etag,
        "Quota": str(share.quota_gib),
        "AccessTier": ACCESS_TIER,
        "LeaseStatus": "unlocked",
        "LeaseState": "available",
        "EnabledProtocols": "SMB",
    }
    entry.append(wire.nested("Properties", properties))
    if with_metadata:
        entry.append(wire.nested("Metadata", share.metadata))
    return entry


def _quota_gib(request: Request) -> int | None:
    quota_gib = wire.number_of(request, "x-ms-share-quota")
    if quota_gib is not None and not 1 <= quota_gib <= LARGEST_QUOTA_GIB:
        raise invalid_header("x-ms-share-quota", str(quota_gib))
    return quota_gib
