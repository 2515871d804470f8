from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cloudbench.parsers.ranks import Ranks


def taken_one_by_one(steps: list[int]) -> tuple[Ranks, int]:
    ranks = Ranks()
    for index, step in enumerate(steps):
        if not ranks.step(None, step, b"%d" % index):
            return ranks, index
    return ranks, len(steps)


@settings(deadline=None)
@given(st.lists(st.integers(min_value=0, max_value=30), min_size=1, max_size=40), st.integers(min_value=1, max_value=4))
def test_lines_taken_at_once_leave_what_lines_taken_one_by_one_leave(distinct, processes):
    steps = [step for step in sorted(set(distinct)) for _ in range(processes)]
    figures = [b"%d" % index for index in range(len(steps))]
    at_once = Ranks()
    assert at_once.steps_of_all(steps, lambda count: figures[-count:]) == len(steps)
    one_by_one, count = taken_one_by_one(steps)
    assert count == len(steps)
    assert sorted(at_once.last) == sorted(one_by_one.last)
    assert at_once.steps == one_by_one.steps


@settings(deadline=None)
@given(st.lists(st.integers(min_value=0, max_value=9), min_size=1, max_size=30))
def test_lines_are_never_taken_at_once_where_one_of_them_belongs_to_another_run(steps):
    at_once = Ranks()
    count = at_once.steps_of_all(steps, lambda count: [b""] * count)
    assert count <= taken_one_by_one(steps)[1]


def test_a_step_that_all_have_long_passed_belongs_to_another_run():
    ranks = Ranks()
    assert all(ranks.step(None, step, b"") for step in (1, 1, 10, 10, 20, 20))
    assert not ranks.step(None, 1, b"")


def test_a_rank_may_be_one_line_behind():
    ranks = Ranks()
    assert all(ranks.step(None, step, b"") for step in (1, 10, 1, 10, 20, 20))
    assert len(ranks.last) == 2


def test_a_tag_is_a_rank_and_its_steps_only_grow():
    ranks = Ranks()
    assert ranks.step(b"1,0", 10, b"")
    assert ranks.step(b"1,1", 1, b"")
    assert not ranks.step(b"1,0", 1, b"")
    assert len(ranks.last) == 2


def test_nothing_follows_the_end_of_a_tagged_rank():
    ranks = Ranks()
    ranks.step(b"0", 10, b"")
    ranks.end(b"0")
    assert not ranks.step(b"0", 20, b"")
    assert not ranks.may_start(b"0", after_steps=0)
    assert ranks.may_start(b"1", after_steps=0)
