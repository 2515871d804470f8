"""A scenario by its name or from a file, whichever cloud it is for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from cloudbench.errors import UsageError, did_you_mean
from cloudbench.loading import convert, read_text

AnyScenario = TypeVar("AnyScenario", bound=msgspec.Struct)


def choose_scenario(name_or_path: str, known: Mapping[str, AnyScenario]) -> AnyScenario:
    """The scenario of that name, or the one in that file.

    Args:
        name_or_path: a key of `known`, or a path ending in .yaml or .yml.
        known: at least one scenario, whose struct is that of a file too.

    Raises:
        UsageError: no scenario has that name.
        SpecError: the file is missing, or does not describe one.
    """
    if name_or_path.endswith((".yaml", ".yml")):
        kind = type(next(iter(known.values())))
        return convert(read_text(Path(name_or_path)), name_or_path, kind)
    if name_or_path not in known:
        raise UsageError(
            f"no scenario is named {name_or_path!r}{did_you_mean(name_or_path, known)}",
            todo=f"take one of {', '.join(sorted(known))}, or a .yaml file",
        )
    return known[name_or_path]
