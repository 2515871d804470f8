"""The public logs that are not part of this project, and what their manifest expects of each."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from cloudbench.parsers import FORMATS, ParsedLog
from cloudbench.parsers.files import parse_file

pytestmark = pytest.mark.shared

SHARED = Path(__file__).parents[2].parent / "shared"
MANIFEST = SHARED / "logs" / "MANIFEST.csv"
REFERENCE = SHARED / "references" / "dsvm-vs-batchai.md"


def rows() -> list[dict[str, str]]:
    if not MANIFEST.is_file():
        return []
    with MANIFEST.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["format"] in FORMATS]


def expectations(expected: str) -> list[tuple[str, list[float]]]:
    """`what=1,2; what else=3` as the manifest writes it."""
    pairs = [part.rsplit("=", 1) for part in expected.split(";") if "=" in part]
    return [(what.strip(), [float(figure) for figure in figures.rstrip(") ").split(",")]) for what, figures in pairs]


@pytest.fixture(params=rows() or [None], ids=lambda row: row["path"] if row else "no manifest")
def row(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param is None:
        pytest.skip(f"there is no {MANIFEST.name} beside this checkout")
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def log(row: dict[str, str]) -> ParsedLog:
    return parse_file(SHARED / "logs" / row["path"], observations=True)


def test_the_format_is_found_out(row, log):
    assert log.format == row["format"]


def test_the_expected_figures_are_printed_or_there_is_none(row, log):
    printed = {figure for run in log.runs for figure in run.printed}
    if row["expected"].startswith("none"):
        assert (log.status, printed) == ("no-result", set())
        assert log.reason
        return
    assert log.status == "ok"
    headlines = [figures for what, figures in expectations(row["expected"]) if "step" not in what]
    if any("otal" in what for what, _ in expectations(row["expected"])):
        headlines = [figures for what, figures in expectations(row["expected"]) if "otal" in what]
    assert headlines
    for figures in headlines:
        assert set(figures) <= printed
        assert any(min(run.printed) <= run.throughput <= max(run.printed) for run in log.runs if run.throughput)


def test_the_expected_steps_are_observed(row, log):
    observed = [seen for run in log.runs for seen in run.observations]
    for what, figures in expectations(row["expected"]):
        for figure in figures:
            near = [seen for seen in observed if seen.value == figure]
            assert near, what
            number = re.search(r"(?:step |#)(\d+)", what)
            assert number is None or int(number[1]) in {seen.step for seen in near}


def test_processes_and_gpus_are_those_of_the_manifest_where_the_log_tells(row, log):
    if not row["world_size"].isdigit():
        pytest.skip(f"the manifest gives no single world size: {row['world_size']}")
    world = int(row["world_size"])
    for run in log.runs:
        assert run.processes in (world, None)
        assert run.gpus in (world * int(row["n_gpus_per_process"]), None)


def test_a_sound_log_has_no_warning_but_what_its_manifest_row_notes(row, log):
    told = {
        "not finite": "nan",
        "inference": "inference",
        "no summary": "no summary",
        "not in the log": "separate tails",
        "were workers added": "rates change",
        "printed a total": "only one total line",
    }
    about = f"{row['description']} {row['notes']}".lower()
    for run in log.runs:
        for warning in run.warnings:
            noted = [note for sign, note in told.items() if sign in warning]
            assert noted, warning
            assert noted == ["no summary"] or any(note in about for note in noted)


def pasted_in_the_reference() -> list[tuple[str, float, int, bytes]]:
    """Its seven tests: number, throughput and GPUs of its own table, and the pasted log."""
    if not REFERENCE.is_file():
        return []
    text = REFERENCE.read_text()
    table = dict(re.findall(r"^(\d) +\|([^\n]+)", text, re.MULTILINE))
    pastes = re.findall(r"^### test (\d):.*?```\n(.*?)```", text, re.MULTILINE | re.DOTALL)
    columns = {number: [cell.strip() for cell in row.split("|")] for number, row in table.items()}
    return [
        (number, float(columns[number][2]), int(columns[number][0]) * int(columns[number][1]), paste.encode())
        for number, paste in pastes
    ]


@pytest.mark.parametrize(
    "test", pasted_in_the_reference() or [None], ids=lambda test: f"test {test[0]}" if test else "none"
)
def test_the_reference_s_pastes_give_its_table(test, tmp_path):
    if test is None:
        pytest.skip(f"there is no {REFERENCE.name} beside this checkout")
    _, throughput, gpus, paste = test
    (tmp_path / "paste.log").write_bytes(paste)
    [run] = parse_file(tmp_path / "paste.log").runs
    assert run.throughput == pytest.approx(throughput, abs=0.01)
    assert (run.scope, run.processes, run.gpus, run.warnings) == ("job", gpus, None, ())
    assert len(run.printed) == gpus


def test_the_reference_has_seven_tests():
    if not REFERENCE.is_file():
        pytest.skip(f"there is no {REFERENCE.name} beside this checkout")
    assert [number for number, *_ in pasted_in_the_reference()] == list("1234567")
