"""An experiment becomes runs: which, in what order, with which ids; and what is refused before anything starts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudbench.errors import SpecError
from cloudbench.plan import (
    MOST_RUNS,
    Rehearsal,
    RunPlan,
    node_job,
    parameter_value,
    plan_experiment,
)
from cloudbench.spec import Experiment, JobTemplate, Parameter, Scalar, Setup
from tests.experiments import TEMPLATE, experiment, on_azure, plans


def refused(asked: Experiment, template: JobTemplate = TEMPLATE) -> str:
    with pytest.raises(SpecError) as wrong:
        plans(asked, template)
    return wrong.value.what


def test_a_run_is_decided_to_the_last_detail() -> None:
    (plan,) = plans(experiment(setups=(Setup(name="two", nodes=2, gpus_per_node=4),), parameters={"model": "big"}))
    assert plan.command == "train --model=big --batch=64 --nodes=2 --gpus=4"
    assert plan.prepare == "fetch 'big'"
    assert (plan.launcher, plan.nodes, plan.gpus_per_node, plan.ranks_per_node, plan.ranks) == ("per-node", 2, 4, 1, 2)
    assert plan.parameters == {"model": "big", "batch": 64, "rate": 0.5, "fast": False, "seed": None, "xla": None}
    assert (plan.template, plan.format, plan.image) == ("train", "tf_cnn_benchmarks", "template-image")
    assert plan.requires == ("tensorflow",)
    assert plan.timeout_s == 1800
    assert (plan.usd_per_hour, plan.max_cost_usd) == (None, None)


def test_what_is_empty_is_none() -> None:
    (plan,) = plans(experiment())
    assert plan.prepare is None
    assert plan.gpus_per_node == 1


def test_a_setup_s_image_goes_before_the_template_s() -> None:
    assert plans(experiment(setups=(Setup(name="a", image="mine"),)))[0].image == "mine"


def test_every_combination_is_run_with_its_repeats_in_a_row() -> None:
    asked = experiment(
        setups=(Setup(name="a"), Setup(name="b")), sweep={"batch": (1, 2), "fast": (True, False)}, repeats=2
    )
    found = plans(asked)
    assert [(plan.label, plan.repeat) for plan in found[:4]] == [
        ("a batch=1 fast=True", 1),
        ("a batch=1 fast=True", 2),
        ("a batch=1 fast=False", 1),
        ("a batch=1 fast=False", 2),
    ]
    assert len(found) == len({plan.id for plan in found}) == 2 * 2 * 2 * 2
    assert len({plan.group for plan in found}) == 2 * 2 * 2
    for plan in found:
        assert plan.id == f"{plan.group}-r{plan.repeat}"


def test_repeats_differ_in_nothing_but_their_number() -> None:
    first, second = plans(experiment(repeats=2))
    assert msgspec.structs.replace(second, id=first.id, repeat=1) == first
    assert plans(experiment())[0].id == first.group


def test_several_templates_are_told_apart_by_the_label() -> None:
    other = msgspec.structs.replace(TEMPLATE, name="infer")
    asked = experiment(templates=("train", "infer"))
    found = plan_experiment(asked, {"train": TEMPLATE, "infer": other}, owner="me", submission=1)
    assert [(plan.template, plan.label) for plan in found] == [("train", "train one"), ("infer", "infer one")]


def test_the_same_experiment_gives_the_same_plans() -> None:
    asked = experiment(sweep={"batch": (1, 2)}, repeats=2)
    assert plans(asked) == plans(asked)


IN_ANOTHER_PROCESS = """
import msgspec, sys
from cloudbench.loading import load_template
from cloudbench.plan import plan_experiment
from cloudbench.spec import Experiment
asked = msgspec.json.decode(sys.argv[1], type=Experiment)
plans = plan_experiment(asked, {"tf_cnn_benchmarks": load_template("tf_cnn_benchmarks")}, owner="me", submission=1)
sys.stdout.buffer.write(msgspec.json.encode(plans))
"""


def test_every_process_gives_the_same_plans() -> None:
    asked = Experiment(
        name="x", parameters={"model": "vgg16"}, sweep={"batch_size": (1, 2)}, setups=(Setup(name="a", nodes=2),)
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", IN_ANOTHER_PROCESS, msgspec.json.encode(asked).decode()],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "12345")
    ]
    assert len(set(outputs)) == 1
    assert len(msgspec.json.decode(outputs[0], type=list[RunPlan])) == 2


def test_planning_touches_no_clock_file_or_network() -> None:
    touched: list[str] = []
    asked = experiment(sweep={"batch": (1, 2)})
    plans(asked)
    plans_again = []

    def watch(event: str, _: object) -> None:
        if watching and event.split(".")[0] in ("open", "socket", "subprocess", "os", "time", "sqlite3"):
            touched.append(event)

    watching = True
    sys.addaudithook(watch)
    plans_again.extend(plans(asked))
    watching = False
    assert len(plans_again) == 2
    assert touched == []


def test_another_owner_submission_or_request_gives_other_ids() -> None:
    asked = experiment()
    others = [
        plans(asked),
        plans(asked, owner="me-2"),
        plans(asked, submission=2),
        plans(experiment(parameters={"batch": 65})),
        plans(experiment(timeout="31m")),
        plans(experiment(setups=(Setup(name="one", nodes=2),))),
        plans(asked, msgspec.structs.replace(TEMPLATE, command="train --new")),
    ]
    assert len({plan.id for (plan,) in others}) == len(others)


def test_a_default_that_is_written_out_is_the_same_run() -> None:
    assert plans(experiment(parameters={"batch": 64})) == plans(experiment())


NAMES = st.text(min_size=1, max_size=80)


@given(name=NAMES, setup=NAMES, repeats=st.integers(1, 12))
def test_an_id_is_a_name_in_every_cloud(name: str, setup: str, repeats: int) -> None:
    for plan in plans(experiment(name=name, setups=(Setup(name=setup),), repeats=repeats)):
        assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", plan.id)
        assert len(plan.id) <= 64


@given(
    value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
    | st.integers(-(2**63), 2**63 - 1),
    repeats=st.integers(1, 3),
)
def test_a_plan_comes_back_from_the_journal_as_it_was(value: Scalar, repeats: int) -> None:
    for plan in plans(experiment(parameters={"seed": value}, repeats=repeats)):
        assert msgspec.json.decode(msgspec.json.encode(plan), type=RunPlan) == plan


def test_a_node_is_told_its_part_of_the_plan() -> None:
    (plan,) = plans(experiment(parameters={"model": "big"}, timeout="90s"))
    job = msgspec.to_builtins(node_job(plan, attempt=3))
    assert {key: job[key] for key in ("version", "run", "attempt", "launcher", "command", "prepare")} == {
        "version": 1,
        "run": plan.id,
        "attempt": 3,
        "launcher": "single",
        "command": plan.command,
        "prepare": "fetch 'big'",
    }
    assert job["deadline_s"] == 90
    assert job["environment"] == {"A": "b"}


@pytest.mark.parametrize(
    ("launcher", "nodes", "ranks"),
    [("single", 1, 1), ("per-node", 3, 3), ("horovod", 3, 12), ("tf-config", 2, 8), ("parameter-server", 2, 8)],
)
def test_the_ranks_of_a_launcher(launcher: str, nodes: int, ranks: int) -> None:
    template = msgspec.structs.replace(TEMPLATE, launcher=launcher, ranks_per_node="4")
    assert plans(experiment(setups=(Setup(name="a", nodes=nodes),)), template)[0].ranks == ranks


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"parameters": {"modle": "big"}}, "template train has no parameter 'modle'; did you mean 'model'?"),
    ({"sweep": {"modle": ("big",)}}, "template train has no parameter 'modle'; did you mean 'model'?"),
    ({"parameters": {"model": "bigg"}}, "template train: model: 'bigg' is none of small, big; did you mean 'big'?"),
    ({"parameters": {"batch": "64"}}, "template train: batch: '64' is not a whole number"),
    ({"parameters": {"batch": 0.5}}, "template train: batch: 0.5 is not a whole number"),
    ({"parameters": {"batch": True}}, "template train: batch: True is not a whole number"),
    ({"parameters": {"rate": "x"}}, "template train: rate: 'x' is not a number"),
    ({"parameters": {"fast": 1}}, "template train: fast: 1 is not true or false"),
    ({"parameters": {"xla": 1}}, "template train: xla: 1 is not true or false"),
    ({"parameters": {"xla": "maybe"}}, "template train: xla: 'maybe' is not true or false"),
    ({"parameters": {"seed": "a\0b"}}, "template train: seed: 'a\\x00b' holds a NUL"),
    ({"parameters": {"seed": "\ud800"}}, "holds a NUL or half a character"),
    ({"parameters": {"seed": 2**63}}, "is larger than 64 bits"),
    ({"parameters": {"seed": float("inf")}}, "is not a finite number"),
    ({"parameters": {"batch": 1}, "sweep": {"batch": (1, 2)}}, "sweep: batch: has one value in `parameters` as well"),
    ({"sweep": {"batch": ()}}, "sweep: batch: the list is empty"),
    ({"sweep": {"batch": (1, 1)}}, "one batch=1: this run is asked for twice"),
    ({"templates": ()}, "templates: the list is empty"),
    ({"templates": ("train", "train")}, "this run is asked for twice"),
    ({"setups": ()}, "setups: the list is empty"),
    ({"setups": (Setup(name="a", nodes=0),)}, "a: nodes: 0 makes no run"),
    ({"setups": (Setup(name="a", gpus_per_node=-1),)}, "a: gpus_per_node: -1 makes no run"),
    ({"repeats": 0}, "repeats: 0 is not a number of runs"),
    ({"repeats": 10**9}, f"asks for 1000000000 runs; {MOST_RUNS} are the most"),
    ({"timeout": "soon"}, "timeout: 'soon' is not a duration such as 90s, 30m or 1h30m"),
    ({"max_cost_usd": 0.0}, "max_cost_usd: 0.0 is not an amount"),
    ({"max_cost_usd": float("nan")}, "max_cost_usd: nan is not an amount"),
]


@pytest.mark.parametrize(("changes", "says"), MISTAKES, ids=[says for _, says in MISTAKES])
def test_a_mistake_is_told_before_anything_is_planned(changes: dict[str, Any], says: str) -> None:
    assert says in refused(experiment(**changes))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"launcher": "horovodrun"}, "launcher: 'horovodrun' is none of single, per-node, horovod"),
        ({"launcher": "horovo"}, "did you mean 'horovod'?"),
        ({"launcher": "{{ fail('not together') }}"}, "template train: launcher: not together"),
        ({"ranks_per_node": "many"}, "template train: ranks_per_node: 'many' is not a number of ranks"),
        ({"ranks_per_node": "0"}, "template train: ranks_per_node: '0' is not a number of ranks"),
        ({"ranks_per_node": "²"}, "is not a number of ranks"),
        ({"command": "train {{ modle }}"}, "template train: command: 'modle' is undefined"),
        ({"command": "train '{{ model }}'"}, "template train: command: a value stands inside ' quotes"),
        ({"prepare": "{{ 1 / 0 }}"}, "template train: prepare: division by zero"),
        ({"parameters": {"nodes": Parameter()}}, "parameters.nodes: the name stands for something else"),
        ({"requires": ("{{ x }}",)}, "template train: requires: 'x' is undefined"),
    ],
)
def test_a_wrong_template_is_told_with_its_key(changes: dict[str, Any], says: str) -> None:
    assert says in refused(experiment(), msgspec.structs.replace(TEMPLATE, **changes))


def test_one_process_cannot_use_two_nodes() -> None:
    template = msgspec.structs.replace(TEMPLATE, launcher="single")
    assert "cannot use 2 nodes" in refused(experiment(setups=(Setup(name="a", nodes=2),)), template)


@pytest.mark.parametrize(
    "image", ["none", "mine", "Host.Example:5000/team/train_it:v1.2", f"train@sha256:{'0' * 64}", f"sha256:{'0' * 64}"]
)
def test_an_image_is_taken_as_it_was_named(image: str) -> None:
    (plan,) = plans(experiment(setups=(Setup(name="one", image=image),)))
    assert plan.image == image


@pytest.mark.parametrize("image", ["Mine", "two words", "a//b", "a:", "a:b:c", "-v /:/host", "a;b", "train@v1", "a\n"])
def test_an_image_that_no_engine_can_know_is_refused_before_machines_are_paid_for(image: str) -> None:
    wrong = refused(experiment(setups=(Setup(name="one", image=image),)))
    assert wrong == f"one: image: no container image can be called {image!r}"


def test_a_cloud_s_run_has_all_gpus_of_its_size_and_its_price() -> None:
    (plan,) = plans(on_azure())
    assert (plan.gpus_per_node, plan.usd_per_hour, plan.setup.sku) == (2, 3.6, "NC12")
    assert "--gpus=2" in plan.command


def test_a_cloud_s_run_can_leave_gpus_idle_and_pays_for_them() -> None:
    (plan,) = plans(on_azure(gpus_per_node=1))
    assert (plan.gpus_per_node, plan.usd_per_hour) == (1, 3.6)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"gpus_per_node": 4}, "a: gpus_per_node: 4 are more than Standard_NC12 has: 2 x K80 of 12 GiB"),
        ({"gpus_per_node": 0}, "a: gpus_per_node: 0 makes no run"),
        ({"sku": None}, "a: sku: azure has many machine sizes, and none was named"),
        ({"sku": "NC13"}, "sku: azure has no GPU size 'NC13' that is known here; did you mean 'NC12'?"),
        ({"provider": "aws", "sku": "NC12"}, "sku: aws has no GPU size 'NC12'"),
    ],
)
def test_a_size_that_does_not_fit_is_told_before_anything_is_planned(changes: dict[str, Any], says: str) -> None:
    assert says in refused(on_azure(**changes))


def test_a_rehearsal_costs_nothing_and_has_ids_of_its_own() -> None:
    (live,) = plans(on_azure())
    (plan,) = plans(on_azure(), rehearsal=Rehearsal(full_size=True))
    assert (live.rehearsal, plan.rehearsal) == (False, True)
    assert plan.id != live.id
    assert (live.usd_per_hour, plan.usd_per_hour) == (3.6, 0.0)
    assert (plan.command, plan.gpus_per_node) == (live.command, live.gpus_per_node)


@pytest.mark.parametrize(
    ("rehearsal", "given", "planned"),
    [
        (None, {}, ("small", 64)),
        (None, {"model": "big", "batch": 8}, ("big", 8)),
        (Rehearsal(), {}, ("small", 2)),
        (Rehearsal(), {"model": "big", "batch": 8}, ("small", 2)),
        (Rehearsal(keep=frozenset({"batch", "seed"})), {"model": "big", "batch": 8}, ("small", 8)),
        (Rehearsal(full_size=True), {"model": "big", "batch": 8}, ("big", 8)),
    ],
)
def test_a_rehearsal_shrinks_the_job_but_for_what_was_given_on_the_way(
    rehearsal: Rehearsal | None, given: dict[str, Scalar], planned: tuple[str, int]
) -> None:
    asked = msgspec.structs.replace(on_azure(), parameters=given)
    (plan,) = plans(asked, rehearsal=rehearsal)
    assert (plan.parameters["model"], plan.parameters["batch"]) == planned


def test_what_is_swept_stays_swept_in_a_rehearsal() -> None:
    asked = msgspec.structs.replace(on_azure(), sweep={"batch": (16, 32)})
    found = plans(asked, rehearsal=Rehearsal())
    assert [plan.parameters["batch"] for plan in found] == [16, 32]


def test_a_template_that_shrinks_what_it_does_not_have_is_wrong() -> None:
    template = msgspec.structs.replace(TEMPLATE, rehearsal={"modle": "small"})
    with pytest.raises(SpecError, match=r"has no parameter 'modle'; did you mean 'model'"):
        plans(on_azure(), template, rehearsal=Rehearsal())


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("model", "big", "big"),
        ("model", "7", "7"),
        ("batch", "7", 7),
        ("batch", "-7", -7),
        ("rate", "7", 7),
        ("rate", "1e-3", 0.001),
        ("rate", ".5", 0.5),
        ("fast", "True", True),
        ("fast", "false", False),
        ("xla", "true", True),
        ("seed", "7", 7),
        ("seed", "7.5", 7.5),
        ("seed", "true", True),
        ("seed", "a b", "a b"),
        ("seed", "", ""),
        ("seed", "1_000", "1_000"),
    ],
)
def test_a_value_of_the_command_line_takes_the_type_of_its_parameter(name: str, text: str, value: Scalar) -> None:
    found = parameter_value(TEMPLATE, name, text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("batch", "many", "--set batch=many: expected a number"),
        ("batch", "1.5", "--set batch=1.5: expected a number"),
        ("batch", "9" * 5000, ": expected a number"),
        ("rate", "fast", "--set rate=fast: expected a number"),
        ("fast", "1", "--set fast=1: expected true or false"),
        ("xla", "maybe", "--set xla=maybe: expected true or false"),
        ("bach", "1", "template train has no parameter 'bach'; did you mean 'batch'?"),
    ],
)
def test_a_value_that_does_not_fit_its_parameter_is_refused(name: str, text: str, says: str) -> None:
    with pytest.raises(SpecError) as wrong:
        parameter_value(TEMPLATE, name, text)
    assert says in wrong.value.what


@given(text=st.text(max_size=20), name=st.sampled_from(["batch", "rate", "fast", "seed", "model"]))
@settings(max_examples=300)
def test_a_value_of_the_command_line_is_planned_or_refused(text: str, name: str) -> None:
    try:
        value = parameter_value(TEMPLATE, name, text)
        (plan,) = plans(experiment(parameters={name: value}))
    except SpecError:
        return
    assert plan.parameters[name] == value
