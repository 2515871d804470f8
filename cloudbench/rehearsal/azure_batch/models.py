"""Request bodies held against the SDK's own models: what the service does not know is refused, never ignored.

The wire names, types and required fields of all bodies are read from `azure.batch.models`, which the vendor generates
from the service's interface; nothing of it is repeated here but the fields that only its older version has.
"""

from __future__ import annotations

import datetime
import enum
import types
import typing
from functools import cache
from typing import Any

from cloudbench.rehearsal.azure_batch.wire import Body, ServiceError, duration_s

# What version 2024-02-01.19.0 takes and 2025-06-01 took away; all of it is without effect here.
_FORMER: dict[str, dict[str, type]] = {
    "BatchPoolCreateOptions": {"resourceTags": dict, "targetNodeCommunicationMode": str},
    "BatchPoolSpecification": {"resourceTags": dict, "targetNodeCommunicationMode": str},
    "BatchPoolReplaceOptions": {"targetNodeCommunicationMode": str},
    "BatchPoolUpdateOptions": {"targetNodeCommunicationMode": str},
    "BatchTaskCreateOptions": {"authenticationTokenSettings": dict},
    "BatchJobManagerTask": {"authenticationTokenSettings": dict},
    "BatchTask": {"authenticationTokenSettings": dict},
    "DataDisk": {"storageAccountType": str},
}
_PLAIN: dict[object, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    float: (int, float),
    bytes: (str,),
    datetime.datetime: (str,),
    datetime.date: (str,),
}


class _Field(typing.NamedTuple):
    type: Any
    required: bool
    writable: bool


def check(model: str, body: Any, *, former: bool = False) -> None:
    """Refuse a body that is not what the model of that name describes.

    Args:
        model: a class of `azure.batch.models`.
        former: the request is made in the older version of the interface.

    Raises:
        ServiceError: 400, with the place of the first mistake.
    """
    _check_model(model, body, "", former)


def names_of(model: str) -> frozenset[str]:
    """The wire names of all properties of the model of that name."""
    return frozenset(_fields(model))


@cache
def _fields(model: str) -> dict[str, _Field]:
    from azure.batch import models
    from azure.batch.models import _models

    kind = getattr(_models, model)
    kind()  # the SDK gathers a model's fields when the first of its kind is made
    hints = typing.get_type_hints(kind, {**vars(_models), "_models": models})
    fields: dict[str, _Field] = {}
    for attribute, rest in kind._attr_to_rest_field.items():
        writable = rest._visibility is None or bool({"create", "update"} & set(rest._visibility))
        hint = hints[attribute]
        required = type(None) not in typing.get_args(hint)
        fields[rest._rest_name] = _Field(hint, required, writable)
    return fields


def _check_model(model: str, body: Any, at: str, former: bool) -> None:
    if not isinstance(body, dict):
        raise _mistake("InvalidRequestBody", at, "an object is expected here")
    fields = _fields(model)
    older = _FORMER.get(model, {}) if former else {}
    for name, value in body.items():
        here = f"{at}.{name}" if at else name
        if name in older:
            if not isinstance(value, older[name]):
                raise _mistake("InvalidPropertyValue", here, "the value has the wrong type")
        elif name not in fields or not fields[name].writable:
            raise _mistake("InvalidRequestBody", here, "the property is not known here")
        elif value is not None:
            _check_value(fields[name].type, value, here, former)
    for name, field in fields.items():
        if field.required and field.writable and body.get(name) is None:
            raise _mistake("MissingRequiredProperty", f"{at}.{name}" if at else name, "a required property is missing")


def _check_value(hint: Any, value: Any, at: str, former: bool) -> None:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        _check_union([each for each in arguments if each is not type(None)], value, at, former)
    elif origin is list:
        if not isinstance(value, list):
            raise _mistake("InvalidPropertyValue", at, "a list is expected here")
        for index, item in enumerate(value):
            _check_value(arguments[0], item, f"{at}[{index}]", former)
    elif origin is dict:
        if not isinstance(value, dict):
            raise _mistake("InvalidPropertyValue", at, "an object is expected here")
    elif hint is datetime.timedelta:
        _check_duration(value, at)
    elif hint is bool or isinstance(value, bool):
        if hint is not bool or not isinstance(value, bool):
            raise _mistake("InvalidPropertyValue", at, "the value has the wrong type")
    elif hint in _PLAIN:
        if not isinstance(value, _PLAIN[hint]):
            raise _mistake("InvalidPropertyValue", at, "the value has the wrong type")
    elif hasattr(hint, "_attr_to_rest_field") or getattr(hint, "_is_model", False):
        _check_model(hint.__name__, value, at, former)


def _check_union(hints: list[Any], value: Any, at: str, former: bool) -> None:
    """One type, or `str | AnEnum`: of an enumeration only its values are taken, in any case of letters."""
    for hint in hints:
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            known = [str(member.value) for member in hint]
            if not isinstance(value, str) or value.lower() not in [each.lower() for each in known]:
                raise _mistake("InvalidPropertyValue", at, f"the value is none of {', '.join(known)}")
            return
    _check_value(hints[0], value, at, former)


def _check_duration(value: Any, at: str) -> None:
    try:
        duration_s(value)
    except (TypeError, ValueError) as error:
        raise _mistake("InvalidPropertyValue", at, "a duration such as PT1H is expected here") from error


def _mistake(code: str, at: str, why: str) -> ServiceError:
    message = "The value provided for one of the properties in the request body is invalid."
    return ServiceError(400, code, message, values={"PropertyName": at, "Reason": why})


def without_secrets(body: Body) -> Body:
    """A body as the service hands it out again: keys and passwords are taken, never told."""
    return {name: _told(value) for name, value in body.items() if name not in _SECRET}


_SECRET = {"accountKey", "password", "sasKey", "sshPrivateKey"}


def _told(value: Any) -> Any:
    if isinstance(value, dict):
        return without_secrets(value)
    if isinstance(value, list):
        return [_told(each) for each in value]
    return value
