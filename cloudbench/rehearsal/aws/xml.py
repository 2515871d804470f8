"""Answers of EC2 that moto does not give."""

from __future__ import annotations

from typing import Any
from uuid import uuid4
from xml.sax.saxutils import escape

from cloudbench.rehearsal.server import Response


def ec2_response(operation: str, body: dict[str, Any]) -> Response:
    """An answer to an operation: lists are counted out as `item`."""
    text = "".join(_element(name, value) for name, value in body.items())
    namespace = "http://ec2.amazonaws.com/doc/2016-11-15/"
    document = f'<{operation}Response xmlns="{namespace}"><requestId>{uuid4()}</requestId>{text}</{operation}Response>'
    return Response(status=200, headers={"Content-Type": "text/xml;charset=UTF-8"}, body=document.encode())


def _element(name: str, value: Any) -> str:
    if isinstance(value, list):
        inside = "".join(_element("item", item) for item in value)
    elif isinstance(value, dict):
        inside = "".join(_element(key, item) for key, item in value.items())
    else:
        inside = escape(str(value))
    return f"<{name}>{inside}</{name}>"
