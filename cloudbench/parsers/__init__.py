"""Log text to observations, one module a family. Pure: bytes in, values out."""

from cloudbench.parsers.merging import merge_ranks
from cloudbench.parsers.reading import FORMATS, parse
from cloudbench.parsers.values import Kind, Observation, ParsedLog, ParsedRun, Scope, UncertaintyKind

__all__ = [
    "FORMATS",
    "Kind",
    "Observation",
    "ParsedLog",
    "ParsedRun",
    "Scope",
    "UncertaintyKind",
    "merge_ranks",
    "parse",
]
