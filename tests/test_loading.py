"""YAML files into specs: what is accepted, and that every mistake is told with its file, line and key."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cloudbench.errors import SpecError
from cloudbench.loading import convert, load_experiment, load_setup, load_template, read_text, template_names
from cloudbench.spec import Experiment, JobTemplate, Setup

MINIMAL = "name: x\nsetups:\n  - provider: local\n"


def told(text: str, type_: type = Experiment) -> str:
    """What a person reads when this text is in `e.yaml`."""
    with pytest.raises(SpecError) as wrong:
        convert(text, "e.yaml", type_)
    assert wrong.value.exit_code == 2
    assert wrong.value.todo
    return str(wrong.value)


def test_a_whole_experiment_is_read() -> None:
    text = """
name: batch-sizes
templates: [tf_cnn_benchmarks]
parameters: {model: resnet20, use_fp16: true, learning_rate: 0.5}
sweep:
  batch_size: [16, 32]
setups:
  - name: two nodes
    nodes: 2
repeats: 3
timeout: 1h30m
max_cost_usd: 20
"""
    assert convert(text, "e.yaml", Experiment) == Experiment(
        name="batch-sizes",
        parameters={"model": "resnet20", "use_fp16": True, "learning_rate": 0.5},
        sweep={"batch_size": (16, 32)},
        setups=(Setup(name="two nodes", nodes=2),),
        repeats=3,
        timeout="1h30m",
        max_cost_usd=20,
    )


MISTAKES = {
    "an unknown key": (
        "name: x\nsetups:\n  - nodes: 1\n    gpu_per_node: 2\n",
        "e.yaml:4: setups[0].gpu_per_node: unknown key; did you mean 'gpus_per_node'?\n"
        "  try: known keys: name, provider, service, sku, nodes, gpus_per_node, priority, storage, pool, image, note",
    ),
    "an unknown key at the top": ("nmae: x\n", "e.yaml:1: nmae: unknown key; did you mean 'name'?"),
    "a missing key": ("setups: []\n", "e.yaml: name: this key is required\n  try: add it"),
    "text for a number": (
        "name: x\nsetups:\n  - {}\n  - nodes: two\n",
        "e.yaml:4: setups[1].nodes: expected a whole number, got text",
    ),
    "a fraction for a whole number": (
        MINIMAL + "repeats: 1.5\n",
        "e.yaml:4: repeats: expected a whole number, got a number",
    ),
    "a truth for text": (
        "name: no\nsetups: []\n",
        "e.yaml:1: name: expected text, got true or false\n  try: put quotes around it",
    ),
    "a number for text": (
        MINIMAL + "timeout: 90\n",
        "e.yaml:4: timeout: expected text, got a whole number\n  try: put quotes around it",
    ),
    "nothing for a list": ("name: x\nsetups:\n", "e.yaml:2: setups: expected a list, got nothing"),
    "one for a list": (
        MINIMAL + "sweep:\n  a: [1]\n  b: 3\n",
        "e.yaml:6: sweep.b: expected a list, got a whole number",
    ),
    "a list for a value": (
        MINIMAL + "parameters:\n  a: 1\n  b: [1]\n",
        "e.yaml:6: parameters.b: expected one text, number, true or false, got a list",
    ),
    "nothing among values": (
        MINIMAL + "sweep:\n  a.b: [1, null]\n",
        "e.yaml:5: sweep.a.b[1]: expected one text, number, true or false, got nothing",
    ),
    "text for an amount": (MINIMAL + "max_cost_usd: lots\n", "e.yaml:4: max_cost_usd: expected a number, got text"),
    "not one of the choices": (
        "name: x\nsetups:\n  - provider: azur\n",
        "e.yaml:3: setups[0].provider: 'azur' is none of aws, azure, local; did you mean 'azure'?",
    ),
    "an empty file": ("", "e.yaml: expected keys with values, got nothing"),
    "a list as a file": ("- x\n", "e.yaml: expected keys with values, got a list"),
    "a key twice": ("name: x\nname: y\n", "e.yaml:2: key 'name' is there twice"),
    "a key twice, deeper": ("name: x\nsetups:\n- {nodes: 1, nodes: 2}\n", "e.yaml:3: key 'nodes' is there twice"),
    "a key that is a number": (MINIMAL + "1: 2\n", "e.yaml:4: a key is text: put quotes around it"),
    "a key that is a truth": (MINIMAL + "parameters: {on: 2}\n", "e.yaml:4: a key is text: put quotes around it"),
    "a key that is a list": ("? [a]\n: 1\n", "e.yaml:1: a key is text: put quotes around it"),
    "an open bracket": ("name: x\nsetups: [\n", "e.yaml:3: while parsing a flow node expected the node content"),
    "a colon too many": ("name: a: b\n", "e.yaml:1: mapping values are not allowed here"),
    "a tab": ("name:\n\t- x\n", "e.yaml:2: while scanning for the next token found character '\\t'"),
    "a control character": ("name: x\nnote: a\0b\n", "e.yaml:2: the character '\\x00'\n  try: remove it"),
    "an escaped NUL": ('name: "a\\0b"\n', "e.yaml:1: a text holds a NUL or half a character"),
    "half a character": ('name: "\\ud800"\n', "e.yaml:1: a text holds a NUL or half a character"),
    "two documents": (MINIMAL + "---\nname: y\n", "e.yaml:4: expected a single document"),
    "an unknown alias": ("name: *x\n", "e.yaml:1: found undefined alias 'x'"),
    "a merge key": (MINIMAL + "parameters:\n  <<: {a: 1}\n", "e.yaml:5: merge keys (<<) are not taken here"),
    "a list in itself": ("name: x\nsetups: &a [*a]\n", "e.yaml:2: found unconstructable recursive node"),
    "a number that is none": ("name: !!int abc\n", "e.yaml:1: 'abc' is not a number"),
    "a number beyond 64 bits": (MINIMAL + f"repeats: {2**63}\n", "e.yaml:4: the number 9223372036854775808 is too"),
    "not a number": (MINIMAL + "max_cost_usd: .nan\n", "e.yaml:4: the number .nan is too large, or not one"),
    "infinity": (MINIMAL + "parameters: {a: .inf}\n", "e.yaml:4: the number .inf is too large, or not one"),
    "a number of many digits": (MINIMAL + f"repeats: {'9' * 5000}\n", "is not a number"),
    "brackets without an end": (f"name: {'[' * 5000}", "e.yaml: lists or keys stand too deep in each other"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_place_and_what_was_expected(mistake: str) -> None:
    text, expected = MISTAKES[mistake]
    assert expected in told(text)


@pytest.mark.parametrize(
    "value",
    [
        "!!python/object/apply:os.system ['touch pwned']",
        "!!python/object:subprocess.Popen {}",
        "!!python/name:os.system",
        "!!python/object/new:os.system ['touch pwned']",
        "!unknown x",
    ],
)
def test_a_tag_that_makes_objects_is_refused(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert " is not taken here" in told(f"name: {value}\n")
    assert list(tmp_path.iterdir()) == []


def test_aliases_of_aliases_cost_no_memory() -> None:
    doubling = "".join(f"  k{n + 1}: &k{n + 1} [*k{n}, *k{n}]\n" for n in range(60))
    tracemalloc.start()
    try:
        message = told(f"{MINIMAL}parameters:\n  k0: &k0 [x]\n{doubling}")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "e.yaml:5: parameters.k0: expected one text" in message
    assert peak_bytes < 10_000_000


def test_a_date_is_text_as_it_was_written() -> None:
    assert convert("name: 2020-01-01\nsetups: []\n", "e.yaml", Experiment).name == "2020-01-01"
    assert convert("name: 2020-99-99\nsetups: []\n", "e.yaml", Experiment).name == "2020-99-99"


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "+1e-3", "0.001", ".001"])
def test_a_number_with_an_exponent_is_a_number(text: str) -> None:
    assert convert(f"{MINIMAL}parameters: {{a: {text}}}\n", "e.yaml", Experiment).parameters == {"a": 0.001}


def test_a_mistake_in_a_template_is_told_like_any_other() -> None:
    text = "name: x\nformat: horovod_synthetic\ncommand: z\nparameters:\n  model: {default: a, choises: [a, b]}\n"
    message = told(text, JobTemplate)
    assert message.startswith("e.yaml:5: parameters.model.choises: unknown key; did you mean 'choices'?")
    assert "known keys: default, choices, help" in message
    text = (
        "name: x\nformat: horovod_synthetic\ncommand: z\nparameters:\n  a: {}\n  b:\n    choices:\n    - a\n    - [b]\n"
    )
    assert told(text, JobTemplate).startswith("e.yaml:9: parameters.b.choices[1]: expected one text")


def test_a_format_without_a_parser_is_told_when_the_template_is_read() -> None:
    assert told("name: x\nformat: tf_cnn_benchmark\ncommand: z\n", JobTemplate).startswith(
        "e.yaml:2: format: 'tf_cnn_benchmark' is none of horovod_synthetic, tf_cnn_benchmarks; "
        "did you mean 'tf_cnn_benchmarks'?"
    )
    assert told("name: x\ncommand: z\n", JobTemplate).splitlines() == [
        "e.yaml: format: this key is required",
        "  try: add it, one of horovod_synthetic, tf_cnn_benchmarks",
    ]


KEYS = st.text(st.characters(categories=["L", "N"]), max_size=8)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "setups", "sweep", "nodes", "parameters", "provider"]) | KEYS, inner)
    ),
    max_leaves=12,
)


def experiment_or_mistake(text: str) -> Experiment | str:
    try:
        return convert(text, "e.yaml", Experiment)
    except SpecError as error:
        return error.what


@given(document=DOCUMENTS)
def test_any_document_is_an_experiment_or_one_mistake_with_its_file(document: object) -> None:
    found = experiment_or_mistake(yaml.safe_dump(document, allow_unicode=True))
    assert isinstance(found, Experiment) or found.startswith("e.yaml")


@given(text=st.text(max_size=60))
def test_any_text_is_an_experiment_or_one_mistake_with_its_file(text: str) -> None:
    found = experiment_or_mistake(text)
    assert isinstance(found, Experiment) or found.startswith("e.yaml")


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as missing:
        load_experiment(tmp_path / "none.yaml")
    assert str(missing.value).splitlines() == [
        f"{tmp_path / 'none.yaml'}: cannot be read",
        "  why: No such file or directory",
        "  try: check the path",
    ]
    with pytest.raises(SpecError, match="cannot be read"):
        read_text(tmp_path)


def test_a_file_that_is_not_utf_8_is_told(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_bytes("name: größe\n".encode("utf-16"))
    with pytest.raises(SpecError, match=r"e\.yaml: is not UTF-8 text"):
        load_experiment(path)


def test_line_ends_and_a_byte_order_mark_of_windows_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert load_experiment(path).name == "x"


def test_setups_get_names_from_their_places(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text("name: x\nsetups:\n  - {}\n  - name: mine\n  - {}\n")
    assert [setup.name for setup in load_experiment(path).setups] == ["setup-1", "mine", "setup-3"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("setups: []\n", "2: setups: the list is empty"),
        ("setups: [{name: a}, {name: a}]\n", "2: setups: two of them are named 'a'"),
        ("setups: [{name: setup-2}, {}]\n", "2: setups: two of them are named 'setup-2'"),
        ("setups: [{}]\nsweep:\n  a: [1]\n  b: []\n", "5: sweep.b: the list is empty"),
        ("setups: [{}]\ntimeout: soon\n", "3: timeout: 'soon' is not a duration such as 90s, 30m or 1h30m"),
    ],
)
def test_an_experiment_that_cannot_be_planned_is_told_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(f"name: x\n{text}")
    with pytest.raises(SpecError) as wrong:
        load_experiment(path)
    assert wrong.value.what == f"{path}:{says}"


def test_shipped_templates_are_found_by_name() -> None:
    assert "tf_cnn_benchmarks" in template_names()
    for name in template_names():
        assert load_template(name).name == name


def test_an_unknown_template_or_setup_is_told_with_a_near_one() -> None:
    with pytest.raises(SpecError) as wrong:
        load_template("tf_cnn_benchmark")
    assert wrong.value.what == "no template named 'tf_cnn_benchmark'; did you mean 'tf_cnn_benchmarks'?"
    assert "tf_cnn_benchmarks" in str(wrong.value.todo)
    with pytest.raises(SpecError, match="no setup named 'nowhere'"):
        load_setup("nowhere")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "", "tf_cnn_benchmarks/x"])
def test_a_template_s_name_is_no_path(name: str) -> None:
    with pytest.raises(SpecError, match="no template named"):
        load_template(name)


@pytest.mark.parametrize("name", ["bad name/..", "", "größe", "x\\n"])
def test_a_template_file_names_itself_in_letters_that_every_file_system_has(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f'format: horovod_synthetic\nname: "{name}"\ncommand: x\n', "utf-8")
    with pytest.raises(SpecError, match=r"mine\.yaml:2: name: .* is no name") as wrong:
        load_template(str(path))
    assert wrong.value.todo == "take letters, digits, - and _ only"


def test_a_template_file_is_taken_from_beside_the_experiment(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\nformat: horovod_synthetic\ncommand: 'true'\n")
    assert load_template("mine.yaml", beside=tmp_path).name == "mine"
    assert load_template(str(tmp_path / "mine.yaml"), beside=Path(sys.prefix)).name == "mine"
