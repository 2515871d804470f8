"""Microsoft's OpenAPI document of Azure Files, held against what a client and the stand-in say to each other."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

DOCUMENT = Path(__file__).parents[3].parent / "shared" / "specs" / "azure-files" / "file-2024-08-04.json"

# What later versions of the service say than the document describes.
LATER_HEADERS = {"x-ms-client-request-id"}
ALWAYS_ANSWERED = {"etag", "last-modified", "x-ms-request-id", "x-ms-version"}


class Contract:
    """Checks each exchange; `operations` and `codes` keep what was seen."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.operations: set[str] = set()
        self.codes: set[str] = set()

    def check(self, exchange: Any) -> None:
        """A hook of the SDK: an answer, with the request that it is to."""
        request, response = exchange.http_request, exchange.http_response
        path, query = urlsplit(request.url).path, dict(parse_qsl(urlsplit(request.url).query, keep_blank_values=True))
        operation = self._operation(request.method, path, query)
        self.operations.add(operation["operationId"])
        self._check_request(operation, request, query)
        documented = operation["responses"].get(str(response.status_code))
        given = {name.lower() for name in response.headers}
        if documented is None:
            assert response.status_code >= 400, (operation["operationId"], response.status_code)
            self.codes.add(response.headers["x-ms-error-code"])
            assert {"x-ms-request-id", "x-ms-version"} <= given
            return
        listed = {name.lower() for name in documented.get("headers", {})}
        assert listed & ALWAYS_ANSWERED <= given, (operation["operationId"], listed & ALWAYS_ANSWERED - given)
        ours = {name for name in given if name.startswith("x-ms-") and not name.startswith("x-ms-meta-")}
        assert ours <= listed | LATER_HEADERS, (operation["operationId"], ours - listed)
        reference = documented.get("schema", {}).get("$ref")
        if reference:
            schema = self._named(reference)
            document = ElementTree.fromstring(response.text())  # noqa: S314 (the stand-in's own)
            self._check_element(document, schema, schema.get("xml", {}).get("name"))

    def _operation(self, method: str, path: str, query: dict[str, str]) -> dict[str, Any]:
        depth = len([name for name in path.replace("%2F", "/").split("/") if name])
        kind = "directory" if query.get("restype") == "directory" else "share" if depth == 1 else "file"
        kind = "service" if depth == 0 else kind
        for template, methods in self.document["x-ms-paths"].items():
            route, _, wanted_query = template.partition("?")
            kinds = ["service", "share", "directory", "file"]
            if kinds[len([name for name in route.split("/") if name])] != kind or method.lower() not in methods:
                continue
            wanted = dict(parse_qsl(wanted_query, keep_blank_values=True))
            if {name: query[name] for name in ("restype", "comp") if name in query} == wanted:
                return methods[method.lower()] | {"shared": methods.get("parameters", [])}
        raise AssertionError(f"{method} {path} {query} is not documented")

    def _check_request(self, operation: dict[str, Any], request: Any, query: dict[str, str]) -> None:
        parameters = [self._resolved(parameter) for parameter in operation["parameters"] + operation["shared"]]
        headers = {name.lower(): value for name, value in request.headers.items()}
        for parameter in parameters:
            where = {"header": headers, "query": query}.get(parameter["in"])
            if where is not None and parameter.get("required") and parameter["name"] != "x-ms-file-attributes":
                assert parameter["name"].lower() in where, (operation["operationId"], parameter["name"])
        known = {parameter["name"] for parameter in parameters if parameter["in"] == "query"}
        assert query.keys() <= known | {"restype", "comp"}, operation["operationId"]

    def _check_element(self, element: ElementTree.Element, schema: dict[str, Any], name: str | None) -> None:
        schema = self._resolved(schema)
        assert name is None or element.tag == name, (element.tag, name)
        if schema.get("type") == "integer":
            assert re.fullmatch(r"\d+", element.text or ""), element.tag
        if schema.get("type") != "object" or "additionalProperties" in schema:
            return
        properties = {
            self._name_of(key, value): (key, self._resolved(value)) for key, value in schema["properties"].items()
        }
        lists = {
            self._name_of("", value["items"]): value["items"]
            for _, value in properties.values()
            if value.get("type") == "array" and not value.get("xml", {}).get("wrapped")
        }
        for child in element:
            if child.tag in lists:
                self._check_element(child, lists[child.tag], child.tag)
                continue
            assert child.tag in properties, f"<{child.tag}> is not known in <{element.tag}>"
            value = properties[child.tag][1]
            if value.get("type") == "array":
                for entry in child:
                    self._check_element(entry, value["items"], self._name_of("", value["items"]))
            else:
                # A directory has properties, but no length.
                self._check_element(child, value | {"required": []} if element.tag == "Directory" else value, child.tag)
        present = {child.tag for child in element} | element.attrib.keys()
        given = {key for name, (key, _) in properties.items() if name in present}
        optional = {key for _, (key, value) in properties.items() if value.get("type") == "array"}
        assert set(schema.get("required", [])) <= given | optional, (element.tag, given)

    def _name_of(self, key: str, schema: dict[str, Any]) -> str:
        own = schema.get("xml", {}).get("name") or self._resolved(schema).get("xml", {}).get("name")
        if own and own not in ("LeaseStatus", "LeaseState", "LeaseDuration"):
            return str(own)
        return key or schema["$ref"].rsplit("/", 1)[1]

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {**self._named(schema["$ref"]), **schema} if "$ref" in schema else schema

    def _named(self, reference: str) -> dict[str, Any]:
        _, kind, name = reference.split("/")
        return self.document[kind][name]  # type: ignore[no-any-return]


def contract() -> Contract | None:
    """The document's, or None where it is not beside this checkout."""
    return Contract(json.loads(DOCUMENT.read_text("utf-8"))) if DOCUMENT.is_file() else None
