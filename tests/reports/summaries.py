"""Summaries as the tests of reports need them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cloudbench.results.summary import Summary, summarize
from tests.results.runs import parsed, record, records

TWO_NODES = record(
    "two nodes",
    log=parsed(109.72, 109.72, gpus=2),
    run="x-two-nodes-5f0c1a",
    nodes=2,
    experiment="x",
    note="DSVM (python3) + local",
)
ONE_NODE = record("one node", log=parsed(56.57), run="x-one-node-a64e00", experiment="x", note="DSVM (python3) + local")
NO_FIGURE = record("cut", log=parsed(reason="no total: the log ends at step 20"), experiment="x", note="batch")
SUMMARY = summarize([ONE_NODE, TWO_NODES, NO_FIGURE])


def summary(**fields: Any) -> Summary:
    """A summary of one row."""
    return summarize([record(fields.pop("label", "a"), **{"log": parsed(1.0), **fields})])


def summaries() -> st.SearchStrategy[Summary]:
    """Any summary."""
    return st.lists(records(), max_size=6).map(summarize)
