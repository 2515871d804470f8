"""AWS on this machine with all that a run finds there: machines, a bucket and a file system, for one rehearsal."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from pathlib import Path

import msgspec

from cloudbench.rehearsal.aws.cloud import REGION
from cloudbench.rehearsal.aws.scenario import Scenario
from cloudbench.rehearsal.aws.stand_in import AwsStandIn
from cloudbench.rehearsal.clock import Clock
from cloudbench.rehearsal.machines import Machines
from cloudbench.rehearsal.presence import tell_endpoints

BUCKET, FILE_SYSTEM = "cloudbench", "fs-rehearsal"


class AwsEndpoints(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the stand-in answers, and as whom it is asked. Keys of a stand-in open nothing else."""

    endpoint: str
    access_key: str
    secret_key: str
    region: str
    bucket: str
    file_system: str


class AwsRehearsal:
    """The stand-in of one rehearsal, from `start` to `close`.

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
        self._closed = False
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file_systems = folder / "file-systems"
        (file_systems / FILE_SYSTEM).mkdir(parents=True)
        self.machines = Machines(folder / "nodes", containers=containers)
        self._key = f"REHEARSAL{secrets.token_hex(6).upper()}", secrets.token_urlsafe(32)
        self.aws = AwsStandIn(self.machines, self.clock, scenario=scenario, file_systems=file_systems, key=self._key)

    def start(self) -> AwsEndpoints:
        """Begin to serve, with the bucket made; where, and with which keys."""
        endpoints = AwsEndpoints(
            endpoint=self.aws.start(),
            access_key=self._key[0],
            secret_key=self._key[1],
            region=REGION,
            bucket=BUCKET,
            file_system=FILE_SYSTEM,
        )
        self.aws.make_bucket(BUCKET)
        tell_endpoints(self.folder, endpoints)
        return endpoints

    def close(self) -> None:
        """End the stand-in and all its nodes, and remove the folder."""
        if self._closed:
            return
        self._closed = True
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            stack.callback(self.machines.close)
            stack.callback(self.aws.close)
