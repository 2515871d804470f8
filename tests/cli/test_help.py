"""The help is complete, has examples, and starts fast because it imports little."""

import json
import subprocess
import sys

import pytest

from tests.cli.conftest import Cloudbench

COMMANDS = [
    "submit", "run", "status", "logs", "collect", "cancel", "resume", "summary", "parse", "templates", "doctor",
    "rehearse", "completion",
]  # fmt: skip
HEAVY = {
    "tensorflow", "horovod", "docker", "rich", "scipy", "matplotlib", "numpy", "azure", "boto3", "jinja2", "msgspec",
    "yaml", "psutil", "sqlite3",
}  # fmt: skip


def imported(*arguments: str) -> set[str]:
    """Top-level modules in `sys.modules` after the command."""
    program = (
        "import json, sys\nfrom cloudbench.cli import cli\n"
        f"cli.main({list(arguments)!r}, standalone_mode=False)\n"
        "print('\\n' + json.dumps([name for name in sys.modules]))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(ended.stdout.splitlines()[-1])}


@pytest.mark.parametrize("arguments", [["--help"], ["submit", "--help"], ["summary", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    assert imported(*arguments).isdisjoint(HEAVY)


def test_help_imports_little_more_than_click() -> None:
    """What start-up costs is what is imported; a count stays the same on a slow machine."""
    click_alone = subprocess.run(
        [sys.executable, "-c", "import click, sys; print(len(sys.modules))"], capture_output=True, text=True, check=True
    )
    program = "import sys\nfrom cloudbench.cli import cli\ncli.main(['--help'], standalone_mode=False)\n"
    ours = subprocess.run(
        [sys.executable, "-c", program + "print(len(sys.modules))"], capture_output=True, text=True, check=True
    )
    assert int(ours.stdout.split()[-1]) <= 1.5 * int(click_alone.stdout)


def test_help_lists_every_command(cloudbench: Cloudbench) -> None:
    text = cloudbench("--help").stdout
    assert [line.split()[0] for line in text.partition("Commands:")[2].splitlines() if line.startswith("  ")][
        : len(COMMANDS)
    ] == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(cloudbench: Cloudbench, command: str) -> None:
    ended = cloudbench(command, "--help")
    assert ended.returncode == 0
    assert ended.stdout.startswith("Usage: ")


def test_an_unknown_command_is_a_usage_error_with_a_near_match(cloudbench: Cloudbench) -> None:
    ended = cloudbench("sumit")
    assert ended.returncode == 2
    assert "did you mean 'submit'?" in ended.stderr


def test_an_unknown_option_is_a_usage_error(cloudbench: Cloudbench) -> None:
    ended = cloudbench("submit", "--node", "2")
    assert ended.returncode == 2
    assert "--nodes" in ended.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(cloudbench: Cloudbench, shell: str) -> None:
    assert "_CLOUDBENCH_COMPLETE" in cloudbench("completion", shell).stdout


def test_the_version_is_printed(cloudbench: Cloudbench) -> None:
    from cloudbench import __version__

    assert cloudbench("--version").stdout.split() == ["cloudbench", __version__]


def test_a_near_match_is_a_sentence(cloudbench: Cloudbench) -> None:
    assert cloudbench("sumit").stderr.endswith("did you mean 'submit'?\n")
    assert cloudbench("zzzzzz").stderr.endswith("No such command 'zzzzzz'.\n")


def test_setups_are_named_in_the_help_and_completed(cloudbench: Cloudbench, environment: dict[str, str]) -> None:
    assert "One of local, local-2-nodes" in " ".join(cloudbench("submit", "--help").stdout.split())
    assert completed(environment, "submit --setup local-2") == ["local-2-nodes"]


def completed(environment: dict[str, str], line: str) -> list[str]:
    """What bash is told when a person asks for the rest of a line."""
    words = {"_CLOUDBENCH_COMPLETE": "bash_complete", "COMP_WORDS": f"cloudbench {line}"}
    words["COMP_CWORD"] = str(len(line.split()))
    program = "from cloudbench.cli import cli; cli(prog_name='cloudbench')"
    ended = subprocess.run([sys.executable, "-c", program], env=environment | words, capture_output=True, text=True)
    return [told.removeprefix("plain,") for told in ended.stdout.split()]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("submit --provider az", ["azure"]),
        ("submit --provider azure --service v", ["vm"]),
        ("submit --service p", ["process"]),
        ("submit --provider azure --sku nc4as", ["NC4as_T4_v3"]),
        ("submit --provider aws --sku g4dn.12", ["g4dn.12xlarge"]),
        ("submit --sku p2.", []),  # retired
        ("submit --set momen", ["momentum="]),
    ],
)
def test_the_rest_of_a_line_is_completed(environment: dict[str, str], line: str, told: list[str]) -> None:
    assert completed(environment, line) == told


@pytest.mark.parametrize("arguments", [["--help"], ["templates"], ["templates", "--format", "json"]])
def test_a_full_device_is_one_clear_line(environment: dict[str, str], arguments: list[str]) -> None:
    command = [sys.executable, "-m", "cloudbench", *arguments]
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        ended = subprocess.run(command, env=environment, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "cloudbench: standard output cannot be written: No space left on device\n"


def test_a_closed_standard_output_is_one_clear_line(environment: dict[str, str]) -> None:
    command = f"exec {sys.executable} -m cloudbench templates >&-"
    ended = subprocess.run(["sh", "-c", command], env=environment, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (1, "cloudbench: standard output is closed\n")
