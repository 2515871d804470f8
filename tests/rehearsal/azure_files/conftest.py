"""A stand-in of Azure Files, Microsoft's own client for it, and plain HTTP for what nodes send."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.storage.fileshare import ShareClient, ShareServiceClient

from cloudbench.rehearsal.azure_files import FilesStandIn
from cloudbench.rehearsal.clock import Clock

from .contract import Contract, contract

ACCOUNT = "rehearsal"
KEY = "cmVoZWFyc2FsLWtleS1yZWhlYXJzYWwta2V5LXJlaGVhcnNhbA=="
VERSION = "2024-08-04"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str | None:
        return self.headers.get("x-ms-error-code")


def send(method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
    """One request as a node sends it, on a connection of its own."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    try:
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        connection.request(method, target, body=body, headers=dict(headers or {}))
        response = connection.getresponse()
        answered = {name.lower(): value for name, value in response.getheaders()}
        return Answer(status=response.status, headers=answered, body=response.read())
    finally:
        connection.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stand_in(tmp_path: Path, clock: Clock) -> Iterator[FilesStandIn]:
    stand_in = FilesStandIn(tmp_path / "shares", clock, account=ACCOUNT, key=KEY)
    stand_in.start()
    yield stand_in
    stand_in.close()
    assert stand_in.faults == []


@pytest.fixture(scope="session")
def seen() -> Contract | None:
    return contract()


@pytest.fixture
def service(stand_in: FilesStandIn, seen: Contract | None) -> Iterator[ShareServiceClient]:
    hook = {"raw_response_hook": seen.check} if seen else {}
    credential = AzureNamedKeyCredential(ACCOUNT, KEY)
    with ShareServiceClient(stand_in.endpoint, credential, retry_total=0, **hook) as client:
        yield client


@pytest.fixture
def share(service: ShareServiceClient) -> ShareClient:
    return service.create_share("runs")
