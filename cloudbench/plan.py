"""An experiment becomes the exact runs it stands for. Pure: the same experiment gives the same plans and ids."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

import msgspec

from cloudbench.catalog import Size, find_size
from cloudbench.errors import SpecError, did_you_mean
from cloudbench.rendering import render_shell, render_text
from cloudbench.spec import Experiment, JobTemplate, Parameter, Scalar, Setup, parse_duration_s

MOST_RUNS = 10_000
"""More runs than anyone waits for: an experiment that asks for more is a mistake in its sweep."""

STAND_IN = "stand-in "
"""How the name of an account begins that is on this machine."""

STARTING_S = 1800.0
"""How much longer than the run its machines may live in a cloud: found, started and prepared, and paid meanwhile."""

POOL_IDLE_S = 900.0
"""How long machines that a person has named as a pool are kept for the next run when none uses them, and paid."""

_NAME = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?/)?{_NAME}(?:/{_NAME})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[a-z0-9]+:[0-9a-f]{32,})?"
)
"""A reference to an image, as container engines take it."""

Launcher = Literal["single", "per-node", "horovod", "tf-config", "parameter-server", "mpirun"]


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One run, decided to the last detail.

    Runs that differ only in `repeat` share their `group`. `requires` names the Python modules that must be there
    where the ranks run. `usd_per_hour` is for all nodes together; `None` where no price is known. `retries` is how many
    more attempts a preempted run gets. A `rehearsal` runs on stand-ins of the cloud, `account` is what it runs in.
    """

    id: str
    group: str
    experiment: str
    submission: int
    owner: str
    label: str
    repeat: int
    template: str
    parameters: dict[str, Scalar | None]
    setup: Setup
    nodes: int
    gpus_per_node: int
    launcher: Launcher
    ranks_per_node: int
    command: str
    prepare: str | None
    requires: tuple[str, ...]
    environment: dict[str, str]
    image: str | None
    format: str
    timeout_s: float
    usd_per_hour: float | None = None
    max_cost_usd: float | None = None
    retries: int = 1
    rehearsal: bool = False
    account: str | None = None

    @property
    def machines_limit_s(self) -> float:
        """After so many seconds the cloud itself ends the machines; on this machine it is the run's own limit."""
        return self.timeout_s if self.setup.provider == "local" else math.ceil(self.timeout_s) + STARTING_S

    @property
    def on_stand_ins(self) -> bool:
        """Whether this machine plays the cloud: in a rehearsal, or where the account is one of stand-ins."""
        return self.rehearsal or (self.account or "").startswith(STAND_IN)

    @property
    def ranks(self) -> int:
        """Training processes in the whole run, parameter servers left out."""
        return {"single": 1, "per-node": self.nodes}.get(self.launcher, self.nodes * self.ranks_per_node)


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """How runs are planned for the stand-ins of the clouds.

    The template's `rehearsal` parameters shrink the job, except with `full_size`, and except those named in `keep`.
    """

    full_size: bool = False
    keep: frozenset[str] = frozenset()

    def shrunk(self, template: JobTemplate) -> dict[str, Scalar]:
        """The parameters that a rehearsal of the template puts in place of others."""
        kept = template.rehearsal.keys() if self.full_size else self.keep
        return {name: value for name, value in template.rehearsal.items() if name not in kept}


class NodeJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the node program is told, the same for every node: the `job.json` that `cloudbench/node` reads."""

    version: int = 1
    run: str
    attempt: int
    launcher: Launcher
    command: str
    prepare: str | None
    ranks_per_node: int
    gpus_per_node: int
    environment: dict[str, str]
    deadline_s: float
    peers_timeout_s: float = 300.0
    grace_s: float = 10.0


def node_job(plan: RunPlan, *, attempt: int) -> NodeJob:
    """The node program's orders for one attempt of a run."""
    return NodeJob(
        run=plan.id,
        attempt=attempt,
        launcher=plan.launcher,
        command=plan.command,
        prepare=plan.prepare,
        ranks_per_node=plan.ranks_per_node,
        gpus_per_node=plan.gpus_per_node,
        environment=plan.environment,
        deadline_s=plan.timeout_s,
    )


def plan_experiment(
    experiment: Experiment,
    templates: Mapping[str, JobTemplate],
    *,
    owner: str,
    submission: int,
    rehearsal: Rehearsal | None = None,
    retries: int = 1,
) -> tuple[RunPlan, ...]:
    """The runs of an experiment, in the order in which they are taken: every repeat of a setup in a row.

    Args:
        experiment: what was asked for; its setups have names.
        templates: the loaded template for each name in `experiment.templates`.
        owner: who submits. It is part of the ids, so that two people's runs never meet in one account.
        submission: how many times this experiment was submitted before, plus one; part of the ids as well.
        rehearsal: plan for stand-ins, which cost nothing, under ids of their own.
        retries: `RunPlan.retries`.

    Raises:
        SpecError: an unknown parameter or machine size, more GPUs than it has, a value that is not among the choices,
            a combination that the template refuses, or numbers that make no run.
    """
    try:
        timeout_s = parse_duration_s(experiment.timeout)
    except ValueError as error:
        raise SpecError(f"timeout: {error}", todo="write it as 30m or 1h30m") from error
    if experiment.repeats < 1:
        raise SpecError(f"repeats: {experiment.repeats} is not a number of runs", todo="ask for at least 1")
    if experiment.max_cost_usd is not None and not 0 < experiment.max_cost_usd < math.inf:
        raise SpecError(f"max_cost_usd: {experiment.max_cost_usd} is not an amount", todo="an amount such as 20")
    _check_axes(experiment)
    plans: list[RunPlan] = []
    for template_name, setup, swept in itertools.product(
        experiment.templates, experiment.setups, _combinations(experiment.sweep)
    ):
        group = _plan_group(experiment, templates[template_name], setup, swept, owner, submission, timeout_s, rehearsal)
        plans.extend(_repeats(msgspec.structs.replace(group, retries=retries), experiment.repeats))
    ids: set[str] = set()
    for plan in plans:
        if plan.id in ids:
            raise SpecError(f"{plan.label}: this run is asked for twice", todo="use `repeats` to measure it again")
        ids.add(plan.id)
    return tuple(plans)


def parameter_value(template: JobTemplate, name: str, text: str) -> Scalar:
    """A value as written on the command line, as the type of that parameter.

    Raises:
        SpecError: no such parameter, or the text does not fit its type.
    """
    parameter = _parameter(template, name)
    kind = parameter.kind
    lowered = text.lower()
    if kind is str:
        return text
    if kind is bool or (kind is None and lowered in ("true", "false")):
        if lowered not in ("true", "false"):
            raise SpecError(f"--set {name}={text}: expected true or false", todo=f"--set {name}=true")
        return lowered == "true"
    if re.fullmatch(r"[+-]?\d{1,19}", text):
        return int(text)
    if kind is not int and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
        return float(text)
    if kind is None:
        return text
    example = parameter.choices[0] if parameter.default is None else parameter.default
    raise SpecError(f"--set {name}={text}: expected a number", todo=f"--set {name}={example}")


def _check_axes(experiment: Experiment) -> None:
    axes = {
        "templates": experiment.templates,
        "setups": experiment.setups,
        **{f"sweep: {name}": values for name, values in experiment.sweep.items()},
    }
    for name, values in axes.items():
        if not values:
            raise SpecError(f"{name}: the list is empty, so that nothing would run", todo="add to it, or take it away")
    for name in experiment.sweep:
        if name in experiment.parameters:
            raise SpecError(f"sweep: {name}: has one value in `parameters` as well", todo="keep one of them")
    runs = experiment.repeats * math.prod(len(values) for values in axes.values())
    if runs > MOST_RUNS:
        raise SpecError(f"the experiment asks for {runs} runs; {MOST_RUNS} are the most", todo="sweep less at once")


_GIVEN_NAMES = frozenset({"fail", "gpus_per_node", "launcher", "nodes", "parameters", "ranks_per_node"})
"""What every template sees besides its own parameters."""


def _combinations(sweep: Mapping[str, tuple[Scalar, ...]]) -> Iterator[dict[str, Scalar]]:
    for values in itertools.product(*sweep.values()):
        yield dict(zip(sweep, values, strict=True))


def _plan_group(
    experiment: Experiment,
    template: JobTemplate,
    setup: Setup,
    swept: dict[str, Scalar],
    owner: str,
    submission: int,
    timeout_s: float,
    rehearsal: Rehearsal | None,
) -> RunPlan:
    size = _size(setup)
    nodes, gpus_per_node = setup.nodes, _gpus_per_node(setup, size)
    for key, number in (("nodes", nodes), ("gpus_per_node", gpus_per_node)):
        if number < 1:
            raise SpecError(f"{setup.name}: {key}: {number} makes no run", todo="ask for at least 1")
    shrunk = rehearsal.shrunk(template) if rehearsal else {}
    parameters = _parameters(template, {**experiment.parameters, **shrunk, **swept})
    values: dict[str, Any] = {
        **parameters,
        "parameters": parameters,
        "nodes": nodes,
        "gpus_per_node": gpus_per_node,
    }
    where = f"template {template.name}"
    launcher = render_text(template.launcher, values, where=f"{where}: launcher")
    if launcher not in get_args(Launcher):
        raise SpecError(
            f"{where}: launcher: {launcher!r} is none of {', '.join(get_args(Launcher))}"
            f"{did_you_mean(launcher, get_args(Launcher))}"
        )
    if launcher == "single" and nodes > 1:
        raise SpecError(
            f"{where}: these parameters run in a single process, which cannot use {nodes} nodes",
            todo="ask for one node, or for parameters that train across nodes",
        )
    values["launcher"] = launcher
    ranks_text = render_text(template.ranks_per_node, values, where=f"{where}: ranks_per_node")
    if not re.fullmatch("[0-9]{1,6}", ranks_text) or int(ranks_text) < 1:
        raise SpecError(f"{where}: ranks_per_node: {ranks_text!r} is not a number of ranks")
    values["ranks_per_node"] = int(ranks_text)
    requires = (render_text(text, values, where=f"{where}: requires") for text in template.requires)
    label = " ".join(
        [
            setup.name or f"{setup.provider} {nodes}x{gpus_per_node}",
            *(f"{key}={value}" for key, value in swept.items()),
        ]
    )
    if len(experiment.templates) > 1:
        label = f"{template.name} {label}"
    identity = msgspec.json.encode(
        [template, setup, parameters, timeout_s, experiment.name, owner, submission, rehearsal is not None],
        order="deterministic",
    )
    digest = hashlib.sha256(identity).hexdigest()[:8]
    group = "-".join(filter(None, [_slug(f"{experiment.name}-{label}"), digest]))
    return RunPlan(
        id=group,
        group=group,
        experiment=experiment.name,
        submission=submission,
        owner=owner,
        label=label,
        repeat=1,
        template=template.name,
        parameters=parameters,
        setup=setup,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        launcher=launcher,  # type: ignore[arg-type]  # checked above
        ranks_per_node=int(ranks_text),
        command=render_shell(template.command, values, where=f"{where}: command"),
        prepare=render_shell(template.prepare, values, where=f"{where}: prepare") or None,
        requires=tuple(text for text in requires if text),
        environment=template.environment,
        image=_image(setup, template),
        format=template.format,
        timeout_s=timeout_s,
        usd_per_hour=0.0 if rehearsal else size.usd_per_hour * nodes if size and size.usd_per_hour else None,
        max_cost_usd=experiment.max_cost_usd,
        rehearsal=rehearsal is not None,
    )


def _size(setup: Setup) -> Size | None:
    """The machine size of a cloud's setup, `None` on this machine."""
    if setup.provider == "local":
        return None
    if setup.sku is None:
        raise SpecError(
            f"{setup.name or setup.provider}: sku: {setup.provider} has many machine sizes, and none was named",
            todo="--sku NC4as_T4_v3" if setup.provider == "azure" else "--sku g4dn.xlarge",
        )
    return find_size(setup.provider, setup.sku)


def _image(setup: Setup, template: JobTemplate) -> str | None:
    image = setup.image or template.image
    if image and not _IMAGE.fullmatch(image):
        raise SpecError(
            f"{setup.name or setup.provider}: image: no container image can be called {image!r}",
            todo="write it as NAME:TAG or HOST/NAME:TAG, the name in lower case",
        )
    return image


def _gpus_per_node(setup: Setup, size: Size | None) -> int:
    if setup.gpus_per_node is None:
        return size.gpus if size else 1
    if size and setup.gpus_per_node > size.gpus:
        raise SpecError(
            f"{setup.name or setup.provider}: gpus_per_node: {setup.gpus_per_node} are more than {size.name} has: "
            f"{size.hardware}",
            todo="ask for fewer, for more nodes, or for another size",
        )
    return setup.gpus_per_node


def _repeats(first: RunPlan, count: int) -> Iterator[RunPlan]:
    if count == 1:
        yield first
        return
    for repeat in range(1, count + 1):
        yield msgspec.structs.replace(first, id=f"{first.group}-r{repeat}", repeat=repeat)


def _parameters(template: JobTemplate, given: Mapping[str, Scalar]) -> dict[str, Scalar | None]:
    for name in _GIVEN_NAMES & template.parameters.keys():
        raise SpecError(
            f"template {template.name}: parameters.{name}: the name stands for something else in a template",
            todo="give the parameter another name",
        )
    for name, value in given.items():
        parameter = _parameter(template, name)
        if reason := _unfit(value, parameter.kind):
            raise SpecError(f"template {template.name}: {name}: {value!r} {reason}", todo="correct the value")
        if parameter.choices and value not in parameter.choices:
            choices = [str(choice) for choice in parameter.choices]
            raise SpecError(
                f"template {template.name}: {name}: {value!r} is none of {', '.join(choices)}"
                f"{did_you_mean(str(value), choices)}"
            )
    return {name: given.get(name, parameter.default) for name, parameter in template.parameters.items()}


def _unfit(value: Scalar, kind: type[Scalar] | None) -> str | None:
    """Why the value cannot be a parameter's of that type, or kept in a journal, or given to a program."""
    kinds: dict[type, tuple[tuple[type, ...], str]] = {
        bool: ((bool,), "true or false"),
        int: ((int,), "a whole number"),
        float: ((int, float), "a number"),
        str: ((str,), "text; put quotes around it"),
    }
    if kind is not None:
        taken, expected = kinds[kind]
        if type(value) not in taken:
            return f"is not {expected}"
    if isinstance(value, str):
        return "holds a NUL or half a character" if re.search("[\0\ud800-\udfff]", value) else None
    if isinstance(value, float):
        return None if math.isfinite(value) else "is not a finite number"
    return None if -(2**63) <= value < 2**63 else "is larger than 64 bits"


def _parameter(template: JobTemplate, name: str) -> Parameter:
    if name not in template.parameters:
        raise SpecError(
            f"template {template.name} has no parameter {name!r}{did_you_mean(name, template.parameters)}",
            todo=f"cloudbench templates {template.name}",
        )
    return template.parameters[name]


def _slug(text: str) -> str:
    """Lower-case letters, digits and single hyphens, short enough for every cloud's names with room for suffixes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:36].rstrip("-")
