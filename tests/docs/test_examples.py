"""Every command in the documentation does what the documentation says, in the order in which it stands there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cloudbench.loading import convert, load_setup
from cloudbench.parsers import FORMATS, parse
from cloudbench.spec import Experiment, JobTemplate

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*/README.md")])
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[str]:
    """The `$ …` lines of a page's console blocks; a block that needs more than this machine says so in its fence."""
    found = []
    for language, needs, text in FENCE.findall(page.read_text()):
        if language == "console" and not needs.strip():
            found += [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    return [command for command in found if command.startswith("cloudbench ")]


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_the_commands_of_a_page_work(page: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "CLOUDBENCH_HOME": str(tmp_path / "home")}
    for command in commands(page):
        words = [sys.executable, "-m", "cloudbench", *_arguments(command, tmp_path)]
        ended = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=580)
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"


def _arguments(command: str, folder: Path) -> list[str]:
    """The command's arguments; a file that it writes goes to the test's folder."""
    words = shlex.split(command, comments=True)[1:]
    return [str(folder / word) if before == "-o" else word for before, word in zip(["", *words], words, strict=False)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_yaml_of_a_page_is_accepted(page: Path) -> None:
    for language, _, text in FENCE.findall(page.read_text()):
        if language == "yaml":
            convert(text, str(page), JobTemplate if "command:" in text else Experiment)


def test_what_a_program_has_to_print_is_read_as_the_page_says() -> None:
    page = (ROOT / "docs" / "templates.md").read_text()
    (lines,) = (text.replace("<TAB>", "\t") for language, _, text in FENCE.findall(page) if language == "text")
    for log in (lines, lines.splitlines()[-1]):
        (run,) = parse([log.encode()], "tf_cnn_benchmarks").runs
        assert (run.throughput, run.scope, run.warnings) == (224.96, "job", ())
    table = re.findall(r"^\| (?:`(\w+)`)? \| `([^`]*[0-9])`", page, re.MULTILINE)
    assert [name for name, _ in table if name] == list(FORMATS)
    read = [parse([line.encode()], name or "horovod_synthetic").runs[0] for name, line in table]
    assert [(run.throughput, run.scope) for run in read] == [(224.96, "job"), (899.8, "job"), (224.9, "gpu")]


def test_the_setups_that_a_page_names_are_there() -> None:
    page = (ROOT / "docs" / "experiments.md").read_text()
    named = re.search(r"--setup NAME` takes a setup by its name, (.*)", page)
    assert named
    names = re.findall("`([a-z0-9-]+)`", named[1])
    assert len(names) == 3
    assert [load_setup(name).name for name in names] == names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
