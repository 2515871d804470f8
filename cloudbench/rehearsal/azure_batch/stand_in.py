"""The stand-in itself: HTTP in front, everything under one lock."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cloudbench.rehearsal.azure_batch.auth import authenticate
from cloudbench.rehearsal.azure_batch.calls import FORMER_VERSION, Call
from cloudbench.rehearsal.azure_batch.routes import find
from cloudbench.rehearsal.azure_batch.scenario import Scenario
from cloudbench.rehearsal.azure_batch.service import Service
from cloudbench.rehearsal.azure_batch.wire import ServiceError
from cloudbench.rehearsal.azure_batch.world import BatchWorld, Shares, no_shares
from cloudbench.rehearsal.server import HttpServer, Request, Response

if TYPE_CHECKING:
    from cloudbench.rehearsal.clock import Clock
    from cloudbench.rehearsal.machines import Machines

VERSIONS = ("2025-06-01", FORMER_VERSION)


class BatchStandIn:
    """A Batch account on this machine.

    Args:
        machines: where its nodes are; they outlive it, and are closed by whoever made them.
        key: the account's shared key, in base64.
        shares: the folder behind an entry of a pool's `mountConfiguration`; an OSError says why there is none.
    """

    def __init__(
        self,
        machines: Machines,
        clock: Clock,
        *,
        account: str,
        key: str,
        scenario: Scenario | None = None,
        shares: Shares = no_shares,
    ) -> None:
        self.calls: Counter[str] = Counter()  # how often which operation was asked for, such as `GET /jobs/{job}`
        self._world = BatchWorld(machines, clock, scenario or Scenario(), account=account, shares=shares)
        self._service = Service(self._world)
        self._account = account
        self._key = key
        self._requests = 0
        self._failures_left = self._world.scenario.fail_after_success
        self._server = HttpServer(self._answer)

    @property
    def faults(self) -> list[Exception]:
        """What went wrong in the stand-in itself."""
        return [*self._server.faults, *self._world.faults]

    @property
    def prefetched(self) -> list[tuple[str, str]]:
        """Which nodes were asked to have which container images at hand: none is pulled here."""
        return list(self._world.prefetched)

    def start(self, port: int = 0) -> str:
        """Begin to serve; the account's endpoint."""
        self._world.url = self._server.start(port)
        self._world.start()
        return self._world.url

    def close(self) -> None:
        """End the service and all that its tasks run; its machines stay."""
        self._server.close()
        self._world.close()

    def _answer(self, request: Request) -> Response:
        try:
            return self._checked(request)
        except ServiceError as error:
            return error.response(self._world.url)

    def _checked(self, request: Request) -> Response:
        authenticate(request, self._account, self._key)
        if request.query.get("api-version") not in VERSIONS:
            message = "The specified request version is not supported."
            raise ServiceError(400, "UnsupportedRequestVersion", message, values={"Supported": ", ".join(VERSIONS)})
        operation, name, ids = find(request)
        with self._world.lock:
            self.calls[name] += 1
            self._throttle()
            self._world.timers.play()
            response = operation(Call(service=self._service, request=request, ids=ids))
            self._world.timers.play()  # what the request brought about at once
            if response.status == 201 and self._failures_left:
                self._failures_left -= 1
                raise ServiceError(503, "ServerBusy", "The server is currently unable to receive requests.")
            return response

    def _throttle(self) -> None:
        self._requests += 1
        every = self._world.scenario.throttle_every
        if every and self._requests % every == 0:
            wait = {"Retry-After": str(self._world.scenario.retry_after_s)}
            raise ServiceError(429, "TooManyRequests", "Too many requests were made; retry later.", headers=wait)
