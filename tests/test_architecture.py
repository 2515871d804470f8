"""The walls between the parts, read from the source text itself: who may import whom, and who may touch the world."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "cloudbench"
MODULES = {str(path.relative_to(PACKAGE).with_suffix("")): path for path in sorted(PACKAGE.rglob("*.py"))}

MOST_LINES = 420

# What each part may import of the others; the command line may import them all.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "spec": {"errors"},
    "rendering": {"errors"},
    "loading": {"errors", "spec"},
    "plan": {"catalog", "errors", "rendering", "spec"},
    "cost": {"catalog", "plan"},
    "run": {"errors", "plan"},
    "catalog": {"errors", "spec"},
    "store": {"errors", "plan", "run"},
    "processes": set(),
    "temporary": set(),
    "providers": {"catalog", "errors", "node", "plan", "processes", "run", "spec", "temporary"},
    "engine": {"errors", "plan", "providers", "run", "store"},
    "parsers": {"errors"},
    "results": {"errors", "parsers", "plan", "run", "spec"},
    "reports": {"errors", "results"},
    "sources": {"errors", "loading", "parsers", "plan", "results", "run", "spec"},
    "node": set(),
    "workloads": set(),
    "rehearsal": {"catalog", "errors", "loading", "processes", "temporary"},
}

PURE = ("errors", "spec", "rendering", "plan", "cost", "run", "parsers", "results", "reports")

# Where the command line names a file, the parsers' own reader of files may open it.
READS_FILES = {"parsers/files"}

OF_THE_WORLD = {
    *("asyncio", "ctypes", "datetime", "fcntl", "ftplib", "getpass", "glob", "http", "locale", "logging", "mmap", "os"),
    *(
        "pathlib",
        "platform",
        "random",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "ssl",
    ),
    *("subprocess", "tempfile", "threading", "time", "urllib", "uuid", "yaml", "docker", "psutil", "requests", "boto3"),
}

ONLY_ON_UNIX = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
ONLY_ON_UNIX_NAMES = re.compile(
    r"os\.(fork\w*|kill(pg)?|set(sid|pgid|pgrp)|get(uid|euid|gid|pgid|pgrp|loadavg)|mkfifo|wait\w*|nice|uname|chown"
    r"|sched_\w+|posix_\w+)|signal\.(SIG(KILL|HUP|ALRM|USR1|USR2|CHLD|QUIT|PIPE|STOP|CONT)|alarm|pthread_\w+|setitimer)"
)
UNIX_PATH = re.compile(r"/(bin|dev|etc|home|opt|proc|run|sys|tmp|usr|var)(/|$)")

# Programs that run on the nodes, what starts them on this machine, and what writes commands for nodes that run Linux.
KNOWS_THE_MACHINE = (
    *("node/", "workloads/", "providers/local", "rehearsal/", "temporary"),
    *("providers/azure/batch_requests", "providers/azure/vm_template"),
    *("providers/aws/batch_requests", "providers/aws/ec2_requests"),
)

# A program of its own, which a node of a rehearsal finds as `docker`.
PROGRAMS = {"rehearsal/docker_command"}


def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text("utf-8"), str(MODULES[module]))


def imports(module: str) -> Iterator[str]:
    """Full names of all modules, or of what is taken from them, wherever in the module they are imported."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part(module: str) -> str:
    return module.split("/")[0]


def parts_imported(module: str) -> set[str]:
    ours = (name.split(".") for name in imports(module) if name.startswith("cloudbench."))
    return {names[1] for names in ours} - {"__version__", part(module)}


def is_pure(module: str) -> bool:
    return part(module) in PURE and module not in READS_FILES


def below(*parts: str) -> list[str]:
    found = [module for module in MODULES if part(module) in parts]
    assert found, f"there is nothing below {parts}"
    return found


@pytest.mark.parametrize(
    "module", [module for module in MODULES if part(module) not in ("cli", "__init__", "__main__")]
)
def test_a_part_imports_only_what_it_may_know(module: str) -> None:
    assert parts_imported(module) <= MAY_IMPORT[part(module)]


def test_the_engine_knows_the_contract_and_no_provider() -> None:
    known = {name for name in imports("engine") if name.startswith("cloudbench.providers")}
    assert {name.rsplit(".", 1)[0] for name in known} == {"cloudbench.providers.base"}


@pytest.mark.parametrize("module", [module for module in below("providers") if module.count("/")])
def test_a_provider_knows_no_other_provider(module: str) -> None:
    cloud = re.split("[/_]", module)[1]
    others = {name.split(".")[2] for name in imports(module) if name.startswith("cloudbench.providers.")}
    shared = {"attempt", "base", "findings", "secret", "verdict"}
    assert {other for other in others if other.split("_")[0] not in shared | {cloud}} == set()


@pytest.mark.parametrize("module", [module for module in MODULES if is_pure(module)])
def test_a_pure_module_touches_no_clock_file_or_network(module: str) -> None:
    assert {name.split(".")[0] for name in imports(module)} & OF_THE_WORLD == set()
    opened = [
        node.lineno
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("open", "input")
    ]
    assert opened == []


@pytest.mark.parametrize("module", below("node"))
def test_the_node_program_needs_the_standard_library_of_python_3_8_only(module: str) -> None:
    for name in imports(module):
        assert name.startswith("cloudbench.node") or name.split(".")[0] in sys.stdlib_module_names
    ast.parse(MODULES[module].read_text("utf-8"), feature_version=(3, 8))


@pytest.mark.parametrize("module", [module for module in MODULES if part(module) != "cli"])
def test_only_the_command_line_knows_click(module: str) -> None:
    assert "click" not in {name.split(".")[0] for name in imports(module)}


@pytest.mark.parametrize("module", [module for module in MODULES if part(module) not in ("cli", "rehearsal")])
def test_only_the_command_line_knows_the_rehearsal(module: str) -> None:
    assert "rehearsal" not in parts_imported(module)


@pytest.mark.parametrize(
    "module",
    [
        module
        for module in MODULES
        if part(module) not in ("cli", "node", "workloads", "__main__") and module not in PROGRAMS
    ],
)
def test_only_the_command_line_prints_and_reads_the_environment(module: str) -> None:
    printed = [
        node.lineno
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printed == []
    touched = {ast.unparse(node) for node in ast.walk(tree(module)) if isinstance(node, ast.Attribute)}
    touched &= {"os.environ", "os.getenv", "sys.stdout", "sys.stderr", "sys.stdin", "sys.argv"}
    # The ranks of this machine inherit its environment.
    assert touched <= ({"os.environ"} if module.startswith(("providers/local", "rehearsal/")) else set())


@pytest.mark.parametrize("module", [module for module in MODULES if not module.startswith(KNOWS_THE_MACHINE)])
def test_the_client_assumes_no_unix(module: str) -> None:
    assert {name.split(".")[0] for name in imports(module)} & ONLY_ON_UNIX == set()
    nodes = list(ast.walk(tree(module)))
    names = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)} | set(imports(module))
    assert [name for name in names if ONLY_ON_UNIX_NAMES.fullmatch(name)] == []
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert [text for text in texts if UNIX_PATH.match(text)] == []
    keywords = {node.arg for node in nodes if isinstance(node, ast.keyword)}
    assert keywords & {"shell", "preexec_fn", "start_new_session", "process_group"} == set()


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_short_enough_to_read(module: str) -> None:
    assert len(MODULES[module].read_text("utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_it_is_for(module: str) -> None:
    assert ast.get_docstring(tree(module))


def test_every_part_of_the_house_has_its_wall() -> None:
    parts = {part(module) for module in MODULES} - {"__init__", "__main__", "cli"}
    assert parts <= MAY_IMPORT.keys()


@pytest.mark.slow
def test_the_wheel_carries_templates_data_and_types(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=240)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    for path in (ROOT / "job_templates").glob("*.yaml"):
        assert f"cloudbench/job_templates/{path.name}" in names
    for path in (PACKAGE / "data").glob("*.yaml"):
        assert f"cloudbench/data/{path.name}" in names
    for path in (PACKAGE / "data" / "sizes").glob("*.csv"):
        assert f"cloudbench/data/sizes/{path.name}" in names
    assert {"cloudbench/py.typed", *(f"cloudbench/{module}.py" for module in MODULES)} <= names
    assert not [name for name in names if name.startswith("tests/")]
    # The installed package finds its data without the checkout.
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'installed')!r})\n"
        "import cloudbench\n"
        "from cloudbench.loading import load_setup, load_template, template_names\n"
        "print(cloudbench.__file__, [load_template(name).name for name in template_names()], load_setup('local').name)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code] if sys.version_info >= (3, 11) else [sys.executable, "-c", code],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert str(tmp_path / "installed") in done.stdout
    assert "['tf_cnn_benchmarks'] local" in done.stdout
