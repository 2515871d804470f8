"""The public parameters that name Amazon's deep learning images; moto has those of Amazon Linux only."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from cloudbench.rehearsal.aws.cloud import REGION
from cloudbench.rehearsal.aws.wire import Body, Call, Extension, json_response
from cloudbench.rehearsal.server import Response

_NAME = re.compile(r"/aws/service/deeplearning/ami/(x86_64|arm64)/[\w.-]+/(latest|[\d.]+)/ami-id")
DEEP_LEARNING_IMAGE = "ami-dca37ea5"  # one that moto describes
_SINCE = 1767225600.0


class Images:
    """Parameters of the deep learning images: every one of the documented shape names the same image."""

    def extensions(self) -> dict[str, Extension]:
        """What is answered here."""
        return {"ssm:GetParameter": self._one, "ssm:GetParameters": self._several}

    def _one(self, call: Call, ask: Callable[[], Response]) -> Response:
        name = str(call.parameters.get("Name"))
        return json_response({"Parameter": _parameter(name)}) if _NAME.fullmatch(name) else ask()

    def _several(self, call: Call, ask: Callable[[], Response]) -> Response:
        response = ask()
        if response.status != 200:
            return response
        body: dict[str, Any] = msgspec.json.decode(response.body)
        ours = [name for name in body.get("InvalidParameters", []) if _NAME.fullmatch(name)]
        body["Parameters"] = [*body.get("Parameters", []), *map(_parameter, ours)]
        body["InvalidParameters"] = [name for name in body.get("InvalidParameters", []) if name not in ours]
        return json_response(body)


def _parameter(name: str) -> Body:
    return {
        "Name": name,
        "Type": "String",
        "Value": DEEP_LEARNING_IMAGE,
        "Version": 1,
        "LastModifiedDate": _SINCE,
        "ARN": f"arn:aws:ssm:{REGION}::parameter{name}",
        "DataType": "aws:ec2:image",
    }
