"""The last column of a summary: a run on a cloud in the words of the tables that people know."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cloudbench.plan import RunPlan, plan_experiment
from cloudbench.results.notes import cloud_note, rehearsal_note
from cloudbench.spec import Experiment, JobTemplate, Setup

TEMPLATE = JobTemplate(name="t", format="tf_cnn_benchmarks", command="train")
IMAGE = "tensorflow/tensorflow:latest-gpu-py3"


def planned(**setup: Any) -> RunPlan:
    asked = Experiment(name="x", templates=("t",), setups=(Setup(name="s", **setup),))
    return plan_experiment(asked, {"t": TEMPLATE}, owner="me", submission=1)[0]


@pytest.mark.parametrize(
    ("setup", "note"),
    [
        ({"service": "vm", "image": "none", "storage": "local"}, "DSVM (python3) + local, NC12"),
        (
            {"service": "vm", "image": "none", "storage": "local", "priority": "low-priority"},
            "DSVM (python3)/lowpriority + local, NC12",
        ),
        (
            {"service": "batch", "image": IMAGE, "storage": "azure-files", "priority": "low-priority"},
            f"Azure Batch ({IMAGE})/lowpriority + azure files, NC12",
        ),
        ({"image": IMAGE, "storage": "azure-files"}, f"Azure Batch ({IMAGE})/dedicated + azure files, NC12"),
        ({}, "Azure Batch/dedicated, NC12"),
    ],
)
def test_a_cloud_s_note_says_service_image_priority_storage_and_size(setup: dict[str, Any], note: str) -> None:
    assert cloud_note(planned(provider="azure", sku="NC12", **setup)) == note


def test_aws_is_noted_alike() -> None:
    assert cloud_note(planned(provider="aws", service="ec2", sku="p2.xlarge", storage="s3")) == "EC2 + s3, p2.xlarge"


@pytest.mark.parametrize(
    ("parameters", "on_gpus", "note"),
    [
        ({"model": "resnet20", "batch_size": 32}, False, "rehearsed on CPU: resnet20, batch 32"),
        ({"model": "resnet20", "batch_size": None}, True, "rehearsed on GPU: resnet20"),
        ({}, False, "rehearsed on CPU"),
    ],
)
def test_a_rehearsal_s_note_says_what_was_really_trained(parameters: dict[str, Any], on_gpus: bool, note: str) -> None:
    plan = msgspec.structs.replace(planned(provider="azure", sku="NC12"), parameters=parameters)
    assert rehearsal_note(plan, on_gpus=on_gpus) == note
