"""Microsoft's own document of Azure Resource Manager, against which requests and responses of the tests are held."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

DOCUMENT = Path(__file__).parents[3].parent / "shared" / "specs" / "azure-resources" / "resources-2024-03-01.json"

# What the document takes from another one, which is not beside this checkout.
_ERROR = {
    "type": "object",
    "properties": {
        "code": {"type": "string"},
        "message": {"type": "string"},
        "details": {"type": "array", "items": {"$ref": "#/definitions/ErrorResponse"}},
    },
    "required": ["code", "message"],
}
_PAGING = {"$skiptoken"}


class Contract:
    """The document, with every object of a request or an answer closed against unknown properties."""

    def __init__(self, document: dict[str, Any]) -> None:
        text = json.dumps(document)
        text = re.sub(r"[./]*common-types/[^\"#]*(#/definitions/ErrorResponse)", r"\1", text)
        self._document = json.loads(text)
        self._definitions = _closed({**self._document["definitions"], "ErrorResponse": _ERROR})
        # The more a template says outright, the better it describes a path: `{scope}` fits them all.
        templates = sorted(self._document["paths"], key=lambda path: path.count("{") - len(path))
        self._patterns = {path: re.compile(re.sub(r"\{\w+\}", "[^/]+", path), re.IGNORECASE) for path in templates}
        self.checked: set[tuple[str, int]] = set()

    def check(self, exchange: Any) -> None:
        """For the SDK's `raw_response_hook`: the request that was sent, and what was answered."""
        request, answered = exchange.http_request, exchange.http_response
        parts = urlsplit(request.url)
        operation = self._operation(request.method, parts.path)
        if operation is None:
            return  # not of this document: virtual machines
        parameters = [self._named(each) for each in operation["parameters"]]
        known = {each["name"] for each in parameters if each["in"] == "query"}
        assert {name for name, _ in parse_qsl(parts.query)} <= known | _PAGING
        body = request.content
        for parameter in parameters:
            if parameter["in"] == "body" and body and answered.status_code < 400:
                self._validate(json.loads(body), parameter["schema"])
        described = operation["responses"].get(str(answered.status_code)) or operation["responses"]["default"]
        self.checked.add((operation["operationId"], answered.status_code))
        text = answered.read().decode()
        if text and "schema" in described:
            self._validate(json.loads(text), described["schema"])

    def _operation(self, method: str, path: str) -> dict[str, Any] | None:
        for template, pattern in self._patterns.items():
            if pattern.fullmatch(path):
                operation: dict[str, Any] | None = self._document["paths"][template].get(method.lower())
                return operation
        return None

    def _named(self, parameter: dict[str, Any]) -> dict[str, Any]:
        name = parameter.get("$ref", "").rpartition("/")[2]
        found: dict[str, Any] = self._document["parameters"].get(name, parameter)
        # Parameters that several documents share are named for what they are.
        return found if "name" in found else {"name": "api-version", "in": "query"}

    def _validate(self, body: Any, schema: dict[str, Any]) -> None:
        import jsonschema

        whole = {"allOf": [schema], "definitions": self._definitions}
        mistakes = [
            f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
            for error in jsonschema.Draft4Validator(whole).iter_errors(body)
        ]
        assert mistakes == []


def contract() -> Contract | None:
    """The document's, or None where it is not beside this checkout."""
    return Contract(json.loads(DOCUMENT.read_text("utf-8"))) if DOCUMENT.is_file() else None


def _closed(definitions: dict[str, Any]) -> dict[str, Any]:
    definitions = copy.deepcopy(definitions)
    inherited = {item["$ref"].rpartition("/")[2] for each in definitions.values() for item in each.get("allOf", ())}
    for name, definition in definitions.items():
        if "properties" in definition and name not in inherited and "allOf" not in definition:
            definition.setdefault("additionalProperties", False)
        for required in [key for key in ("required",) if not definition.get(key)]:
            definition.pop(required, None)
    return definitions
