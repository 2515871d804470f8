"""Small experiments and their plans."""

from __future__ import annotations

from typing import Any

import msgspec

from cloudbench.plan import RunPlan, plan_experiment
from cloudbench.spec import Experiment, JobTemplate, Parameter, Setup

TEMPLATE = JobTemplate(
    name="train",
    command="train --model={{ model }} --batch={{ batch }} --nodes={{ nodes }} --gpus={{ gpus_per_node }}",
    prepare="{% if model == 'big' %}fetch {{ model }}{% endif %}",
    launcher="{{ 'per-node' if nodes > 1 else 'single' }}",
    ranks_per_node="{{ gpus_per_node if launcher == 'horovod' else 1 }}",
    requires=("tensorflow", "{{ 'horovod' if launcher == 'horovod' }}"),
    format="tf_cnn_benchmarks",
    image="template-image",
    environment={"A": "b"},
    parameters={
        "model": Parameter(default="small", choices=("small", "big")),
        "batch": Parameter(default=64),
        "rate": Parameter(default=0.5),
        "fast": Parameter(default=False),
        "seed": Parameter(),
        "xla": Parameter(choices=(True, False)),
    },
    rehearsal={"model": "small", "batch": 2},
)


def experiment(**changes: Any) -> Experiment:
    return msgspec.structs.replace(
        Experiment(name="Tést it", templates=("train",), setups=(Setup(name="one"),)), **changes
    )


def plans(asked: Experiment, template: JobTemplate = TEMPLATE, **changes: Any) -> tuple[RunPlan, ...]:
    arguments: dict[str, Any] = {"owner": "me-1", "submission": 1, **changes}
    return plan_experiment(asked, dict.fromkeys(asked.templates, template), **arguments)


def on_azure(**changes: Any) -> Experiment:
    setup: dict[str, Any] = {"name": "a", "provider": "azure", "sku": "NC12", "nodes": 2, **changes}
    return experiment(setups=(Setup(**setup),))
