"""What a person can ask for: the values of the structs and the way durations are written."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudbench.parsers import FORMATS
from cloudbench.spec import DEFAULT_TIMEOUT_S, Experiment, JobTemplate, LogFormat, Parameter, Setup, parse_duration_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("1h30m", 5400), ("1.5h", 5400), ("1h 2m 3s", 3723), (" 2h ", 7200)],
)
def test_a_duration_is_written_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0h0m", "-5m", "5x", "m", "1m1h", "1e3", "nan", "1:30", "9" * 400, "1,5h"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as 90s, 30m or 1h30m"):
        parse_duration_s(text)


@given(hours=st.integers(0, 999), minutes=st.integers(0, 999), seconds=st.integers(1, 999))
def test_a_duration_is_the_sum_of_its_parts(hours: int, minutes: int, seconds: int) -> None:
    assert parse_duration_s(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds


def test_the_default_time_limit_is_the_experiment_s() -> None:
    assert parse_duration_s(Experiment(name="x", setups=()).timeout) == DEFAULT_TIMEOUT_S


@pytest.mark.parametrize("struct", [Experiment, JobTemplate, Parameter, Setup])
def test_a_spec_is_a_value_that_refuses_unknown_keys(struct: type[msgspec.Struct]) -> None:
    assert struct.__struct_config__.frozen
    assert struct.__struct_config__.forbid_unknown_fields


def test_a_template_can_name_every_format_that_has_a_parser() -> None:
    assert set(get_args(LogFormat)) == set(FORMATS)


@pytest.mark.parametrize(
    ("parameter", "kind"),
    [
        (Parameter(default=False), bool),
        (Parameter(default=1, choices=(1, 0.5)), int),
        (Parameter(choices=(True, False)), bool),
        (Parameter(choices=("cpu", "gpu")), str),
        (Parameter(choices=(1, "auto")), None),
        (Parameter(), None),
    ],
)
def test_a_parameter_s_values_are_of_the_default_s_type_or_the_choices(parameter: Parameter, kind: type) -> None:
    assert parameter.kind is kind


def test_a_setup_leaves_open_what_it_does_not_say() -> None:
    setup = Setup()
    assert (setup.provider, setup.nodes, setup.priority) == ("local", 1, "dedicated")
    assert {setup.service, setup.sku, setup.gpus_per_node, setup.storage, setup.image} == {None}
