"""Flags are read as tf_cnn_benchmarks reads them, and what cannot work is refused with a reason."""

import contextlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudbench.workloads.flags import Flags, UsageError, describe, parse
from cloudbench.workloads.models import MODELS

TWO_WORKERS = ["--job_name=worker", "--worker_hosts=a:1,b:2"]


def test_defaults_are_those_of_the_original() -> None:
    flags = parse([])
    assert (flags.model, flags.variable_update, flags.optimizer) == ("trivial", "parameter_server", "sgd")
    assert (flags.num_batches, flags.num_warmup_batches, flags.display_every) == (100, 10, 10)


@pytest.mark.parametrize(
    "arguments",
    [["--batch_size=8"], ["--batch_size", "8"], ["-batch_size=8"], ["--batch_size=4", "--batch_size=8"]],
)
def test_a_value_follows_an_equals_sign_or_a_space(arguments: list[str]) -> None:
    assert parse(arguments).batch_size == 8


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("--use_fp16", True),
        ("--use_fp16=true", True),
        ("--use_fp16=True", True),
        ("--use_fp16=1", True),
        ("--nouse_fp16", False),
        ("--use_fp16=false", False),
        ("--use_fp16=0", False),
    ],
)
def test_a_switch_is_written_in_many_ways(argument: str, expected: bool) -> None:
    assert parse([argument]).use_fp16 is expected


def test_a_switch_does_not_eat_the_next_flag() -> None:
    flags = parse(["--use_fp16", "--batch_size", "8"])
    assert flags.use_fp16
    assert flags.batch_size == 8


def test_both_names_of_the_learning_rate_are_known() -> None:
    assert parse(["--learning_rate=0.5"]) == parse(["--init_learning_rate=0.5"])


def test_hosts_are_a_list() -> None:
    flags = parse([*TWO_WORKERS, "--variable_update=collective_all_reduce", "--task_index=1"])
    assert flags.worker_hosts == ("a:1", "b:2")
    assert flags.task_index == 1


@pytest.mark.parametrize(("model", "dataset"), [("resnet20", "cifar10"), ("resnet50", "imagenet")])
def test_a_model_brings_its_data_set_and_batch(model: str, dataset: str) -> None:
    flags = parse([f"--model={model}"])
    assert flags.dataset.name == dataset
    assert flags.device_batch == MODELS[model].batch_size


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--batchsize=8"], ["--batchsize", "batch_size"]),
        (["--model=inception4"], ["inception4", "did you mean inception3"]),
        (["resnet50"], ["resnet50", "--name=value"]),
        (["--batch_size"], ["--batch_size", "needs a value"]),
        (["--batch_size=many"], ["many", "whole number"]),
        (["--batch_size=0"], ["--batch_size=0", "1 or more"]),
        (["--num_batches=0"], ["--num_batches=0"]),
        (["--momentum=high"], ["high", "number"]),
        (["--use_fp16=maybe"], ["maybe", "true or false"]),
        (["--use_fp16", "--use_bf16"], ["--use_fp16", "--use_bf16"]),
        (["--forward_only", "--eval"], ["--forward_only", "--eval"]),
        (["--model=resnet20", "--data_name=imagenet"], ["resnet20", "cifar10"]),
        (["--model=resnet50", "--data_name=cifar10"], ["resnet50", "imagenet"]),
        (["--input=files"], ["--data_dir", "make_tfrecords"]),
        (["--input=zmq", "--data_dir=x"], ["--data_dir", "zmq"]),
        (["--device=cpu", "--data_format=NCHW"], ["NCHW", "GPU"]),
        (["--device=cpu", "--local_parameter_device=gpu"], ["--local_parameter_device=gpu"]),
        (["--device=cpu", "--variable_update=replicated", "--all_reduce_spec=nccl"], ["nccl", "ring"]),
        (["--variable_update=horovod", "--all_reduce_spec=ring"], ["--all_reduce_spec", "horovod"]),
        (["--variable_update=horovod", "--num_gpus=2"], ["horovod", "--num_gpus=1"]),
        (["--worker_hosts=a:1"], ["--worker_hosts", "--job_name"]),
        (["--ps_hosts=a:1"], ["--ps_hosts", "--job_name"]),
        (["--job_name=worker", "--variable_update=collective_all_reduce"], ["--worker_hosts"]),
        ([*TWO_WORKERS, "--variable_update=replicated"], ["--job_name", "replicated"]),
        ([*TWO_WORKERS, "--variable_update=horovod"], ["--job_name", "horovod"]),
        ([*TWO_WORKERS], ["parameter_server", "--ps_hosts"]),
        ([*TWO_WORKERS, "--variable_update=collective_all_reduce", "--ps_hosts=c:3"], ["--ps_hosts"]),
        ([*TWO_WORKERS, "--ps_hosts=c:3", "--task_index=2"], ["--task_index=2", "names 2"]),
    ],
)
def test_what_cannot_work_is_refused_with_a_reason(arguments: list[str], parts: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        parse(arguments)
    for part in parts:
        assert part in str(refused.value)


@given(st.lists(st.text(max_size=30), max_size=5))
def test_any_words_give_flags_or_a_usage_error(words: list[str]) -> None:
    with contextlib.suppress(UsageError):
        assert isinstance(parse(words), Flags)


def test_help_names_every_flag() -> None:
    text = describe()
    for name in Flags.__dataclass_fields__:
        assert f"--{name}" in text


def test_reading_flags_imports_neither_tensorflow_nor_numpy() -> None:
    code = (
        "import sys; from cloudbench.workloads.flags import parse; parse(['--model=resnet50']); "
        "sys.exit(bool({'tensorflow', 'numpy', 'msgspec'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
