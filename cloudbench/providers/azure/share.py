"""The share: orders for the nodes of an attempt, and what they push while they run.

runs/NAME/cloudbench-node.pyz  job.json  secret  push.json     what the nodes are given, by read-only addresses
runs/NAME/node-K/                                              what node K pushes; brought home by `collect`

Whose an attempt is stands in the folder's metadata, which is written with the folder itself.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from cloudbench.errors import UsageError
from cloudbench.plan import RunPlan, node_job
from cloudbench.providers.attempt_files import BUNDLE, LONGEST_CHUNK, AttemptFiles, push_orders, pushed_files
from cloudbench.providers.azure.account import AzureAccount, Secret, share_client, translated

if TYPE_CHECKING:
    from azure.storage.fileshare import ShareClient, ShareDirectoryClient

GIVEN = (BUNDLE, "job.json", "secret", "push.json")
OWNER, RUN, ATTEMPT = "cloudbench_owner", "cloudbench_run", "cloudbench_attempt"
SERVICE = "cloudbench_service"
_MADE = "cloudbench_made"
_RUNS = "runs"
_LENT_LONGER = datetime.timedelta(hours=1)  # so that one key signs all addresses of an attempt


class Share(AttemptFiles):
    """The folders of all attempts on the account's share. Each call reaches the service.

    Every method raises our errors only: `CredentialsError`, or `InfrastructureError` where the share does not answer.
    """

    def __init__(self, account: AzureAccount) -> None:
        self._account = account
        self._lent: tuple[datetime.datetime, Mapping[str, object]] | None = None

    @functools.cached_property
    def _client(self) -> ShareClient:
        return share_client(self._account)

    def close(self) -> None:
        """Close the connections."""
        if "_client" in self.__dict__:
            self._client.close()

    def exists(self) -> bool:
        """Whether the share itself is there."""
        from azure.core.exceptions import ResourceNotFoundError

        with translated(f"looking for the share {self._account.share}"):
            try:
                self._client.get_share_properties()
            except ResourceNotFoundError:
                return False
        return True

    def make(self, name: str, plan: RunPlan, attempt: int, *, lifetime_s: float) -> None:
        """Make the folder of an attempt with all that its nodes are given; what is whole already stays as it is.

        Args:
            lifetime_s: how long the nodes can push to their files from now on.

        Raises:
            UsageError: the folder belongs to another owner.
        """
        from cloudbench.node.bundle import bundle

        marks = {OWNER: plan.owner, RUN: plan.id, ATTEMPT: str(attempt), SERVICE: plan.setup.service or "batch"}
        if (found := self.marks(name)) is not None:
            if {key: found.get(key) for key in marks} != marks:
                raise UsageError(
                    f"the folder {_RUNS}/{name} of share {self._account.share} belongs to another run",
                    why=f"it was made for {found.get(OWNER, 'nobody')}, not {plan.owner}",
                )
            if _MADE in found:
                return
        with translated(f"making the folder {_RUNS}/{name} on share {self._account.share}"):
            folders = [f"{_RUNS}/{name}/node-{node}" for node in range(plan.nodes)]
            _create(self._client.get_directory_client(_RUNS), {})
            _create(self._folder(name), marks)
            for folder in folders:
                _create(self._client.get_directory_client(folder), {})
            contents = {
                BUNDLE: bundle(),
                "job.json": msgspec.json.encode(node_job(plan, attempt=attempt)),
                "secret": secrets.token_hex(32).encode(),
                "push.json": self._push(name, plan, attempt, lifetime_s),
            }
            for file, data in contents.items():
                self._folder(name).get_file_client(file).upload_file(data)
            self._folder(name).set_directory_metadata({**marks, _MADE: "1"})

    def marks(self, name: str) -> dict[str, str] | None:
        """Whose an attempt's folder is; None where there is none."""
        from azure.core.exceptions import ResourceNotFoundError

        with translated(f"reading whose {_RUNS}/{name} is"):
            try:
                metadata = self._folder(name).get_directory_properties().metadata
            except ResourceNotFoundError:
                return None
        return {key.lower(): value for key, value in (metadata or {}).items()}

    def address(self, name: str, file: str, *, lifetime_s: float, permission: str = "r") -> Secret:
        """A URL that allows this one file to be used for a while, and nothing else."""
        return self._signed(f"{_RUNS}/{name}/{file}", permission, lifetime_s)

    def read(self, name: str, file: str, offset: int = 0) -> bytes:
        """At most 1 MiB of a file from an offset on; empty where there is no such file, or nothing more.

        A file grows before the bytes are there: zeros at its end are bytes that have not come yet.
        """
        from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

        with translated(f"reading {_RUNS}/{name}/{file}"):
            client = self._client.get_file_client(f"{_RUNS}/{name}/{file}")
            try:
                data = client.download_file(offset=offset, length=LONGEST_CHUNK).readall()
            except ResourceNotFoundError:
                return b""
            except HttpResponseError as error:
                if error.status_code == 416:  # the offset is the end of the file, or the file is empty
                    return b""
                raise
        return data.rstrip(b"\0")

    def remove(self, name: str) -> bool:
        """Remove an attempt's folder; True where nothing of it is left."""
        from azure.core.exceptions import ResourceNotFoundError

        with translated(f"removing {_RUNS}/{name}"), contextlib.suppress(ResourceNotFoundError):
            _remove_tree(self._folder(name))
        return self.marks(name) is None

    def find(self, owner: str, service: str) -> Iterator[dict[str, str]]:
        """The marks of every folder of that owner's runs on `batch` or `vm`, from the share alone."""
        for name in self._folders():
            marks = self.marks(name)
            if marks and (marks.get(OWNER), marks.get(SERVICE)) == (owner, service):
                yield marks

    def _folders(self) -> list[str]:
        from azure.core.exceptions import ResourceNotFoundError

        with translated(f"listing share {self._account.share}"):
            try:
                items = list(self._client.get_directory_client(_RUNS).list_directories_and_files())
            except ResourceNotFoundError:
                return []
        return [item.name for item in items if item.is_directory]

    def _node_files(self, name: str) -> list[tuple[str, str, int]]:
        """Folder, name and size in bytes of every file that a node has pushed."""
        from azure.core.exceptions import ResourceNotFoundError

        found: list[tuple[str, str, int]] = []
        with translated(f"listing {_RUNS}/{name}"):
            try:
                nodes = [item.name for item in self._folder(name).list_directories_and_files() if item.is_directory]
                for node in sorted(nodes):
                    items = self._folder(f"{name}/{node}").list_directories_and_files()
                    found += [(node, item.name, item["size"]) for item in items if not item.is_directory]
            except ResourceNotFoundError:
                return found
        return found

    def _folder(self, name: str) -> ShareDirectoryClient:
        return self._client.get_directory_client(f"{_RUNS}/{name}")

    def _push(self, name: str, plan: RunPlan, attempt: int, lifetime_s: float) -> bytes:
        """Where each node pushes each file that it can write: one address a file, for creating and writing it."""

        def address(node: int, file: str) -> str:
            return self.address(name, f"node-{node}/{file}", lifetime_s=lifetime_s, permission="cw").reveal()

        nodes = enumerate(pushed_files(plan, attempt))
        return push_orders("azure-files", [{file: address(node, file) for file in files} for node, files in nodes])

    def _signed(self, path: str, permission: str, lifetime_s: float) -> Secret:
        from azure.storage.fileshare import generate_file_sas

        account, now = self._account, datetime.datetime.now(datetime.timezone.utc)
        query = generate_file_sas(
            account.storage_account,
            account.share,
            path.split("/"),
            **self._signing(now, lifetime_s),  # type: ignore[arg-type]
            permission=permission,
            start=now - datetime.timedelta(minutes=15),  # clocks differ
            expiry=now + datetime.timedelta(seconds=lifetime_s),
        )
        return Secret(f"{account.files_endpoint}/{account.share}/{path}?{query}")

    def _signing(self, now: datetime.datetime, lifetime_s: float) -> Mapping[str, object]:
        """What signs an address: the account's key, or a key that the service lends to who is signed in."""
        if self._account.storage_key:
            return {"account_key": self._account.storage_key.reveal()}
        if self._lent and self._lent[0] >= now + datetime.timedelta(seconds=lifetime_s):
            return self._lent[1]
        from azure.storage.fileshare import ShareServiceClient

        from cloudbench.providers.azure.account import sign_in

        with translated("asking for a key that signs addresses of files"):
            service = ShareServiceClient(
                self._account.files_endpoint,
                credential=sign_in(self._account),
                token_intent="backup",  # noqa: S106  # a mode of the service, not a password
            )
            with service:
                ends = now + datetime.timedelta(seconds=lifetime_s) + _LENT_LONGER
                self._lent = ends, {"user_delegation_key": service.get_user_delegation_key(start=now, expiry=ends)}
        return self._lent[1]


def _create(folder: ShareDirectoryClient, metadata: dict[str, str]) -> None:
    from azure.core.exceptions import ResourceExistsError

    with contextlib.suppress(ResourceExistsError):
        folder.create_directory(metadata=metadata)


def _remove_tree(folder: ShareDirectoryClient) -> None:
    """Remove a folder and what is in it; what another removes meanwhile is as well."""
    for item in list(folder.list_directories_and_files()):
        if item.is_directory:
            _remove_tree(folder.get_subdirectory_client(item.name))
        else:
            folder.delete_file(item.name)
    folder.delete_directory()
