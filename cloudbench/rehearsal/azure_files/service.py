"""The File service of one storage account: signatures, routes and outages around what the operations do."""

from __future__ import annotations

import base64
import math
import re
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import msgspec

from cloudbench.rehearsal.azure_files import directory_operations as directories
from cloudbench.rehearsal.azure_files import file_operations as files
from cloudbench.rehearsal.azure_files import share_operations as shares
from cloudbench.rehearsal.azure_files.authorization import Grant, grant
from cloudbench.rehearsal.azure_files.call import Call
from cloudbench.rehearsal.azure_files.errors import RefusedError, invalid_header
from cloudbench.rehearsal.azure_files.shares import Shares
from cloudbench.rehearsal.clock import Clock
from cloudbench.rehearsal.server import HttpServer, Request, Response

OLDEST_VERSION = "2019-02-02"
NO_PERMISSION = ""  # the account's key alone may do it

Outage = Literal["hangs", "busy"]

_CONDITIONS = ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since")
_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}")


class _Operation(msgspec.Struct, frozen=True):
    run: Callable[[Call], Response]
    permissions: str


# By what the path and `restype` name, the method, and `comp`; with the SAS permissions of which one is enough.
_OPERATIONS = {
    ("service", "GET", "list"): _Operation(shares.list_shares, NO_PERMISSION),
    ("service", "GET", "properties"): _Operation(shares.service_properties, NO_PERMISSION),
    ("share", "PUT", ""): _Operation(shares.create, NO_PERMISSION),
    ("share", "GET", ""): _Operation(shares.properties, NO_PERMISSION),
    ("share", "DELETE", ""): _Operation(shares.delete, NO_PERMISSION),
    ("share", "PUT", "properties"): _Operation(shares.set_properties, NO_PERMISSION),
    ("share", "PUT", "metadata"): _Operation(shares.set_metadata, NO_PERMISSION),
    ("share", "GET", "stats"): _Operation(shares.statistics, NO_PERMISSION),
    ("directory", "PUT", ""): _Operation(directories.create, "cw"),
    ("directory", "GET", ""): _Operation(directories.properties, "r"),
    ("directory", "DELETE", ""): _Operation(directories.delete, "d"),
    ("directory", "PUT", "properties"): _Operation(directories.set_properties, "w"),
    ("directory", "PUT", "metadata"): _Operation(directories.set_metadata, "w"),
    ("directory", "GET", "list"): _Operation(directories.list_entries, "l"),
    ("file", "PUT", ""): _Operation(files.create, "cw"),
    ("file", "GET", ""): _Operation(files.read, "r"),
    ("file", "HEAD", ""): _Operation(files.properties, "r"),
    ("file", "DELETE", ""): _Operation(files.delete, "d"),
    ("file", "PUT", "properties"): _Operation(files.set_properties, "w"),
    ("file", "PUT", "metadata"): _Operation(files.set_metadata, "w"),
    ("file", "PUT", "range"): _Operation(files.write_range, "w"),
    ("file", "GET", "rangelist"): _Operation(files.list_ranges, "r"),
}


class FilesStandIn:
    """Azure Files of one storage account on this machine.

    Real clients reach it with its endpoint and the account's key; an endpoint without the account's name in it wants
    the name in the credential: `ShareServiceClient(endpoint, AzureNamedKeyCredential(account, key))`, or
    `credential={"account_name": account, "account_key": key}`. A SAS for it (`generate_file_sas`, `generate_share_sas`
    with the same account and key) must not insist on https; `f"{endpoint}/{share}/{path}?{sas}"` is the URL.

    Args:
        root: the folder that the shares' folders are made in.
        key: in base64, as accounts have them.
    """

    def __init__(self, root: Path, clock: Clock, *, account: str, key: str) -> None:
        self.account = account
        self.endpoint = ""
        self._key = base64.b64decode(key, validate=True)
        self._clock = clock
        self._shares = Shares(root, clock)
        self._lock = threading.Lock()
        self._outage: Outage | None = None
        self._server = HttpServer(self._answer)

    def start(self) -> str:
        """Begin to serve; the endpoint, `http://127.0.0.1:PORT`."""
        self.endpoint = self._server.start()
        return self.endpoint

    def close(self) -> None:
        """End all requests, those that hang too; the shares' folders stay."""
        self._server.closing.set()
        self._clock.wake()
        self._server.close()

    def folder(self, share: str) -> Path:
        """The folder that is the share: what nodes mount.

        Raises:
            LookupError: there is no such share.
        """
        with self._lock:
            try:
                return self._shares.get(share).folder
            except RefusedError as error:
                raise LookupError(f"there is no share {share}") from error

    def make_share(self, share: str) -> Path:
        """A new share, empty; its folder."""
        with self._lock:
            return self._shares.create(share, metadata={}, quota_gib=shares.DEFAULT_QUOTA_GIB).folder

    @property
    def faults(self) -> list[Exception]:
        """What went wrong in the stand-in itself; a request that met one was answered with 500."""
        return self._server.faults

    @property
    def outage(self) -> Outage | None:
        """How the service fails: `hangs` leaves requests without an answer, `busy` answers 503, None serves them.

        A request that hangs is dropped without an answer when the outage ends; one that names a `timeout` is told
        after it that its time is over. A mounted share goes on: its folder is this machine's.
        """
        return self._outage

    @outage.setter
    def outage(self, outage: Outage | None) -> None:
        self._outage = outage
        self._clock.wake()

    def _answer(self, request: Request) -> Response | None:
        try:
            if self._outage == "hangs":
                self._hang(request)
                return None
            response = self._serve(request)
        except RefusedError as refusal:
            response = refusal.response()
        except (FileNotFoundError, NotADirectoryError):  # a node has removed it in between
            response = RefusedError("ResourceNotFound").response()
        return msgspec.structs.replace(response, headers={**response.headers, **_usual_headers(request)})

    def _hang(self, request: Request) -> None:
        timeout = request.query.get("timeout", "")
        until = self._clock.now() + int(timeout) if timeout.isdecimal() else math.inf
        self._clock.wait_until(until, unless=lambda: self._outage != "hangs" or self._server.closing.is_set())
        if self._outage == "hangs" and not self._server.closing.is_set():
            raise RefusedError("OperationTimedOut")

    def _serve(self, request: Request) -> Response:
        if self._outage == "busy":
            raise RefusedError("ServerBusy")
        now = self._clock.now()
        allowed = grant(request, account=self.account, key=self._key, now=now, real_now=time.time())
        _check_headers(request)
        share_name, _, path = _path(request).partition("/")
        kind, operation = _operation(request, bool(share_name), bool(path))
        _check_grant(allowed, kind, operation)
        call = Call(
            request=request,
            shares=self._shares,
            share_name=share_name,
            path=path,
            grant=allowed,
            endpoint=self.endpoint,
            now=now,
        )
        with self._lock:
            return operation.run(call)


def _check_headers(request: Request) -> None:
    version = request.headers.get("x-ms-version", request.query.get("sv", ""))
    if not _VERSION.fullmatch(version) or version < OLDEST_VERSION:
        raise invalid_header("x-ms-version", version)
    if any(name in request.headers for name in _CONDITIONS):
        raise RefusedError("ConditionHeadersNotSupported")
    if "sharesnapshot" in request.query or "prevsharesnapshot" in request.query:
        raise RefusedError("ShareSnapshotNotFound")


def _path(request: Request) -> str:
    """Share and path in it, without slashes around them."""
    try:
        return unquote(request.path, errors="strict").strip("/")
    except UnicodeDecodeError:
        raise RefusedError("InvalidUri") from None


def _operation(request: Request, in_share: bool, below: bool) -> tuple[str, _Operation]:
    """What a request asks of what, by its method and query and by whether its path leads into a share, and below it."""
    kind, comp = request.query.get("restype", "").lower(), request.query.get("comp", "").lower()
    fits = {"service": not in_share, "share": in_share and not below, "directory": in_share, "": in_share == below}
    if not fits.get(kind, False):
        raise RefusedError("InvalidUri")
    kind = kind or ("file" if in_share else "service")
    # Only a file's HEAD differs from its GET.
    method = "GET" if request.method == "HEAD" and (kind != "file" or comp) else request.method
    operation = _OPERATIONS.get((kind, method, comp))
    if operation is None:
        known = {known_comp for known_kind, _, known_comp in _OPERATIONS if known_kind == kind}
        raise RefusedError("UnsupportedHttpVerb" if comp in known else "UnsupportedQueryParameter")
    return kind, operation


def _check_grant(allowed: Grant, kind: str, operation: _Operation) -> None:
    if allowed.resource == "file" and kind != "file":
        raise RefusedError("AuthorizationResourceTypeMismatch")
    if not allowed.may(operation.permissions):
        raise RefusedError("AuthorizationPermissionMismatch" if operation.permissions else "AuthorizationFailure")


def _usual_headers(request: Request) -> dict[str, str]:
    headers = {"x-ms-request-id": str(uuid.uuid4())}
    version = request.headers.get("x-ms-version", request.query.get("sv"))
    if version:
        headers["x-ms-version"] = version
    if "x-ms-client-request-id" in request.headers:
        headers["x-ms-client-request-id"] = request.headers["x-ms-client-request-id"]
    return headers
