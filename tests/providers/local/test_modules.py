from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cloudbench.errors import JobFailedError
from cloudbench.providers.local.modules import look_for_modules, missing_modules, read_missing


def test_modules_are_found_without_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "heavy"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('was imported')")
    (package / "part.py").write_text("raise SystemExit('was imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    wanted = ["heavy", "heavy.part", "heavy.other", "json.decoder", "json.decoder.deeper", "not_there", "not_there.too"]
    assert look_for_modules(sys.executable, wanted) == [
        "heavy.other",
        "json.decoder.deeper",
        "not_there",
        "not_there.too",
    ]


def test_a_python_that_does_not_run_is_named() -> None:
    with pytest.raises(JobFailedError, match="/no/such/python"):
        look_for_modules("/no/such/python", ["json"])
    with pytest.raises(JobFailedError, match="false"):
        look_for_modules("false", ["json"])
    with pytest.raises(JobFailedError) as caught:
        read_missing("exec format error\n", where="image odd")
    assert caught.value.why == "exec format error"


def test_a_missing_module_says_how_to_get_it() -> None:
    problems = missing_modules(["horovod", "tensorflow", "some_package.part"], where="python")
    assert {problem.exit_code for problem in problems} == {2}
    todos = [problem.todo or "" for problem in problems]
    assert "make horovod" in todos[0]
    assert "cloudbench[workloads]" in todos[1]
    assert todos[2] == "pip install some_package"
