from __future__ import annotations

import pytest

from cloudbench.cli.settings import parse_azure_options
from cloudbench.errors import UsageError


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("share", "expected KEY=VALUE, and there is no value"),
        ("sharing=x", "did you mean 'share'?"),
        ("batch_key", "keys and passwords are not given on the command line"),
        ("batch_key=x", "keys and passwords are not given on the command line"),
    ],
)
def test_an_option_that_makes_no_sense_is_told_what_is_wrong_with_it(assignment: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_azure_options([assignment])
    assert told in error.value.what
    assert ("did you mean" in error.value.what) == ("did you mean" in told)
