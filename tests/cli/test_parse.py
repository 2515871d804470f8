"""`parse`: one object a file, as fixed; `summary`: every format, to standard output or a file."""

import csv
import json
import os
import socket
from pathlib import Path

from tests.cli.conftest import Cloudbench

LOG = "Step\tImg/sec\ttotal_loss\n1\timages/sec: 57.0 +/- 0.0 (jitter = 0.0)\t7.876\n" + "total images/sec: 56.57\n" * 2
EXAMPLE = Path(__file__).parents[2] / "examples" / "dsvm-vs-batchai"


def test_json_is_one_object_a_file(cloudbench: Cloudbench, tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text(LOG)
    (tmp_path / "empty.log").write_text("nothing here\n")
    good, empty = map(json.loads, cloudbench("parse", "good.log", "empty.log", "--format", "json").stdout.splitlines())
    assert (good["path"], good["format"], good["status"], good["reason"]) == (
        "good.log",
        "tf_cnn_benchmarks",
        "ok",
        None,
    )
    assert set(good["runs"][0]) >= {
        "throughput", "unit", "scope", "printed", "processes", "gpus", "steps", "warnings"
    }  # fmt: skip
    assert good["runs"][0]["throughput"] == 56.57
    assert good["runs"][0]["printed"] == [56.57, 56.57]
    assert (empty["status"], empty["runs"]) == ("no-result", [])
    assert empty["reason"]


def test_a_folder_stands_for_its_files_and_a_dash_for_standard_input(cloudbench: Cloudbench, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    (folder / "deeper").mkdir(parents=True)
    for name in ("b.log", "a.log", "deeper/c.log"):
        (folder / name).write_text(LOG)
    objects = [json.loads(line) for line in cloudbench("parse", "logs", "--format", "json").stdout.splitlines()]
    assert [found["path"] for found in objects] == ["logs/a.log", "logs/b.log", "logs/deeper/c.log"]
    assert json.loads(cloudbench("parse", "-", "--format", "json", input=LOG).stdout)["status"] == "ok"


def test_a_missing_file_is_a_usage_error(cloudbench: Cloudbench) -> None:
    ended = cloudbench("parse", "nowhere.log")
    assert ended.returncode == 2
    assert "nowhere.log: cannot be read" in ended.stderr


def test_the_example_prints_the_document_s_table(cloudbench: Cloudbench) -> None:
    rows = json.loads(cloudbench("summary", str(EXAMPLE), "--format", "json").stdout)["rows"]
    published = [56.57, 109.34, 109.72, 209.87, 106.38, 205.18, 211.02]
    assert all(abs(row["throughput"] - figure) <= 0.0101 for row, figure in zip(rows, published, strict=True))
    assert [(row["nodes"], row["gpus_per_node"]) for row in rows] == [
        (1, 1), (1, 2), (2, 1), (2, 2), (2, 1), (2, 2), (2, 2)
    ]  # fmt: skip


def test_a_summary_goes_to_a_file(cloudbench: Cloudbench, tmp_path: Path) -> None:
    ended = cloudbench("summary", str(EXAMPLE), "--format", "csv", "-o", "rows.csv")
    assert (ended.returncode, ended.stdout) == (0, "")
    with (tmp_path / "rows.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 7
    ended = cloudbench("summary", str(EXAMPLE), "-o", "no/such/folder.csv")
    assert ended.returncode == 2
    assert "cannot be written" in ended.stderr


def test_a_summary_of_nothing_says_what_to_do(cloudbench: Cloudbench) -> None:
    ended = cloudbench("summary")
    assert ended.returncode == 2
    assert "cloudbench submit" in ended.stderr


def test_a_file_that_cannot_be_read_does_not_stop_the_others(cloudbench: Cloudbench, tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text(LOG)
    for arguments in (["--format", "json"], []):
        ended = cloudbench("parse", "nowhere.log", "good.log", *arguments)
        assert ended.returncode == 2
        assert ended.stderr == "cloudbench: nowhere.log: cannot be read: No such file or directory\n"
        assert "good.log" in ended.stdout


def test_nothing_to_print_has_no_header(cloudbench: Cloudbench, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert cloudbench("parse", "empty").stdout == ""
    assert cloudbench("parse", "nowhere.log").stdout == ""


def test_only_regular_files_of_a_folder_are_read(cloudbench: Cloudbench, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.log").write_text(LOG)
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        ended = cloudbench("parse", "logs", "--format", "json")
    assert [json.loads(line)["path"] for line in ended.stdout.splitlines()] == ["logs/a.log"]
    assert ended.returncode == 0


def test_a_name_that_is_not_utf_8_is_printed_as_far_as_it_is(cloudbench: Cloudbench, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "logs") + b"/a\xff.log")).write_text(LOG)
    (found,) = map(json.loads, cloudbench("parse", "logs", "--format", "json").stdout.splitlines())
    assert (found["path"], found["status"]) == ("logs/a\ufffd.log", "ok")
    assert "logs/a\ufffd.log" in cloudbench("parse", "logs").stdout


def test_a_dash_is_standard_output_and_columns_set_the_width(
    cloudbench: Cloudbench, environment: dict[str, str], tmp_path: Path
) -> None:
    environment.pop("COLUMNS", None)
    printed = cloudbench("summary", str(EXAMPLE)).stdout
    assert cloudbench("summary", str(EXAMPLE), "-o", "-").stdout == printed
    assert not (tmp_path / "-").exists()
    environment["COLUMNS"] = "90"
    assert max(map(len, cloudbench("summary", str(EXAMPLE)).stdout.splitlines())) <= 90
    assert max(map(len, printed.splitlines())) > 90


def test_an_experiment_file_means_its_newest_submission(
    cloudbench: Cloudbench, steps_template: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\ntemplates: [steps.yaml]\nsetups: [{provider: local}]\n")
    ended = cloudbench("summary", "mine.yaml")
    assert ended.returncode == 2
    assert "cloudbench run mine.yaml" in ended.stderr
    cloudbench("run", "mine.yaml")
    (tmp_path / "mine").mkdir()
    for name in ("mine.yaml", "mine"):
        (row,) = json.loads(cloudbench("summary", name, "--format", "json").stdout)["rows"]
        assert row["throughput"] == 10.0
