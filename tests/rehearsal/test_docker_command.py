"""The `docker` of a stand-in node, where it starts processes. With an engine: test_containers.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudbench.rehearsal.docker_command import Volume, moved
from cloudbench.rehearsal.machines import Execution, Machine, Machines

PATIENCE_S = 120.0


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machines = Machines(tmp_path, containers=False)
    yield machines.start("one")
    machines.close()


def start(machine: Machine, command: str) -> Execution:
    host = {"ON_THE_HOST": "host", "CLOUDBENCH_RUN_ID": "run"}
    out, err = machine.folder / "out", machine.folder / "err"
    return machine.run(command, cwd=machine.folder, environment=host, stdout=out, stderr=err)


def docker(machine: Machine, arguments: str) -> tuple[int | None, str, str]:
    """The exit code of `docker ARGUMENTS`, and what it printed."""
    code = start(machine, f"docker {arguments}").wait(PATIENCE_S)
    return code, (machine.folder / "out").read_text(), (machine.folder / "err").read_text()


@pytest.mark.parametrize(
    ("command", "code"),
    [("true", 0), ("sh -c 'exit 3'", 3), ("sh -c 'kill -9 $$'", 137), ("nonsense", 127), ("/", 126)],
)
def test_the_exit_code_is_the_commands(machine: Machine, command: str, code: int) -> None:
    assert docker(machine, f"run --rm --init some/image:1 {command}")[0] == code


def test_it_says_what_is_different_from_a_rented_machine(machine: Machine) -> None:
    code, out, err = docker(machine, "run --rm --gpus all -v $PWD/data:/data --shm-size 2g some/image:1 echo done")
    assert (code, out) == (0, "done\n")
    assert err.splitlines() == [
        "rehearsal: no GPUs in a rehearsal: --gpus is left out",
        "rehearsal: image some/image:1 is not on this machine: the command runs as a process of it",
        f"rehearsal: /data is {machine.folder}/data here",
    ]


def test_a_command_has_the_variables_that_its_container_would_have(machine: Machine) -> None:
    (machine.folder / "variables").write_text("# some\nA=from the file\nB=b=b\n\nCLOUDBENCH_RUN_ID\n")
    options = "--env-file variables -e A=given --env C= -e NOT_SET"
    code, out, _ = docker(
        machine,
        f"""run {options} image python3 -c '
import json, os
print(json.dumps(dict(os.environ)))'""",
    )
    assert code == 0
    variables = json.loads(out)
    wanted = {"A": "given", "B": "b=b", "C": "", "CLOUDBENCH_RUN_ID": "run"}
    assert wanted.items() <= variables.items()
    assert not {"ON_THE_HOST", "NOT_SET", "CLOUDBENCH_NODE_ADDRESS"} & variables.keys()
    assert {"CLOUDBENCH_MACHINE", "CLOUDBENCH_LIFELINE"} <= variables.keys()


def test_temporary_files_of_a_command_end_with_its_machine(machine: Machine) -> None:
    code, path, _ = docker(machine, "run image mktemp -d")
    assert code == 0
    assert Path(path.strip()).parent == (machine.folder / "tmp").resolve()
    machine.end()
    assert not Path(path.strip()).exists()


def test_folders_of_the_container_are_those_of_the_host(machine: Machine) -> None:
    volumes = "-v $PWD/files:/files:ro -v $PWD/files:$PWD/files -v $PWD/results:/out/"
    command = "--entrypoint sh image -c 'pwd; echo $PLACE >/out/place; ls /files'"
    code, out, _ = docker(machine, f"run {volumes} -e PLACE=/files/job.json -w /out/new {command}")
    assert (code, out) == (0, f"{machine.folder}/results/new\n")
    assert (machine.folder / "results" / "place").read_text() == f"{machine.folder}/files/job.json\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data", "/host/one"),
        ("/data/x y", "/host/one/x y"),
        ("--files=/data:/data/more", "--files=/host/one:/host/two"),
        ("/database", "/database"),
        ("/other/data", "/other/data"),
        ("cat /data/a>/data.bak", "cat /host/one/a>/data.bak"),
        ("https://example.org/data", "https://example.org/data"),
    ],
)
def test_only_whole_names_of_folders_are_changed(text: str, expected: str) -> None:
    volumes = [Volume(source="/host/one", target="/data"), Volume(source="/host/two", target="/data/more")]
    assert moved(text, volumes) == expected


def test_signals_reach_the_command(machine: Machine) -> None:
    script = 'trap "exit 9" TERM; echo >ready; while :; do sleep 0.1; done'
    execution = start(machine, f"exec docker run image sh -c '{script}'")
    while not (machine.folder / "ready").exists():
        assert execution.wait(0.05) is None
    execution.end(PATIENCE_S)
    assert execution.poll() == 9


def test_what_lies_in_the_working_folder_is_not_imported(machine: Machine) -> None:
    for name in ("docker.py", "argparse.py", "cloudbench.py"):
        (machine.folder / name).write_text("raise SystemExit('imported')")
    assert docker(machine, "run image echo fine")[:2] == (0, "fine\n")


@pytest.mark.parametrize(
    "arguments",
    [
        "run --privileged image true",
        "run -d image true",
        "run --name",
        "run -v named:/data image true",
        "run --network other image true",
        "run --env-file missing image true",
        "run --workdir /not/here image true",
        "run image",
        "run",
        "login --username me --password the-secret registry",
        "compose up",
        "",
    ],
)
def test_what_it_does_not_know_is_refused(machine: Machine, arguments: str) -> None:
    code, out, err = docker(machine, arguments)
    assert (code, out) == (125, "")
    assert err.splitlines()[-1].startswith("docker: ")
    assert "Traceback" not in err
    assert "the-secret" not in err


def test_nothing_is_pulled_and_no_registry_is_asked(machine: Machine) -> None:
    code, _, err = docker(machine, "pull --quiet registry.example/image:1")
    assert (code, err) == (0, "rehearsal: image registry.example/image:1 is not pulled in a rehearsal\n")
    assert docker(machine, "login -u me --password-stdin registry.example </dev/null")[:2] == (0, "Login Succeeded\n")
    assert docker(machine, "version --format x")[0] == 0
