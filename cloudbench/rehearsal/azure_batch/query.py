"""Listings as the service gives them: `$filter`, `$select`, `maxresults` and pages that follow each other."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from cloudbench.rehearsal.azure_batch.models import names_of
from cloudbench.rehearsal.azure_batch.wire import Body, ServiceError

_STARTS_WITH = re.compile(r"startswith\(\s*(?P<field>[\w/]+)\s*,\s*'(?P<text>(?:[^']|'')*)'\s*\)", re.IGNORECASE)
_COMPARISON = re.compile(
    r"(?P<field>[\w/]+)\s+(?P<operator>eq|ne|lt|le|gt|ge)\s+(?P<value>(?:datetime\s*)?'(?:[^']|'')*'|[\w.:+-]+)",
    re.IGNORECASE,
)
_AND = re.compile(r"\s+and\s+(?=(?:[^']*'[^']*')*[^']*$)", re.IGNORECASE)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
_MOST_RESULTS = 1000


def listing(items: list[Body], query: Mapping[str, str], *, url: str, model: str, key: str, fields: set[str]) -> Body:
    """One page of those items that the query asks for.

    Args:
        url: where the listing is, for the address of the next page.
        model: the SDK's class of an item, for the names that may be selected.
        key: the name that items are ordered by.
        fields: what may be filtered by.

    Raises:
        ServiceError: 400 for a query that cannot be answered.
    """
    accept = _filter(query.get("$filter"), fields)
    items = sorted((item for item in items if accept(item)), key=lambda item: str(item[key]).lower())
    if token := query.get("$skiptoken"):
        items = [item for item in items if str(item[key]).lower() > token.lower()]
    most = _most_results(query.get("maxresults"))
    body: Body = {"value": [select(item, query, model) for item in items[:most]]}
    if len(items) > most:
        again = {name: value for name, value in query.items() if name != "$skiptoken"}
        body["odata.nextLink"] = f"{url}?{urlencode({**again, '$skiptoken': str(items[most - 1][key])})}"
    return body


def select(item: Body, query: Mapping[str, str], model: str) -> Body:
    """The properties that are asked for; all where none is named.

    Raises:
        ServiceError: 400 for one that there is not.
    """
    if query.get("$expand", "stats") != "stats":
        raise _mistake("$expand", query["$expand"], "only stats can be expanded")
    if "$select" not in query:
        return item
    wanted = [name.strip().split("/")[0] for name in query["$select"].split(",")]
    for name in wanted:
        if name not in names_of(model):
            raise _mistake("$select", query["$select"], f"there is no property {name}")
    return {name: value for name, value in item.items() if name in wanted}


def _most_results(text: str | None) -> int:
    if text is None:
        return _MOST_RESULTS
    if not text.isdigit() or not 1 <= int(text) <= _MOST_RESULTS:
        raise ServiceError(
            400,
            "OutOfRangeQueryParameterValue",
            "A query parameter specified in the request URI is outside the permissible range.",
            values={"QueryParameterName": "maxresults", "QueryParameterValue": text},
        )
    return int(text)


def _filter(text: str | None, fields: set[str]) -> Callable[[Body], bool]:
    if text is None:
        return lambda item: True
    clauses = [_clause(clause.strip(), text, fields) for clause in _AND.split(text)]
    return lambda item: all(clause(item) for clause in clauses)


def _clause(clause: str, whole: str, fields: set[str]) -> Callable[[Body], bool]:
    if match := _STARTS_WITH.fullmatch(clause):
        start = match["text"].replace("''", "'").lower()
        field = _field(match["field"], whole, fields)
        return lambda item: str(_value(item, field) or "").lower().startswith(start)
    if match := _COMPARISON.fullmatch(clause):
        field = _field(match["field"], whole, fields)
        compare, wanted = _OPERATORS[match["operator"].lower()], _literal(match["value"])
        return lambda item: _compares(compare, _value(item, field), wanted)
    raise _mistake("$filter", whole, f"{clause!r} is not understood")


def _field(name: str, whole: str, fields: set[str]) -> str:
    if name not in fields:
        raise _mistake("$filter", whole, f"{name} cannot be filtered by")
    return name


def _value(item: Body, field: str) -> Any:
    value: Any = item
    for name in field.split("/"):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _literal(text: str) -> Any:
    if text.endswith("'"):
        return text[text.index("'") + 1 : -1].replace("''", "'").lower()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.lstrip("-").isdigit() else text.lower()


def _compares(compare: Callable[[Any, Any], bool], value: Any, wanted: Any) -> bool:
    value = value.lower() if isinstance(value, str) else value
    if value is None or type(value) is not type(wanted):
        return compare is operator.ne
    return compare(value, wanted)


def _mistake(name: str, value: str, reason: str) -> ServiceError:
    message = "An invalid value was specified for one of the query parameters in the request URI."
    values = {"QueryParameterName": name, "QueryParameterValue": value, "Reason": reason}
    return ServiceError(400, "InvalidQueryParameterValue", message, values=values)
