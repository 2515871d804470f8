"""What the containers of a job printed, as CloudWatch keeps it: one stream a node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudbench.providers.attempt_files import write_changed
from cloudbench.providers.aws.account import Clients, code_of, translated

GROUP = "/aws/batch/job"
_MOST_PAGES = 20


def collect(clients: Clients, job: Mapping[str, Any], nodes: int, into: Path) -> None:
    """Write what each node's container printed to `node-K.txt` below a folder; one that printed nothing has none."""
    described = [job]
    if nodes > 1:
        with translated("asking for the nodes of a job"):
            ids = [f"{job['jobId']}#{node}" for node in range(nodes)]
            described = clients.get("batch").describe_jobs(jobs=ids)["jobs"]
    for node, one in enumerate(described):
        stream = _stream_of(one)
        lines = _lines(clients, stream) if stream else []
        if lines:
            write_changed(into / f"node-{node}.txt", "".join(f"{line}\n" for line in lines).encode())


def _stream_of(job: Mapping[str, Any]) -> str | None:
    """The stream of a job's container, or of its last attempt's."""
    attempts = [attempt.get("container") or {} for attempt in job.get("attempts") or ()]
    containers = [job.get("container") or {}, *reversed(attempts)]
    return next((str(one["logStreamName"]) for one in containers if one.get("logStreamName")), None)


def _lines(clients: Clients, stream: str) -> list[str]:
    from botocore.exceptions import ClientError

    lines: list[str] = []
    options: dict[str, Any] = {"logGroupName": GROUP, "logStreamName": stream, "startFromHead": True}
    with translated(f"reading the log stream {stream}"):
        for _ in range(_MOST_PAGES):
            try:
                page = clients.get("logs").get_log_events(**options)
            except ClientError as error:
                if code_of(error) == "ResourceNotFoundException":  # a container that printed nothing
                    return lines
                raise
            lines += [event["message"] for event in page["events"]]
            if page["nextForwardToken"] == options.get("nextToken"):
                break
            options["nextToken"] = page["nextForwardToken"]
    return lines
