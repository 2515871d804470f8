"""The templates that ship: each combination gives the launcher and the ranks that are meant, in valid shell text."""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
import shutil
import subprocess
from typing import Any

import pytest

from cloudbench.errors import SpecError
from cloudbench.loading import load_template, template_names
from cloudbench.plan import Rehearsal, RunPlan, plan_experiment
from cloudbench.spec import Experiment, JobTemplate, Setup
from cloudbench.workloads.flags import Flags
from cloudbench.workloads.models import MODELS

NAME = "tf_cnn_benchmarks"

PARAMETERS: list[dict[str, Any]] = [
    {"variable_update": update, "program": program}
    for update, program in itertools.product(
        ("horovod", "collective_all_reduce", "parameter_server", "replicated"), ("cloudbench", "upstream")
    )
]
SHAPES = [(1, 1), (1, 4), (2, 1), (3, 2)]

# Of a parameter's values, on one node and on several: the launcher, and the ranks on each node of G GPUs.
LAUNCHERS = {
    "horovod": (("horovod", "G"), ("horovod", "G")),
    "collective_all_reduce": (("tf-config", "G"), ("tf-config", "G")),
    "parameter_server": (("single", "1"), ("parameter-server", "G")),
    "replicated": (("single", "1"), None),
}


def planned(parameters: dict[str, Any], nodes: int, gpus: int, name: str = NAME) -> RunPlan:
    setup = Setup(name="s", nodes=nodes, gpus_per_node=gpus)
    asked = Experiment(name="x", templates=(name,), parameters=parameters, setups=(setup,))
    (plan,) = plan_experiment(asked, {name: load_template(name)}, owner="me", submission=1)
    return plan


def combinations() -> list[tuple[dict[str, Any], int, int]]:
    return [
        (parameters, nodes, gpus)
        for parameters, (nodes, gpus) in itertools.product(PARAMETERS, SHAPES)
        if LAUNCHERS[parameters["variable_update"]][nodes > 1]
    ]


@pytest.mark.parametrize(("parameters", "nodes", "gpus"), combinations())
def test_each_combination_gives_its_launcher_and_ranks(parameters: dict[str, Any], nodes: int, gpus: int) -> None:
    plan = planned(parameters, nodes, gpus)
    meant = LAUNCHERS[parameters["variable_update"]][nodes > 1]
    assert meant is not None
    launcher, ranks = meant
    assert plan.launcher == launcher
    assert plan.ranks_per_node == (gpus if ranks == "G" else 1)
    assert plan.ranks == (1 if launcher == "single" else nodes * gpus)


@pytest.mark.parametrize("name", template_names())
def test_a_template_that_ships_has_a_small_form(name: str) -> None:
    template = load_template(name)
    setup = Setup(name="s", provider="azure", sku="NC12", nodes=2)
    asked = Experiment(name="x", templates=(name,), setups=(setup,))
    (plan,) = plan_experiment(asked, {name: template}, owner="me", submission=1, rehearsal=Rehearsal())
    assert template.rehearsal.items() <= plan.parameters.items()
    assert template.rehearsal


def words(plan: RunPlan) -> list[str]:
    """The words of the command, as a shell reads them before it puts in its variables."""
    return shlex.split(plan.command.replace("\\\n", " "))


@pytest.mark.parametrize(("parameters", "nodes", "gpus"), combinations())
def test_the_program_is_given_the_flags_of_its_launcher(parameters: dict[str, Any], nodes: int, gpus: int) -> None:
    plan = planned(parameters, nodes, gpus)
    flags = [word for word in words(plan) if word.startswith("--")]
    names = [flag.split("=")[0] for flag in flags]
    assert len(names) == len(set(names))
    assert f"--num_gpus={gpus if plan.launcher == 'single' else 1}" in flags
    assert f"--variable_update={parameters['variable_update']}" in flags
    clustered = plan.launcher in ("tf-config", "parameter-server")
    for name in ("job_name", "task_index", "worker_hosts"):
        assert (f"--{name}=$CLOUDBENCH_{name.upper()}" in flags) == clustered
    assert ("--ps_hosts=$CLOUDBENCH_PS_HOSTS" in flags) == (plan.launcher == "parameter-server")
    assert not {"--program", "--upstream_repository", "--upstream_commit"} & set(names)


@pytest.mark.parametrize(("parameters", "nodes", "gpus"), combinations())
def test_the_commands_are_valid_shell_text(parameters: dict[str, Any], nodes: int, gpus: int) -> None:
    plan = planned({**parameters, "data_dir": "/data/it's here; touch pwned"}, nodes, gpus)
    sh = shutil.which("sh")
    if sh is None:
        pytest.skip("there is no POSIX shell here")
    for text in filter(None, (plan.command, plan.prepare)):
        subprocess.run([sh, "-n", "-c", text], check=True, capture_output=True)
    assert "--data_dir=/data/it's here; touch pwned" in words(plan)


def test_replicated_training_across_nodes_is_refused_with_what_to_take() -> None:
    with pytest.raises(SpecError, match=r"variable_update=replicated trains on one node only; across nodes take horo"):
        planned({"variable_update": "replicated"}, nodes=2, gpus=1)


def test_the_original_program_is_cloned_at_its_commit_before_the_ranks_start() -> None:
    plan = planned({"program": "upstream"}, nodes=2, gpus=1)
    assert plan.prepare is not None
    assert "checkout --quiet '00197155db191f1bc3a76ca689c8da4f2b073ffc'" in plan.prepare
    assert "tensorflow-benchmarks/scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py" in plan.command
    assert planned({}, nodes=2, gpus=1).prepare is None


@pytest.mark.parametrize(
    ("parameters", "modules"),
    [
        ({}, ("tensorflow",)),
        ({"variable_update": "horovod"}, ("tensorflow", "horovod")),
        ({"program": "upstream"}, ("tensorflow", "tf_keras")),
        ({"variable_update": "horovod", "program": "upstream"}, ("tensorflow", "horovod", "tf_keras")),
    ],
)
def test_the_modules_that_must_be_there_follow_the_parameters(
    parameters: dict[str, Any], modules: tuple[str, ...]
) -> None:
    assert planned(parameters, nodes=1, gpus=1).requires == modules


def test_each_parameter_reaches_the_program_under_its_own_name() -> None:
    template = load_template(NAME)
    ours = {"program", "upstream_repository", "upstream_commit"}
    given = {name: knob.choices[0] if knob.choices else 7 for name, knob in template.parameters.items()}
    given |= {name: "x" for name, knob in template.parameters.items() if isinstance(knob.default, str)}
    given |= {name: template.parameters[name].default for name in (*ours, "model", "variable_update")}
    flags = words(planned(given, nodes=1, gpus=1))
    for name in template.parameters.keys() - ours:
        value = given[name]
        assert f"--{name}={str(value).lower() if isinstance(value, bool) else value}" in flags


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"batch_size": 0}, "batch_size=0: at least 1 image a step"),
        ({"num_batches": 0}, "num_batches=0: at least 1 step is timed"),
        ({"num_warmup_batches": -1}, "num_warmup_batches=-1: 0 or more"),
        ({"use_fp16": "maybe"}, "use_fp16: 'maybe' is not true or false"),
    ],
)
def test_what_the_program_would_refuse_is_refused_before_a_machine_is_rented(
    parameters: dict[str, Any], says: str
) -> None:
    with pytest.raises(SpecError, match=says):
        planned(parameters, nodes=1, gpus=1)


def test_no_warm_up_is_a_number_of_steps_as_well() -> None:
    assert "--num_warmup_batches=0" in words(planned({"num_warmup_batches": 0}, nodes=1, gpus=1))


def test_the_models_are_those_of_the_program_and_any_for_the_original() -> None:
    with pytest.raises(SpecError) as wrong:
        planned({"model": "resnet21"}, nodes=1, gpus=1)
    listed = re.fullmatch(".*model=resnet21 is none of (.*); program=upstream has others", wrong.value.what)
    assert listed
    assert listed[1].split(", ") == list(MODELS)
    for model in MODELS:
        assert f"--model={model}" in words(planned({"model": model}, nodes=1, gpus=1))
    assert "--model=resnet21" in words(planned({"model": "resnet21", "program": "upstream"}, nodes=1, gpus=1))


def test_every_switch_of_the_training_program_takes_true_and_false_only() -> None:
    switches = {field.name for field in dataclasses.fields(Flags) if field.type == "bool"} - {"flush_stdout"}
    assert switches == {name for name, knob in load_template(NAME).parameters.items() if knob.kind is bool}


@pytest.mark.parametrize("name", template_names())
def test_every_template_plans_with_its_defaults(name: str) -> None:
    template: JobTemplate = load_template(name)
    assert planned({}, nodes=1, gpus=1, name=name).command
    for parameter in template.parameters.values():
        assert parameter.default is None or not parameter.choices or parameter.default in parameter.choices


def test_every_flag_of_the_training_program_is_a_parameter() -> None:
    template = load_template("tf_cnn_benchmarks")
    launched_with = {"num_gpus", "job_name", "task_index", "worker_hosts", "ps_hosts"}
    of_old_command_lines = {"flush_stdout"}
    flags = {field.name for field in dataclasses.fields(Flags)} - launched_with - of_old_command_lines
    ours = {"program", "upstream_repository", "upstream_commit"}
    assert set(template.parameters) - ours == flags
