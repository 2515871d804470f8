from __future__ import annotations

from cloudbench.parsers.ranks import Ranks


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
