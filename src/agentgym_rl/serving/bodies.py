"""JSON bodies checked by hand: their fields and types, and the errors of wrong ones.

A step is the hot path of a server, and a validating framework costs several times the step itself.
Each service defines the meaning of its objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import orjson


class ErrorKind(Enum):
    """Every way a request can fail: the `type` in the body, and the status."""

    MALFORMED = ("malformed", 400)
    UNAUTHORIZED = ("unauthorized", 401)
    FORBIDDEN = ("forbidden", 403)
    UNKNOWN_ROUTE = ("unknown_route", 404)
    WRONG_METHOD = ("wrong_method", 405)
    WRONG_STATE = ("wrong_state", 409)
    WRONG_ROUND = ("wrong_round", 409)
    GONE = ("gone", 410)
    """The episode has ended."""
    UNKNOWN_EPISODE = ("unknown_episode", 410)
    """The server has never had the episode: another server opened it."""
    TOO_LARGE = ("too_large", 413)
    WRONG_TYPE = ("wrong_type", 422)
    BUSY = ("busy", 429)
    ENV_FAILED = ("env_failed", 500)
    INTERNAL = ("internal", 500)
    TIMEOUT = ("timeout", 504)

    def __init__(self, type_: str, status: int) -> None:
        self.type = type_
        self.status = status


class ProtocolError(Exception):
    """A message that breaks the protocol: a request to refuse, or an answer not to be trusted."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


Object = dict[str, Any]  # JSON values have no static type; `checked` looks at the real one

FieldTypes = tuple[type, ...]


class Fields(dict[str, FieldTypes]):
    """The names and types of an object's fields, and the object's name in messages."""

    def __init__(self, name: str, **types: FieldTypes) -> None:
        super().__init__(types)
        self.name = name


def first_types(types: Mapping[str, FieldTypes]) -> tuple[tuple[str, ...], FieldTypes]:
    """Return the names in order, and the type that each has in what we write ourselves."""
    return tuple(types), tuple(allowed[0] for allowed in types.values())


def is_like(fields: Object, names: tuple[str, ...], types: FieldTypes) -> bool:
    """Return whether an object has just these fields in this order, as we write it ourselves.

    A quick test before `checked`, which allows any order and reports what is wrong.
    """
    return tuple(fields) == names and tuple(map(type, fields.values())) == types


def checked(fields: Object, types: Mapping[str, FieldTypes], what: str) -> Object:
    """Return `fields` if it has exactly the names of `types`, with values of these types.

    Types are compared exactly: JSON has no subclasses, and a bool is not an int.
    """
    for name, allowed in types.items():
        if name not in fields:
            raise ProtocolError(ErrorKind.WRONG_TYPE, f"{what}: {name!r} is missing")
        if type(fields[name]) not in allowed:
            raise ProtocolError(
                ErrorKind.WRONG_TYPE,
                f"{what}: {name!r} must be {allowed[0].__name__}, "
                f"not {type(fields[name]).__name__}",
            )
    if len(fields) != len(types):
        unknown = ", ".join(repr(name) for name in fields if name not in types)
        raise ProtocolError(ErrorKind.WRONG_TYPE, f"{what}: unknown fields: {unknown}")
    return fields


def texts_of(values: list[object], name: str) -> tuple[str, ...]:
    texts = tuple(value for value in values if isinstance(value, str))
    if len(texts) != len(values):
        raise ProtocolError(ErrorKind.WRONG_TYPE, f"every one of {name!r} must be a string")
    return texts


def load(body: bytes) -> Object:
    """Return the JSON object in a body. Raises ProtocolError if there is none."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ProtocolError(ErrorKind.MALFORMED, f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError(ErrorKind.MALFORMED, "not a JSON object")
    return value


def encode(message: object) -> bytes:
    """Return `message` (dataclasses, mappings, sequences, plain values) as JSON."""
    return orjson.dumps(message)


def error_body(kind: ErrorKind, message: str) -> Object:
    """Return the body of a failure."""
    return {"error": {"type": kind.type, "message": message}}
