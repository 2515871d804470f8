"""The program as a person calls it: what it prints, and how it refuses."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.workloads.program import PROGRAM, train

REPOSITORY = Path(__file__).parents[2]


def refuse(*flags: str, modules: Path | None = None) -> str:
    """What the program says on standard error where it must refuse; `modules` replaces all installed packages."""
    command = [PROGRAM[0], *(["-S"] if modules else []), *PROGRAM[1:], *flags]
    path = os.pathsep.join(str(folder) for folder in (REPOSITORY, modules) if folder)
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture
def unusable_tensorflow(tmp_path: Path) -> Path:
    """A TensorFlow that can be found but not imported."""
    package = tmp_path / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('TensorFlow was imported')\n")
    return tmp_path


def test_an_unknown_flag_is_refused_before_tensorflow_is_imported(unusable_tensorflow: Path) -> None:
    message = refuse("--modle=resnet50", modules=unusable_tensorflow)
    assert message == "tf_cnn_benchmarks: unknown flag --modle (did you mean model?); --help lists the flags\n"


def test_a_missing_horovod_is_told_before_tensorflow_is_imported(unusable_tensorflow: Path) -> None:
    message = refuse("--model=resnet20", "--variable_update=horovod", modules=unusable_tensorflow)
    assert "Horovod is not installed" in message
    assert "pip install" in message
    assert "HOROVOD_WITH_TENSORFLOW=1" in message


def test_a_missing_pyzmq_is_told_before_tensorflow_is_imported(unusable_tensorflow: Path) -> None:
    assert "pip install pyzmq" in refuse("--input=zmq", modules=unusable_tensorflow)


def test_a_missing_tensorflow_is_told(tmp_path: Path) -> None:
    assert "TensorFlow is not installed" in refuse("--model=resnet20", modules=tmp_path)


def test_help_needs_no_tensorflow(unusable_tensorflow: Path) -> None:
    command = [PROGRAM[0], "-S", *PROGRAM[1:], "--help"]
    path = f"{REPOSITORY}{os.pathsep}{unusable_tensorflow}"
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0
    assert "--variable_update" in done.stdout


@pytest.mark.tensorflow
def test_more_gpus_than_there_are_is_an_error() -> None:
    assert "TensorFlow sees" in refuse("--device=gpu", "--num_gpus=1000")


@pytest.mark.tensorflow
def test_the_log_of_a_training() -> None:
    done = train("--num_batches=4", "--display_every=2")
    lines = done.output.splitlines()
    assert done.exit_code == 0, done.errors
    assert "Model:       resnet20" in lines
    assert "Dataset:     cifar10 (synthetic)" in lines
    assert "Batch size:  4 global" in lines
    first = lines.index("Running warm up")
    assert lines[first + 1 : first + 3] == ["Done warm up", "Step\tImg/sec\ttotal_loss"]
    steps = lines[first + 3 : first + 6]
    pattern = r"(\d+)\timages/sec: \d+\.\d \+/- \d+\.\d \(jitter = \d+\.\d\)\t\d+\.\d{3}"
    matches = [re.fullmatch(pattern, line) for line in steps]
    assert [match and match[1] for match in matches] == ["1", "2", "4"]
    assert lines[first + 6 :][0] == lines[first + 6 :][2] == "-" * 64
    assert done.total > 0
    assert lines[-1] == f"weights sha256: {done.digest}"


@pytest.mark.tensorflow
def test_every_line_is_printed_at_once() -> None:
    process = subprocess.Popen(
        [*PROGRAM, "--model=trivial", "--data_name=cifar10", "--device=cpu", "--batch_size=1", "--num_batches=1000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    with process:
        seen = next(line for line in process.stdout if line.startswith("10\t"))
        process.kill()
    assert "images/sec" in seen
