"""The clock that the stand-ins live by."""

from __future__ import annotations

import math
import threading

from cloudbench.rehearsal.clock import Clock


def test_the_clock_runs_on_and_can_be_turned_on() -> None:
    clock = Clock()
    before = clock.now()
    clock.advance(3600)
    assert clock.now() >= before + 3600


def test_turning_the_clock_wakes_who_waits_for_that_time() -> None:
    clock = Clock()
    waiter = threading.Thread(target=clock.wait_until, args=(clock.now() + 3600,))
    waiter.start()
    clock.advance(3601)
    waiter.join(60)
    assert not waiter.is_alive()


def test_a_wait_ends_early_when_what_it_waits_for_has_come() -> None:
    clock = Clock()
    come = threading.Event()
    waiter = threading.Thread(target=clock.wait_until, args=(math.inf,), kwargs={"unless": come.is_set})
    waiter.start()
    come.set()
    clock.wake()
    waiter.join(60)
    assert not waiter.is_alive()
