"""What a person asks for: templates (what runs), setups (where and how) and experiments (which of them, how often).

The structs are the YAML format: a key that is not a field is refused. Loading is in `cloudbench.loading`; nothing
here reads a file.
"""

from __future__ import annotations

import math
import re
from typing import Literal

import msgspec

Scalar = bool | int | float | str
"""What a parameter can hold; a list of them reaches a command as several arguments."""

ProviderName = Literal["local", "azure", "aws"]
Priority = Literal["dedicated", "low-priority"]
LogFormat = Literal["tf_cnn_benchmarks", "horovod_synthetic"]
"""A format of logs that `cloudbench.parsers` reads."""

DEFAULT_TIMEOUT_S = 1800.0


class Parameter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One knob of a template.

    `default: null` means that the program's own default holds. The type of a value is the default's; where that is
    null, the one that all choices share; where there is none, a command line's value is guessed as YAML would.
    """

    default: Scalar | None = None
    choices: tuple[Scalar, ...] = ()
    help: str = ""

    @property
    def kind(self) -> type[Scalar] | None:
        """The type of its values, `None` where any will do."""
        kinds = {type(value) for value in (self.choices if self.default is None else (self.default,))}
        return kinds.pop() if len(kinds) == 1 else None


class JobTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What runs: a command with parameters, and how its ranks are launched.

    `launcher`, `ranks_per_node`, each of `requires`, `prepare` and `command` are Jinja2 in a sandbox. They see each
    parameter by its name, all of them as `parameters`, `nodes`, `gpus_per_node`, what was decided before them
    (`launcher`, then `ranks_per_node`), and `fail(reason)` to refuse a combination. `command` (run once a rank) and
    `prepare` (run once a node, before the ranks) are shell text into which every value is put quoted. `rehearsal` has
    the parameters that shrink the job to what a laptop trains in a minute.
    """

    name: str
    description: str = ""
    command: str
    prepare: str = ""
    launcher: str = "single"
    ranks_per_node: str = "1"
    requires: tuple[str, ...] = ()
    format: LogFormat
    image: str | None = None
    environment: dict[str, str] = {}
    parameters: dict[str, Parameter] = {}
    rehearsal: dict[str, Scalar] = {}


class Setup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and how a job runs. `None` leaves the choice to the provider."""

    name: str | None = None
    provider: ProviderName = "local"
    service: str | None = None
    sku: str | None = None
    nodes: int = 1
    gpus_per_node: int | None = None
    priority: Priority = "dedicated"
    storage: str | None = None
    pool: str | None = None
    image: str | None = None
    note: str | None = None


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Templates times setups times parameters times repeats.

    `sweep` maps a parameter to the list of values that it takes in turn; several of them give every combination.
    """

    name: str
    description: str = ""
    templates: tuple[str, ...] = ("tf_cnn_benchmarks",)
    parameters: dict[str, Scalar] = {}
    sweep: dict[str, tuple[Scalar, ...]] = {}
    setups: tuple[Setup, ...]
    repeats: int = 1
    timeout: str = "30m"
    max_cost_usd: float | None = None


_DURATION = re.compile(r"\s*(?:(\d+(?:\.\d+)?)h)?\s*(?:(\d+(?:\.\d+)?)m)?\s*(?:(\d+(?:\.\d+)?)s?)?\s*")


def parse_duration_s(text: str) -> float:
    """Seconds in `90`, `90s`, `30m`, `1h30m` or `1.5h`.

    Raises:
        ValueError: the text is none of these, or not more than zero.
    """
    match = _DURATION.fullmatch(text)
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    total_s = hours * 3600 + minutes * 60 + seconds
    if not 0 < total_s < math.inf:
        raise ValueError(f"{text!r} is not a duration such as 90s, 30m or 1h30m")
    return total_s
