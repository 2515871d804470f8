"""Trains image networks and prints images/sec: the successor of tf_cnn_benchmarks on current TensorFlow.

    python -m cloudbench.workloads.tf_cnn_benchmarks --model=resnet50 --batch_size=64 --variable_update=replicated

`--help` lists the flags. The exit status is 2, with one message, where the call cannot work.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence

from cloudbench.workloads.flags import Flags, UsageError, describe, parse

INSTALL_HOROVOD = (
    "HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 "
    "pip install --no-build-isolation --no-deps horovod==0.28.1  (needs cmake, g++ and TensorFlow first; then "
    "pip install cloudpickle psutil pyyaml packaging)"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one process of a training; the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    if "--help" in words:
        print(describe())
        return 0
    try:
        flags = parse(words)
        require_packages(flags)
        return start(flags)
    except UsageError as error:
        print(f"tf_cnn_benchmarks: {error}", file=sys.stderr)
        return 2


def require_packages(flags: Flags) -> None:
    """Raise `UsageError` where a package that the flags need is missing, without importing it."""
    if importlib.util.find_spec("tensorflow") is None:
        raise UsageError("TensorFlow is not installed: pip install tensorflow-cpu==2.18.1 (or tensorflow[and-cuda])")
    if flags.variable_update == "horovod" and importlib.util.find_spec("horovod") is None:
        raise UsageError(f"--variable_update=horovod: Horovod is not installed. To install it:\n{INSTALL_HOROVOD}")
    if flags.source == "zmq" and importlib.util.find_spec("zmq") is None:
        raise UsageError("--input=zmq: pyzmq is not installed: pip install pyzmq")


def start(flags: Flags) -> int:
    """Import TensorFlow and do this process's part."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only; set it to 0 to see all that TensorFlow says
    from cloudbench.workloads import parameter_server, training, updates

    if flags.job_name == "ps":
        return parameter_server.serve(flags)
    kind = training.resolve_device(flags)
    choice = {
        "replicated": updates.Update,
        "horovod": updates.Horovod,
        "collective_all_reduce": updates.CollectiveAllReduce,
        "parameter_server": parameter_server.ParameterServer if flags.job_name else updates.LocalParameterServer,
    }[flags.variable_update]
    update = choice(flags, kind)
    config = training.session_config(flags, kind)
    update.configure(config)
    return training.run(flags, update, config)


if __name__ == "__main__":
    sys.exit(main())
