"""Microsoft's own document of the Batch data plane, against which every request and response of the tests is held.

The document is of version 2024-02-01.19.0; what the SDK's version has more is taken from the wire names of its models.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

SHARED = Path(__file__).parents[3].parent / "shared" / "specs" / "azure-batch"
DOCUMENT = SHARED / "BatchService-2024-02-01.19.0.json"
MODELS = SHARED / "sdk-15.1.0-models.json"
EXAMPLES = SHARED / "examples"

# What the SDK calls otherwise than the document.
_RENAMED = {
    "BatchAffinityInfo": "AffinityInfo",
    "BatchContainerConfiguration": "ContainerConfiguration",
    "BatchMetadataItem": "MetadataItem",
    "BatchOsDisk": "OSDisk",
    "BatchVmImageReference": "ImageReference",
    "BatchUefiSettings": "UefiSettings",
    "BatchInboundNatPool": "InboundNatPool",
    "BatchPublicIpAddressConfiguration": "PublicIpAddressConfiguration",
}
_ALWAYS = {"$skiptoken"}  # of the addresses that the service itself gives out


class Contract:
    """The document, with every object closed against unknown properties."""

    def __init__(self, document: dict[str, Any], models: dict[str, Any]) -> None:
        self.operations = {
            (method.upper(), path): operation
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        }
        self._patterns = {path: _pattern(path) for path in document["paths"]}
        self._requests = _closed(document["definitions"], models, answers=False)
        self._responses = _closed(document["definitions"], models, answers=True)
        self.checked: set[tuple[str, str, int]] = set()

    def check(self, response: Any) -> None:
        """For the SDK's `raw_response_hook`: the request that was sent, and what was answered."""
        request, answered = response.http_request, response.http_response
        parts = urlsplit(request.url)
        body = request.content if request.content is not None else b""
        self.check_request(request.method, parts.path, parts.query, json.loads(body) if body else None)
        text = answered.headers.get("Content-Type", "").startswith("application/json") and answered.read()
        self.check_response(request.method, parts.path, answered.status_code, json.loads(text) if text else None)
        assert answered.headers["request-id"]

    def check_request(self, method: str, path: str, query: str, body: Any) -> None:
        """A request as the document describes it."""
        operation = self.operation(method, path)
        if operation is None:
            return
        parameters = [each for each in operation["parameters"] if "name" in each]
        known = {each["name"] for each in parameters if each["in"] == "query"} | {"api-version"} | _ALWAYS
        assert {name for name, _ in parse_qsl(query)} <= known
        schemas = [each["schema"] for each in parameters if each["in"] == "body"]
        if body is not None:
            _validate(body, schemas[0], self._requests)

    def check_response(self, method: str, path: str, status: int, body: Any) -> None:
        """A response as the document describes it: its status, and its body without unknown properties."""
        operation = self.operation(method, path)
        if operation is None or status == 304:
            return
        described = operation["responses"].get(str(status))
        if described is None:
            assert status >= 400, f"{method} {path} does not answer {status}"
            described = operation["responses"]["default"]
        self.checked.add((method, path, status))
        if body is None:
            assert "schema" not in described or described["schema"].get("type") == "file" or status == 200
        else:
            _validate(body, described["schema"], self._responses)

    def operation(self, method: str, path: str) -> dict[str, Any] | None:
        """The operation of that path, None for one that only the newer version has."""
        for template, pattern in self._patterns.items():
            if pattern.fullmatch(path) and (method, template) in self.operations:
                found: dict[str, Any] = self.operations[method, template]
                return found
        return None


def contract() -> Contract | None:
    """The contract, where the document is beside this checkout."""
    if not DOCUMENT.is_file() or not MODELS.is_file():
        return None
    return Contract(json.loads(DOCUMENT.read_text("utf-8")), json.loads(MODELS.read_text("utf-8")))


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", lambda m: ".+" if m[1] == "filePath" else "[^/]+", template))


def _closed(definitions: dict[str, Any], models: dict[str, Any], *, answers: bool) -> dict[str, Any]:
    definitions = copy.deepcopy(definitions)
    for name, fields in models.items():
        target = definitions.get(_RENAMED.get(name) or name) or definitions.get(name.replace("Options", "Content"))
        if target and "properties" in target:
            for field in fields.values():
                target["properties"].setdefault(field["rest"], {})
    for definition in definitions.values():
        if "properties" not in definition:
            continue
        definition.setdefault("additionalProperties", False)
        properties = definition["properties"]
        # The SDK sends it back with what it has read.
        properties["odata.metadata"] = {}
        if answers:
            # Keys and passwords are taken, never told.
            secret = {name for name, each in properties.items() if each.get("x-ms-secret") or name == "password"}
            definition["required"] = [name for name in definition.get("required", []) if name not in secret]
            properties["odata.nextLink"] = {}
        if not definition.get("required"):
            definition.pop("required", None)
    return definitions


def _validate(body: Any, schema: dict[str, Any], definitions: dict[str, Any]) -> None:
    import jsonschema

    whole = {"allOf": [schema], "definitions": definitions}
    mistakes = [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
        for error in jsonschema.Draft4Validator(whole).iter_errors(body)
    ]
    assert mistakes == []
