"""When a stand-in does what it has to do."""

from __future__ import annotations

import math
from itertools import count

import pytest

from cloudbench.rehearsal.clock import Clock
from cloudbench.rehearsal.timers import Timers


def test_what_becomes_due_while_others_are_played_has_its_own_moment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looks, played = Clock(), count(), []
    monkeypatch.setattr(clock, "now", lambda: next(looks))  # a second passes between any two looks
    timers = Timers(clock)
    for seconds in (1.5, 2.5, 3.5):
        timers.after(seconds, lambda: played.append(timers.now))
    while timers.next_at < math.inf:
        timers.play()
    assert played == [1.5, 2.5, 3.5]
