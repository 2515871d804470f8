"""Failures on purpose: requests that are too many, are carried out and then fail, or fail before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudbench.rehearsal.aws.wire import AwsError, Call

if TYPE_CHECKING:
    from cloudbench.rehearsal.aws.world import AwsWorld

_TOO_MANY = {
    "batch": ("TooManyRequestsException", 429),
    "ec2": ("RequestLimitExceeded", 503),
    "s3": ("SlowDown", 503),
    "logs": ("ThrottlingException", 400),
    "ssm": ("ThrottlingException", 400),
}
_BROKEN = {"batch": "ServerException", "ec2": "InternalError", "s3": "InternalError"}
_MAKES = ("Create", "Register", "Submit", "RunInstances", "Put")
_TAKES_AWAY = ("Delete", "Deregister", "Terminate")


class Failures:
    """What the scenario lets fail."""

    def __init__(self, world: AwsWorld) -> None:
        self._scenario = world.scenario
        self._requests = 0
        self._successes_left = world.scenario.fail_after_success
        self._deletes_left = world.scenario.fail_deletes

    def before(self, call: Call) -> None:
        """Refuse the call where it is one too many, or is to fail without effect.

        Raises:
            AwsError: it fails.
        """
        self._requests += 1
        if self._scenario.throttle_every and self._requests % self._scenario.throttle_every == 0:
            code, status = _TOO_MANY.get(call.service, ("Throttling", 400))
            raise AwsError(code, "Rate exceeded", status)
        if self._deletes_left and call.operation.startswith(_TAKES_AWAY):
            self._deletes_left -= 1
            raise self._broken(call)

    def after(self, call: Call) -> None:
        """Let the call fail although it was carried out.

        Raises:
            AwsError: it does.
        """
        if self._successes_left and call.operation.startswith(_MAKES):
            self._successes_left -= 1
            raise self._broken(call)

    @staticmethod
    def _broken(call: Call) -> AwsError:
        return AwsError(_BROKEN.get(call.service, "InternalFailure"), "An internal error has occurred", 500)
