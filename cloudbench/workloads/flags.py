"""The training program's flags: their names, meanings and defaults, and which combinations cannot work.

Everything here is decided before TensorFlow is imported, so that a typing error costs no start-up time. Names and
meanings are those of tf_cnn_benchmarks; what it calls `gpu` in a name (`--num_gpus`) counts devices of any kind.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any

from cloudbench.workloads.models import DATASETS, MODELS, Dataset, Model

INPUTS = ("constant", "host", "queue", "dataset", "zmq", "files")
MULTI_PROCESS_UPDATES = ("parameter_server", "collective_all_reduce")


class UsageError(Exception):
    """The call cannot work as it was made. The message says why and what to do; the exit status is 2."""


def _flag(default: Any, help_text: str, choices: Sequence[str] = (), alias: str | None = None) -> Any:
    return dataclasses.field(default=default, metadata={"help": help_text, "choices": choices, "alias": alias})


@dataclasses.dataclass(frozen=True)
class Flags:
    """The flags of one process. `None` stands for "not given", which the help text explains."""

    model: str = _flag("trivial", "network to train", tuple(MODELS))
    batch_size: int | None = _flag(None, "images for each device and step; the model's own where not given")
    num_gpus: int = _flag(1, "devices that this process drives; with --device=cpu, logical CPU devices")
    num_batches: int = _flag(100, "steps that are timed")
    num_warmup_batches: int = _flag(10, "steps before the timed ones")
    display_every: int = _flag(10, "steps between two lines")
    variable_update: str = _flag(
        "parameter_server",
        "how devices and processes share what they learn",
        ("parameter_server", "replicated", "horovod", "collective_all_reduce"),
    )
    local_parameter_device: str | None = _flag(
        None,
        "where parameter_server keeps the weights in a single process; like --device where not given",
        ("cpu", "gpu"),
    )
    all_reduce_spec: str | None = _flag(
        None,
        "reduce gradients by TensorFlow's collectives of this kind; where not given, replicated adds copies and "
        "collective_all_reduce lets TensorFlow choose",
        ("nccl", "ring"),
    )
    device: str | None = _flag(None, "kind of device; a GPU where there is one", ("cpu", "gpu"))
    data_format: str | None = _flag(None, "layout of images; NCHW on a GPU, NHWC on a CPU", ("NCHW", "NHWC"))
    use_fp16: bool = _flag(False, "compute in float16, keep weights in float32, scale the loss")
    use_bf16: bool = _flag(False, "compute in bfloat16, keep weights in float32")
    xla: bool = _flag(False, "let XLA cluster operations by itself")
    xla_compile: bool = _flag(False, "have XLA compile each device's forward and backward pass")
    optimizer: str = _flag("sgd", "update rule", ("sgd", "momentum", "rmsprop", "adam"))
    learning_rate: float | None = _flag(None, "the model's own where not given", alias="init_learning_rate")
    momentum: float = _flag(0.9, "for --optimizer=momentum and rmsprop")
    weight_decay: float = _flag(0.00004, "factor of the weights' L2 loss")
    forward_only: bool = _flag(False, "inference: time the forward pass, keep the weights")
    eval: bool = _flag(False, "inference that prints accuracies (and examples/sec)")
    print_training_accuracy: bool = _flag(False, "add top-1 and top-5 accuracy to the step lines")
    input: str | None = _flag(None, "where images come from; constant on the device, or files with --data_dir", INPUTS)
    data_dir: str | None = _flag(None, "folder of TFRecord files (train-*, validation-*)")
    data_name: str | None = _flag(None, "data set; the model's own where not given", tuple(DATASETS))
    distortions: bool = _flag(True, "crop and mirror images from files at random while training")
    num_intra_threads: int | None = _flag(None, "threads inside one operation")
    num_inter_threads: int | None = _flag(None, "operations at the same time")
    tf_random_seed: int = _flag(1234, "for initial weights and made-up images; rank r makes its images from seed + r")
    job_name: str | None = _flag(None, "this process's part among several", ("worker", "ps"))
    task_index: int = _flag(0, "this process's index in its job")
    worker_hosts: tuple[str, ...] = _flag((), "host:port of each worker, comma-separated")
    ps_hosts: tuple[str, ...] = _flag((), "host:port of each parameter server, comma-separated")
    flush_stdout: bool = _flag(True, "taken for old command lines; every line is flushed")

    @property
    def network(self) -> Model:
        """Facts of the chosen model."""
        return MODELS[self.model]

    @property
    def dataset(self) -> Dataset:
        """Facts of the chosen data set."""
        return DATASETS[self.data_name or self.network.datasets[0]]

    @property
    def device_batch(self) -> int:
        """Images for each device and step."""
        return self.batch_size or self.network.batch_size

    @property
    def source(self) -> str:
        """One of `INPUTS`."""
        return self.input or ("files" if self.data_dir else "constant")

    @property
    def training(self) -> bool:
        """Whether weights change."""
        return not (self.forward_only or self.eval)

    @property
    def dtype(self) -> str:
        """Name of the type that the network computes in."""
        return "float16" if self.use_fp16 else "bfloat16" if self.use_bf16 else "float32"


def parse(arguments: Sequence[str]) -> Flags:
    """Read `--name=value`, `--name value`, `--name` and `--noname`; raise `UsageError` for anything else."""
    fields = _fields_by_name()
    values: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            raise UsageError(f"'{word}' is no flag: flags are written --name=value")
        name, equals, text = word.lstrip("-").partition("=")
        if name.startswith("no") and not equals and _is_switch(fields.get(name[2:])):
            name, equals, text = name[2:], "=", "false"
        field = fields.get(name)
        if field is None:
            raise UsageError(f"unknown flag --{name}{_near(name, fields)}; --help lists the flags")
        if not equals:
            text = "true" if _is_switch(field) else _following(name, rest)
        values[field.name] = _value(field, name, text)
    flags = Flags(**values)
    problem = _impossible(flags)
    if problem:
        raise UsageError(problem)
    return flags


def describe() -> str:
    """The text of `--help`."""
    lines = ["usage: python -m cloudbench.workloads.tf_cnn_benchmarks [--flag=value]...", ""]
    for field in dataclasses.fields(Flags):
        default = "" if field.default in (None, ()) else f" (default {str(field.default).lower()})"
        choices = field.metadata["choices"]
        lines.append(f"  --{field.name}{default}")
        lines.append(f"      {field.metadata['help']}{': ' + ', '.join(choices) if choices else ''}")
    return "\n".join(lines)


def _fields_by_name() -> dict[str, dataclasses.Field[Any]]:
    fields = {field.name: field for field in dataclasses.fields(Flags)}
    fields.update({field.metadata["alias"]: field for field in fields.copy().values() if field.metadata["alias"]})
    return fields


def _kind(field: dataclasses.Field[Any]) -> str:
    # Annotations are text here (see the __future__ import): "int | None" is an int that may be missing.
    return str(field.type).split(" |")[0]


def _is_switch(field: dataclasses.Field[Any] | None) -> bool:
    return field is not None and _kind(field) == "bool"


def _near(name: str, names: Any) -> str:
    matches = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {matches[0]}?)" if matches else ""


def _following(name: str, rest: list[str]) -> str:
    if not rest:
        raise UsageError(f"--{name} needs a value")
    return rest.pop(0)


def _value(field: dataclasses.Field[Any], name: str, text: str) -> Any:
    kind = _kind(field)
    if kind == "bool":
        switch = {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
        if switch is None:
            raise UsageError(f"--{name}={text}: expected true or false")
        return switch
    if kind in ("int", "float"):
        try:
            return int(text) if kind == "int" else float(text)
        except ValueError:
            raise UsageError(f"--{name}={text}: expected {'a whole number' if kind == 'int' else 'a number'}") from None
    if kind.startswith("tuple"):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    choices = field.metadata["choices"]
    if choices and text not in choices:
        raise UsageError(f"--{name}={text}: expected one of {', '.join(choices)}{_near(text, choices)}")
    return text


def _impossible(flags: Flags) -> str | None:
    return _bad_number(flags) or _bad_data(flags) or _bad_device(flags) or _bad_job(flags)


def _bad_number(flags: Flags) -> str | None:
    for name, least in (
        ("batch_size", 1),
        ("num_gpus", 1),
        ("num_batches", 1),
        ("num_warmup_batches", 0),
        ("display_every", 1),
        ("task_index", 0),
        ("num_intra_threads", 0),
        ("num_inter_threads", 0),
        ("tf_random_seed", 0),
    ):
        value = getattr(flags, name)
        if value is not None and value < least:
            return f"--{name}={value}: expected {least} or more"
    return None


def _bad_data(flags: Flags) -> str | None:
    if flags.data_name and flags.data_name not in flags.network.datasets:
        return f"--model={flags.model} trains on {' or '.join(flags.network.datasets)}, not on {flags.data_name}"
    if flags.source == "files" and not flags.data_dir:
        return "--input=files needs --data_dir (python -m cloudbench.workloads.make_tfrecords makes a small set)"
    if flags.data_dir and flags.source != "files":
        return f"--data_dir is read by --input=files, not by --input={flags.input}"
    if flags.use_fp16 and flags.use_bf16:
        return "--use_fp16 and --use_bf16 exclude each other"
    if flags.forward_only and flags.eval:
        return "--forward_only and --eval exclude each other"
    return None


def _bad_device(flags: Flags) -> str | None:
    if flags.device == "cpu" and flags.data_format == "NCHW":
        return "--data_format=NCHW needs a GPU: TensorFlow convolves NHWC images on a CPU"
    if flags.device == "cpu" and flags.local_parameter_device == "gpu":
        return "--local_parameter_device=gpu cannot be had with --device=cpu"
    if flags.device == "cpu" and flags.all_reduce_spec == "nccl":
        return "--all_reduce_spec=nccl needs GPUs; take ring with --device=cpu"
    if flags.all_reduce_spec and flags.variable_update not in ("replicated", "collective_all_reduce"):
        return f"--all_reduce_spec has no meaning with --variable_update={flags.variable_update}"
    return None


def _bad_job(flags: Flags) -> str | None:
    update = flags.variable_update
    if update == "horovod" and flags.num_gpus != 1:
        return f"horovod drives one device per process: take --num_gpus=1 and more processes, not {flags.num_gpus}"
    if not flags.job_name:
        named = [name for name in ("worker_hosts", "ps_hosts") if getattr(flags, name)]
        return f"--{named[0]} needs --job_name (worker or ps)" if named else None
    if update not in MULTI_PROCESS_UPDATES:
        return f"--job_name has no meaning with --variable_update={update}; take {' or '.join(MULTI_PROCESS_UPDATES)}"
    if not flags.worker_hosts:
        return "--job_name needs --worker_hosts"
    if update == "parameter_server" and not flags.ps_hosts:
        return "several processes with --variable_update=parameter_server need --ps_hosts"
    if update == "collective_all_reduce" and (flags.ps_hosts or flags.job_name == "ps"):
        return "collective_all_reduce has workers only: leave out --ps_hosts and --job_name=ps"
    hosts = flags.worker_hosts if flags.job_name == "worker" else flags.ps_hosts
    if flags.task_index >= len(hosts):
        return f"--task_index={flags.task_index}: --{flags.job_name}_hosts names {len(hosts)} (counted from 0)"
    return None
