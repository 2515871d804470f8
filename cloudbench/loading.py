"""YAML files into specs: loaded safely, checked wholly, with errors that name file, line and key."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec
import yaml

from cloudbench.errors import SpecError, did_you_mean
from cloudbench.spec import Experiment, JobTemplate, Setup, parse_duration_s

if TYPE_CHECKING:
    from importlib.abc import Traversable

T = TypeVar("T")

_NAME = re.compile("[A-Za-z0-9_-]+")
_AT = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<path>[^`]*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>[^`]*)`")
_WRONG_TYPE = re.compile(r"Expected `(?P<expected>[^`]*)`, got `(?P<got>[^`]*)`")
_NOT_A_CHOICE = re.compile(r"Invalid enum value (?P<got>.*)", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<key>[^`]*)`")


def load_experiment(path: Path) -> Experiment:
    """The experiment in a YAML file; setups without a name get one from their place in the list.

    Raises:
        SpecError: the file is missing, is not YAML, or does not describe an experiment.
    """
    text = read_text(path)
    experiment = convert(text, str(path), Experiment)
    if not experiment.setups:
        raise _mistake(
            text, path, ["setups"], "the list is empty", "add at least one setup, such as `- provider: local`"
        )
    for parameter, values in experiment.sweep.items():
        if not values:
            raise _mistake(text, path, ["sweep", parameter], "the list is empty", "add to it, or take it away")
    try:
        parse_duration_s(experiment.timeout)
    except ValueError as error:
        raise _mistake(text, path, ["timeout"], str(error), "write it as 30m or 1h30m") from error
    named = tuple(
        msgspec.structs.replace(setup, name=setup.name or f"setup-{number}")
        for number, setup in enumerate(experiment.setups, start=1)
    )
    names = [setup.name for setup in named]
    for name in names:
        if names.count(name) > 1:
            raise _mistake(text, path, ["setups"], f"two of them are named {name!r}", "give each a name of its own")
    return msgspec.structs.replace(experiment, setups=named)


def load_template(name_or_path: str, *, beside: Path | None = None) -> JobTemplate:
    """The template of that name that ships with the product, or the one in that file.

    Args:
        name_or_path: a name from `template_names()`, or a path ending in .yaml or .yml.
        beside: the folder from which a relative path counts; the working directory where there is none.

    Raises:
        SpecError: no such template, or the file does not describe one.
    """
    if name_or_path.endswith((".yaml", ".yml")):
        path = (beside or Path()) / name_or_path
        text = read_text(path)
        template = convert(text, str(path), JobTemplate)
        if not _NAME.fullmatch(template.name):
            raise _mistake(text, path, ["name"], f"{template.name!r} is no name", "take letters, digits, - and _ only")
        return template
    shipped = _shipped("job_templates")
    if name_or_path not in shipped:
        raise SpecError(
            f"no template named {name_or_path!r}{did_you_mean(name_or_path, shipped)}",
            todo=f"one of {', '.join(sorted(shipped))}, or the path of a .yaml file",
        )
    return convert(shipped[name_or_path].read_text("utf-8"), f"job_templates/{name_or_path}.yaml", JobTemplate)


def template_names() -> list[str]:
    """Names of the templates that ship with the product, sorted."""
    return sorted(_shipped("job_templates"))


def load_setup(name: str) -> Setup:
    """The setup of that name that ships with the product.

    Raises:
        SpecError: no such setup.
    """
    text = resources.files("cloudbench").joinpath("data").joinpath("setups.yaml").read_text("utf-8")
    setups = convert(text, "setups.yaml", dict[str, Setup])
    if name not in setups:
        raise SpecError(
            f"no setup named {name!r}{did_you_mean(name, setups)}", todo=f"one of {', '.join(sorted(setups))}"
        )
    return msgspec.structs.replace(setups[name], name=name)


def read_text(path: Path) -> str:
    """The text of a file that a person named; SpecError where it cannot be read."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise SpecError(f"{path}: cannot be read", why=error.strerror, todo="check the path") from error
    except UnicodeDecodeError as error:
        raise SpecError(
            f"{path}: is not UTF-8 text", todo="check that it is the right file, or save it as UTF-8"
        ) from error


def convert(text: str, file: str, type_: type[T]) -> T:
    """YAML text as a value of that type.

    Raises:
        SpecError: naming the file, the line, the key, what was expected and a near match.
    """
    try:
        root = yaml.compose(text, Loader=_Loader)
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - _Loader is a SafeLoader
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SpecError(f"{file}:{line}: the character {chr(error.character)!r}", todo="remove it") from error
    except yaml.MarkedYAMLError as error:
        where = f"{file}:{error.problem_mark.line + 1}" if error.problem_mark else file
        problem = " ".join(filter(None, [error.context, error.problem]))
        raise SpecError(f"{where}: {problem}", todo="correct the YAML there") from error
    except RecursionError as error:
        raise SpecError(f"{file}: lists or keys stand too deep in each other", todo="correct the YAML") from error
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise _explained(str(error), file, root, value, type_) from error


class _Loader(yaml.SafeLoader):
    """Safe; dates stay text; and a key written twice is an error rather than a silent last one."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            raise _problem("merge keys (<<) are not taken here: write the keys out", key_node)
        if key_node.tag != "tag:yaml.org,2002:str":
            raise _problem("a key is text: put quotes around it", key_node)
        if key_node.value in seen:
            raise _problem(f"key {key_node.value!r} is there twice", key_node)
        seen.add(key_node.value)
    return dict(yaml.SafeLoader.construct_mapping(loader, node, deep=True))


def _text(loader: _Loader, node: yaml.ScalarNode) -> str:
    text = yaml.SafeLoader.construct_yaml_str(loader, node)
    if re.search("[\0\ud800-\udfff]", text):
        raise _problem("a text holds a NUL or half a character, which no program can be given", node)
    return text


def _number(loader: _Loader, node: yaml.ScalarNode) -> float:
    whole = node.tag.endswith(":int")
    try:
        make = yaml.SafeLoader.construct_yaml_int if whole else yaml.SafeLoader.construct_yaml_float
        number: float = make(loader, node)
    except (ValueError, OverflowError) as error:
        raise _problem(f"{node.value[:40]!r} is not a number", node) from error
    # What the journal can keep: it writes numbers as JSON.
    if not (-(2**63) <= number < 2**63 if whole else math.isfinite(number)):
        raise _problem(f"the number {node.value[:40]} is too large, or not one", node)
    return number


def _no_other_tag(_loader: _Loader, node: yaml.Node) -> NoReturn:
    raise _problem(f"the tag {node.tag.replace('tag:yaml.org,2002:', '!!')} is not taken here", node)


def _problem(what: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, what, node.start_mark)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# YAML 1.1 reads `1e-3` as text, for want of a point.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:str", _text)
_Loader.add_constructor("tag:yaml.org,2002:int", _number)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.add_constructor(None, _no_other_tag)


def _explained(message: str, file: str, root: yaml.Node | None, value: Any, type_: Any) -> SpecError:
    match = _AT.fullmatch(message)
    problem, path = (match["problem"], match["path"] or "") if match else (message, "")
    parts = _resolved(re.findall(r"[^.\[\]]+|\[\d+\]|\[\.\.\.\]", path), message, value, type_)
    todo = "correct that key"
    if unknown := _UNKNOWN.search(problem):
        known = _fields(type_, parts)
        parts.append(unknown["key"])
        problem = f"unknown key{did_you_mean(unknown['key'], known)}"
        todo = f"known keys: {', '.join(known)}"
    elif missing := _MISSING.search(problem):
        parts.append(missing["key"])
        choices = _choices(type_, parts)
        problem, todo = "this key is required", f"add it, one of {', '.join(choices)}" if choices else "add it"
    elif wrong := _WRONG_TYPE.search(problem):
        problem = f"expected {_plain(wrong['expected'])}, got {_plain(wrong['got'])}"
        if "str" in wrong["expected"].split(" | ") and wrong["got"] in ("bool", "int", "float"):
            todo = "put quotes around it"
    elif not_a_choice := _NOT_A_CHOICE.search(problem):
        choices = _choices(type_, parts)
        problem = f"{not_a_choice['got']} is none of {', '.join(choices)}"
        problem += did_you_mean(not_a_choice["got"].strip("'"), choices)
    return _placed(file, root, parts, problem, todo)


def _mistake(text: str, path: Path, parts: Sequence[str | int], problem: str, todo: str) -> SpecError:
    """The error about a value that has the right type, and yet cannot be."""
    return _placed(str(path), yaml.compose(text, Loader=_Loader), parts, problem, todo)


def _placed(file: str, root: yaml.Node | None, parts: Sequence[str | int], problem: str, todo: str) -> SpecError:
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")
    line = _line(root, parts)
    where = f"{file}:{line}" if line else file
    return SpecError(f"{where}: {key + ': ' if key else ''}{problem}", todo=todo)


def _plain(types: str) -> str:
    """msgspec's names of types in a person's words."""
    if types.startswith("bool | int | float | str"):
        return "one text, number, true or false"
    words = {
        "str": "text",
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        "array": "a list",
        "object": "keys with values",
        "null": "nothing",
    }
    options = types.split(" | ")
    return " or ".join(words.get(name, name) for name in options if name != "null" or len(options) == 1)


def _resolved(path: list[str], message: str, value: Any, type_: Any) -> list[str | int]:
    """The path with the key of a mapping where msgspec writes `[...]`: the first one that alone fails alike."""
    parts: list[str | int] = []
    place = value
    for part in path:
        if part == "[...]":
            for key, kept in list(place.items()):
                place.clear()
                place[key] = kept
                try:
                    msgspec.convert(value, type_)
                except msgspec.ValidationError as error:
                    if str(error) == message:
                        break
            parts.append(key)
        else:
            parts.append(int(part[1:-1]) if part.startswith("[") else part)
        place = place[parts[-1]]
    return parts


def _at(type_: Any, parts: Sequence[str | int]) -> msgspec.inspect.Type:
    """The type at that place of the document."""
    info = msgspec.inspect.type_info(type_)
    for part in parts:
        for option in _options(info):
            if isinstance(option, msgspec.inspect.StructType):
                info = next(field.type for field in option.fields if field.encode_name == part)
            elif isinstance(option, msgspec.inspect.VarTupleType):
                info = option.item_type
            elif isinstance(option, msgspec.inspect.DictType):
                info = option.value_type
    return info


def _fields(type_: Any, parts: Sequence[str | int]) -> list[str]:
    """Keys that the struct at that place of the document knows."""
    structs = (option for option in _options(_at(type_, parts)) if isinstance(option, msgspec.inspect.StructType))
    return [field.encode_name for struct in structs for field in struct.fields]


def _choices(type_: Any, parts: Sequence[str | int]) -> list[str]:
    """What can stand at that place of the document, where that is a few texts."""
    return [str(choice) for option in _options(_at(type_, parts)) for choice in getattr(option, "values", ())]


def _options(info: msgspec.inspect.Type) -> tuple[msgspec.inspect.Type, ...]:
    return info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)


def _line(root: yaml.Node | None, parts: Sequence[str | int]) -> int | None:
    """Line (from 1) of the deepest part of the path that the document has."""
    node, line = root, None
    for part in parts:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == part), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line


def _shipped(folder: str) -> dict[str, Traversable]:
    """YAML files of a folder that the wheel carries inside the package and a checkout beside it, by name."""
    package = resources.files("cloudbench")
    inside = package.joinpath(folder)
    place = inside if inside.is_dir() else Path(str(package)).parent / folder
    return {entry.name.removesuffix(".yaml"): entry for entry in place.iterdir() if entry.name.endswith(".yaml")}
