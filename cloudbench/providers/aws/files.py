"""The bucket: orders for the nodes of an attempt, and what they push while they run.

runs/NAME/job.json  cloudbench-node.pyz  secret  push.json     what the nodes are given
runs/NAME/files.json                                           signed addresses of those; one that leads to it is enough
runs/NAME/node-K/                                              what node K pushes; brought home by `collect`

Whose an attempt is stands in the metadata of job.json, which is written first; files.json is written last.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cloudbench.errors import UsageError
from cloudbench.plan import RunPlan, node_job
from cloudbench.providers.attempt_files import BUNDLE, LONGEST_CHUNK, AttemptFiles, push_orders, pushed_files
from cloudbench.providers.aws.account import AwsAccount, Clients, code_of, translated
from cloudbench.providers.secret import Secret

GIVEN = ("job.json", BUNDLE, "secret", "push.json")
ADDRESSES = "files.json"
OWNER, RUN, ATTEMPT, NODES = "cloudbench-owner", "cloudbench-run", "cloudbench-attempt", "cloudbench-nodes"
SERVICE = "cloudbench-service"
_MEETING = "main-address"
_LONGEST_LIFETIME_S = 7 * 24 * 3600.0
"""The longest that AWS lets an address be signed for."""
_MISSING = ("404", "NoSuchKey", "NotFound")


class Bucket(AttemptFiles):
    """The files of all attempts in the account's bucket. Each call reaches the service; nothing is kept.

    Every method raises our errors only: `CredentialsError`, or `InfrastructureError` where S3 does not answer.
    """

    def __init__(self, account: AwsAccount, clients: Clients) -> None:
        self._name = account.bucket
        self._clients = clients

    @property
    def _s3(self) -> Any:
        return self._clients.get("s3")

    def exists(self) -> bool:
        """Whether the bucket itself is there."""
        from botocore.exceptions import ClientError

        with translated(f"looking for the bucket {self._name}"):
            try:
                self._s3.head_bucket(Bucket=self._name)
            except ClientError as error:
                if code_of(error) in (*_MISSING, "NoSuchBucket"):
                    return False
                raise
        return True

    def make(
        self,
        name: str,
        plan: RunPlan,
        attempt: int,
        *,
        lifetime_s: float,
        marks: Mapping[str, str],
        meeting: bool = False,
    ) -> None:
        """Put everything that the nodes of an attempt are given; what is whole already stays as it is.

        Args:
            lifetime_s: how long the nodes can read and push from now on.
            marks: whose it is, as the metadata of its first object.
            meeting: whether nodes learn through the bucket where node 0 is.

        Raises:
            UsageError: the name belongs to another owner.
        """
        from cloudbench.node.bundle import bundle

        if (found := self.marks(name)) is not None:
            if any(found.get(key) != marks[key] for key in (OWNER, RUN, ATTEMPT)):
                raise UsageError(
                    f"the files runs/{name} of bucket {self._name} belong to another run",
                    why=f"they were made for {found.get(OWNER, 'nobody')}, not {plan.owner}",
                )
            if self._head(name, ADDRESSES) is not None:
                return
        job = msgspec.json.encode(node_job(plan, attempt=attempt))
        push = self._push(name, plan, attempt, lifetime_s)
        addresses: dict[str, Any] = {
            "files": {file: self.address(name, file, lifetime_s=lifetime_s).reveal() for file in GIVEN}
        }
        if meeting:
            addresses["meeting"] = {
                verb: self.address(name, _MEETING, lifetime_s=lifetime_s, verb=verb).reveal() for verb in ("put", "get")
            }
        with translated(f"putting runs/{name} into bucket {self._name}"):
            self._put(name, "job.json", job, dict(marks))
            self._put(name, BUNDLE, bundle())
            self._put(name, "secret", secrets.token_hex(32).encode())
            self._put(name, "push.json", push)
            self._put(name, ADDRESSES, msgspec.json.encode(addresses))

    def marks(self, name: str) -> dict[str, str] | None:
        """Whose an attempt's files are; None where there are none."""
        found = self._head(name, "job.json")
        return None if found is None else dict(found["Metadata"])

    def age_s(self, name: str) -> float | None:
        """How long ago the files were made, by the service's own clock; None where there are none."""
        from email.utils import parsedate_to_datetime

        found = self._head(name, ADDRESSES)
        if found is None:
            return None
        now = parsedate_to_datetime(found["ResponseMetadata"]["HTTPHeaders"]["date"])
        return float((now - found["LastModified"]).total_seconds())

    def address(self, name: str, file: str, *, lifetime_s: float, verb: str = "get") -> Secret:
        """A URL that allows this one file to be read, or with `put` to be written, for a while."""
        with translated("signing an address"):
            url = self._s3.generate_presigned_url(
                f"{verb}_object",
                Params={"Bucket": self._name, "Key": f"runs/{name}/{file}"},
                ExpiresIn=int(min(lifetime_s, _LONGEST_LIFETIME_S)),
            )
        return Secret(url)

    def read(self, name: str, file: str, offset: int = 0) -> bytes:
        """At most 1 MiB of a file from an offset on; empty where there is no such file, or nothing more."""
        from botocore.exceptions import ClientError

        with translated(f"reading runs/{name}/{file}"):
            try:
                found = self._s3.get_object(
                    Bucket=self._name,
                    Key=f"runs/{name}/{file}",
                    Range=f"bytes={offset}-{offset + LONGEST_CHUNK - 1}",
                )
                with found["Body"] as body:
                    return bytes(body.read())
            except ClientError as error:
                if code_of(error) in (*_MISSING, "InvalidRange", "416"):  # the offset is the end of the file
                    return b""
                raise

    def remove(self, name: str) -> bool:
        """Remove an attempt's files; True where nothing of them is left."""
        with translated(f"removing runs/{name}"):
            keys = [key for key in self._keys(f"runs/{name}/") if key != f"runs/{name}/job.json"]
            for first in range(0, len(keys), 1000):
                objects = [{"Key": key} for key in keys[first : first + 1000]]
                self._s3.delete_objects(Bucket=self._name, Delete={"Objects": objects, "Quiet": True})
            if set(self._keys(f"runs/{name}/")) - {f"runs/{name}/job.json"}:
                return False
            # It says whose the rest is, and so goes last.
            self._s3.delete_object(Bucket=self._name, Key=f"runs/{name}/job.json")
            return not list(self._keys(f"runs/{name}/"))

    def find(self, owner: str, service: str) -> Iterator[dict[str, str]]:
        """The marks of every attempt of that owner's runs on `batch` or `ec2`, from the bucket alone."""
        for name in self._attempts():
            marks = self.marks(name)
            if marks and (marks.get(OWNER), marks.get(SERVICE)) == (owner, service):
                yield marks

    def _attempts(self) -> list[str]:
        with translated(f"listing bucket {self._name}"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._name, Prefix="runs/", Delimiter="/")
            return [item["Prefix"].split("/")[1] for page in pages for item in page.get("CommonPrefixes", ())]

    def _node_files(self, name: str) -> list[tuple[str, str, int]]:
        """Folder, name and size in bytes of every file that a node has pushed."""
        prefix = f"runs/{name}/"
        with translated(f"listing runs/{name}"):
            found = [(key.removeprefix(prefix), size) for key, size in self._objects(f"{prefix}node-")]
        return [(*key.split("/", 1), size) for key, size in found]  # type: ignore[misc]

    def _keys(self, prefix: str) -> Iterator[str]:
        return (key for key, _ in self._objects(prefix))

    def _objects(self, prefix: str) -> Iterator[tuple[str, int]]:
        for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._name, Prefix=prefix):
            for item in page.get("Contents", ()):
                yield item["Key"], item["Size"]

    def _head(self, name: str, file: str) -> dict[str, Any] | None:
        from botocore.exceptions import ClientError

        with translated(f"looking for runs/{name}/{file}"):
            try:
                return dict(self._s3.head_object(Bucket=self._name, Key=f"runs/{name}/{file}"))
            except ClientError as error:
                if code_of(error) in _MISSING:
                    return None
                raise

    def _put(self, name: str, file: str, data: bytes, metadata: dict[str, str] | None = None) -> None:
        self._s3.put_object(Bucket=self._name, Key=f"runs/{name}/{file}", Body=data, Metadata=metadata or {})

    def _push(self, name: str, plan: RunPlan, attempt: int, lifetime_s: float) -> bytes:
        """Where each node pushes each file that it can write: one address a file, for writing it."""

        def address(node: int, file: str) -> str:
            return self.address(name, f"node-{node}/{file}", lifetime_s=lifetime_s, verb="put").reveal()

        nodes = enumerate(pushed_files(plan, attempt))
        return push_orders("http-put", [{file: address(node, file) for file in files} for node, files in nodes])
