"""Azure on this machine: the stand-ins of Batch, Files and Resource Manager together, for one rehearsal.

The folder of a rehearsal holds its nodes and its share.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from cloudbench.rehearsal.azure_batch import BatchStandIn
from cloudbench.rehearsal.azure_batch.scenario import Scenario
from cloudbench.rehearsal.azure_files import FilesStandIn
from cloudbench.rehearsal.azure_resources import MountableShares, ResourcesStandIn
from cloudbench.rehearsal.clock import Clock
from cloudbench.rehearsal.machines import Machines
from cloudbench.rehearsal.presence import tell_endpoints

SHARE = "cloudbench"
_ACCOUNT = "rehearsal"
_SUBSCRIPTION, _REGION = "00000000-0000-0000-0000-000000000000", "rehearsal"


class AzureEndpoints(msgspec.Struct, frozen=True, kw_only=True):
    """Where the stand-ins answer, and the keys that they take. Keys of stand-ins open nothing else."""

    batch_account: str
    batch_endpoint: str
    batch_key: str
    storage_account: str
    storage_key: str
    files_endpoint: str
    share: str
    subscription: str
    region: str
    resources_endpoint: str
    resources_token: str


class AzureRehearsal:
    """The stand-ins of one rehearsal, from `start` to `close`.

    Args:
        folder: made for it, and removed by `close`.
        scenario: how the services behave; all goes well where it is None.
        containers: whether nodes may use the Docker engine.
    """

    def __init__(
        self, folder: Path, *, scenario: Scenario | None = None, containers: bool = True, clock: Clock | None = None
    ) -> None:
        self.folder = folder
        self.clock = clock or Clock()
        self._scenario = scenario or Scenario()
        self._closing = threading.Event()
        self._closed = False
        batch_key, storage_key = (base64.b64encode(secrets.token_bytes(64)).decode() for _ in range(2))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.machines = Machines(folder / "nodes", containers=containers)
        self.files = FilesStandIn(folder / "shares", self.clock, account=_ACCOUNT, key=storage_key)
        self.batch = BatchStandIn(
            self.machines, self.clock, account=_ACCOUNT, key=batch_key, scenario=self._scenario, shares=self._mounted
        )
        self.resources = ResourcesStandIn(
            self.machines,
            self.clock,
            subscription=_SUBSCRIPTION,
            token=(token := secrets.token_urlsafe(32)),
            scenario=self._scenario,
            shares=MountableShares(account=_ACCOUNT, key=storage_key, folders=self._folders),
        )
        self._keys = batch_key, storage_key
        self._token = token
        self._outage: threading.Thread | None = None

    def start(self) -> AzureEndpoints:
        """Begin to serve, with the share made; where, and with which keys."""
        batch_key, storage_key = self._keys
        endpoints = AzureEndpoints(
            batch_account=_ACCOUNT,
            batch_endpoint=self.batch.start(),
            batch_key=batch_key,
            storage_account=_ACCOUNT,
            storage_key=storage_key,
            files_endpoint=self.files.start(),
            share=SHARE,
            subscription=_SUBSCRIPTION,
            region=_REGION,
            resources_endpoint=self.resources.start(),
            resources_token=self._token,
        )
        self.files.make_share(SHARE)
        tell_endpoints(self.folder, endpoints)
        if self._scenario.share_outage_after_s is not None:
            self._outage = threading.Thread(target=self._break_share, name="share outage", daemon=True)
            self._outage.start()
        return endpoints

    def close(self) -> None:
        """End the stand-ins and all their nodes, and remove the folder."""
        if self._closed:
            return
        self._closed = True
        self._closing.set()
        self.clock.wake()
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            stack.callback(self.files.close)
            stack.callback(self.machines.close)
            stack.callback(self.batch.close)
            stack.callback(self.resources.close)
            if self._outage:
                stack.callback(self._outage.join)

    def _folders(self) -> dict[str, Path]:
        """The folder behind each share that virtual machines can mount."""
        return {SHARE: self.files.folder(SHARE)}

    def _mounted(self, mount: Mapping[str, Any]) -> Path:
        """The folder behind an entry of a pool's `mountConfiguration`.

        Raises:
            OSError: why it cannot be mounted.
        """
        if (share := mount.get("azureFileShareConfiguration")) is not None:
            name = str(share["azureFileUrl"]).rstrip("/").rpartition("/")[2]
            self._check_key(share)
            try:
                return self.files.folder(name)
            except LookupError as error:
                raise FileNotFoundError(str(error)) from error
        if (container := mount.get("azureBlobFileSystemConfiguration")) is not None:
            self._check_key(container)
            folder = self.folder / "containers" / Path(container["containerName"]).name
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        raise FileNotFoundError(f"the stand-ins have no {', '.join(mount)}")

    def _check_key(self, mount: Mapping[str, Any]) -> None:
        if (mount.get("accountName"), mount.get("accountKey")) != (_ACCOUNT, self._keys[1]):
            raise PermissionError("the account name or its key is wrong")

    def _break_share(self) -> None:
        """The share stops answering for a while, as the scenario says."""
        begin = self.clock.now() + (self._scenario.share_outage_after_s or 0.0)
        self.clock.wait_until(begin, unless=self._closing.is_set)
        if not self._closing.is_set():
            self.files.outage = "hangs"
            self.clock.wait_until(begin + self._scenario.share_outage_s, unless=self._closing.is_set)
            self.files.outage = None
