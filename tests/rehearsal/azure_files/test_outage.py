"""A share that stops answering, and one that comes back."""

from __future__ import annotations

import threading

import pytest
from azure.core.exceptions import HttpResponseError

from .conftest import send


def ask(stand_in, answers, query=""):
    """A request in a thread of its own; what came of it ends up in `answers`."""

    def run():
        try:
            answers.append(send("GET", f"{stand_in.endpoint}/?comp=list{query}").code)
        except OSError:
            answers.append("dropped")

    asking = threading.Thread(target=run)
    asking.start()
    return asking


def test_a_busy_service_says_so_until_it_is_not(stand_in, share):
    stand_in.outage = "busy"
    with pytest.raises(HttpResponseError) as refused:
        share.get_share_properties()
    assert (refused.value.status_code, refused.value.error_code) == (503, "ServerBusy")
    stand_in.outage = None
    assert share.get_share_properties().name == "runs"


def test_a_service_that_hangs_answers_nobody_and_drops_them_when_it_comes_back(stand_in, share):
    stand_in.outage = "hangs"
    answers: list[str | None] = []
    asking = ask(stand_in, answers)
    asking.join(0.2)
    assert (asking.is_alive(), answers) == (True, [])
    stand_in.outage = None
    asking.join(60)
    assert answers in (["dropped"], ["NoAuthenticationInformation"])  # it may have begun after the outage
    assert share.get_share_properties().name == "runs"


def test_a_request_that_names_its_patience_is_told_when_it_ends(stand_in, clock):
    stand_in.outage = "hangs"
    answers: list[str | None] = []
    asking = ask(stand_in, answers, "&timeout=20")
    while asking.is_alive():
        clock.advance(20)
        asking.join(0.05)
    assert answers == ["OperationTimedOut"]


def test_a_mounted_share_outlives_the_outage_of_its_service(stand_in, share):
    stand_in.outage = "busy"
    (stand_in.folder("runs") / "a").write_text("1")
    stand_in.outage = None
    with share.get_file_client("a") as file:
        assert file.download_file().readall() == b"1"


def test_closing_ends_requests_that_hang(stand_in, share):
    stand_in.outage = "hangs"
    answers: list[str | None] = []
    asking = ask(stand_in, answers)
    asking.join(0.2)
    stand_in.close()
    asking.join(60)
    assert not asking.is_alive()
