"""moto, which is AWS in this process: one account of it, and the places where ours reaches into its state."""

from __future__ import annotations

import io
import secrets
from typing import Any
from urllib.parse import unquote_to_bytes

from cloudbench.catalog import Size, sizes
from cloudbench.errors import UsageError
from cloudbench.rehearsal.server import Request, Response

REGION = "us-east-1"
_HOP_BY_HOP = {"connection", "transfer-encoding"}


class Cloud:
    """An account of its own, in which nothing is but what every account begins with.

    Raises:
        UsageError: moto is not installed.
    """

    def __init__(self) -> None:
        try:
            from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        except ImportError as error:
            raise UsageError(
                "a rehearsal of AWS needs moto", why=str(error), todo="pip install 'cloudbench[aws-rehearsal]'"
            ) from error
        self.account = f"{secrets.randbelow(9 * 10**11) + 10**11}"
        self._app = DomainDispatcherApplication(create_backend_app)
        _know_retired_sizes()

    def answer(self, request: Request) -> Response:
        """What moto answers."""
        begun: list[Any] = []
        chunks = self._app(self._environ(request), lambda status, headers, _error=None: begun.extend((status, headers)))
        try:
            body = b"".join(chunks)
        finally:
            getattr(chunks, "close", lambda: None)()
        status, headers = begun
        kept = {name: value for name, value in headers if name.lower() not in _HOP_BY_HOP}
        return Response(status=int(status.split()[0]), headers=kept, body=body)

    def backend(self, service: str) -> Any:
        """The state of one service in this account."""
        from moto import backends

        get_backend: Any = backends.get_backend
        of_service = get_backend(service)
        return of_service[self.account]["global" if service in ("iam", "s3", "sts") else REGION]

    def close(self) -> None:
        """Forget the account; others in this process stay."""
        from moto.core import base_backend
        from moto.s3.models import s3_backends

        if self.account in s3_backends:
            self.backend("s3").reset()  # it closes the objects' files
        for name, (_, account) in list(s3_backends.bucket_accounts.items()):
            if account == self.account:
                del s3_backends.bucket_accounts[name]
        in_use: Any = base_backend.BackendDict
        for backends in list(in_use._instances):
            backends.pop(self.account, None)

    def _environ(self, request: Request) -> dict[str, Any]:
        """The request as WSGI has it."""
        from moto.core.request import PRESERVED_HEADER_NAMES_ENVIRON_KEY, should_preserve_original_header_name

        preserved = {}
        environ: dict[str, Any] = {
            "REQUEST_METHOD": request.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes(request.path).decode("latin-1"),
            "RAW_URI": f"{request.path}?{request.query_string}" if request.query_string else request.path,
            "QUERY_STRING": request.query_string,
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_LENGTH": str(len(request.body)),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(request.body),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in request.headers.items():
            key = name.upper().replace("-", "_")
            if key == "CONTENT_TYPE":
                environ[key] = value
            elif key not in ("CONTENT_LENGTH", "TRANSFER_ENCODING"):
                environ[f"HTTP_{key}"] = value
                if should_preserve_original_header_name(name):
                    preserved[f"HTTP_{key}"] = name
        # Whose account it is: moto alone takes all callers for the same one.
        return {**environ, PRESERVED_HEADER_NAMES_ENVIRON_KEY: preserved, "HTTP_X_MOTO_ACCOUNT_ID": self.account}


def instance_type(name: str) -> dict[str, Any] | None:
    """What EC2 tells of an instance type; None where there is none of that name."""
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    found: dict[str, Any] | None = INSTANCE_TYPES.get(name)
    return found


def instance_types(name: str) -> list[str]:
    """The types that a compute environment means: one, all of a family, or `optimal`."""
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    if name == "optimal":
        return ["m5.large", "m5.xlarge", "m5.4xlarge", "c5.4xlarge", "r5.4xlarge"]
    if name in INSTANCE_TYPES:
        return [name]
    return [known for known in INSTANCE_TYPES if known.partition(".")[0] == name]


def _know_retired_sizes() -> None:
    """moto knows what can be had today; a rehearsal also has the sizes that others once published about."""
    from moto.ec2.models import instance_types as known

    for size in sizes("aws"):
        if size.name not in known.INSTANCE_TYPES:
            known.INSTANCE_TYPES[size.name] = _described(size)
            known.InstanceTypeBackend.instance_types.append(known.InstanceType(size.name))
            family = size.name.partition(".")[0]
            if family not in known.INSTANCE_FAMILIES:
                known.INSTANCE_FAMILIES.append(family)


def _described(size: Size) -> dict[str, Any]:
    memory_mib = int(size.gpu_memory_gib * 1024)
    gpu = {"Name": size.gpu, "Manufacturer": "NVIDIA", "Count": size.gpus, "MemoryInfo": {"SizeInMiB": memory_mib}}
    return {
        "InstanceType": size.name,
        "CurrentGeneration": False,
        "BareMetal": False,
        "SupportedUsageClasses": ["on-demand", "spot"],
        "SupportedRootDeviceTypes": ["ebs"],
        "SupportedVirtualizationTypes": ["hvm"],
        "ProcessorInfo": {"SupportedArchitectures": [size.architecture]},
        "VCpuInfo": {"DefaultVCpus": size.vcpus},
        "MemoryInfo": {"SizeInMiB": int(size.memory_gib * 1024)},
        "GpuInfo": {"Gpus": [gpu], "TotalGpuMemoryInMiB": size.gpus * memory_mib},
        "InstanceStorageSupported": bool(size.local_nvme_gb),
        "NetworkInfo": {"EfaSupported": size.rdma},
        "PlacementGroupInfo": {"SupportedStrategies": ["cluster", "partition", "spread"]},
    }
