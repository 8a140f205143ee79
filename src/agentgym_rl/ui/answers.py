"""Answers of the JSON API: what is sent, and how a refusal looks.

    {"error": {"type": "not_found", "message": "there is no run 'a'; the runs are: b, c"}}

NaN and infinities travel as null, which JSON has no other word for.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from starlette.responses import Response

_KINDS = {
    400: "bad_request",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "too_large",
    500: "internal",
    503: "unavailable",
}
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


class ApiError(Exception):
    """A request that is refused; the message is for a person."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def answer(content: object, status: int = 200) -> Response:
    """Return content as JSON, whatever strings and numbers a broken file put into it."""
    try:
        body = orjson.dumps(content, option=_OPTIONS)
    except (orjson.JSONEncodeError, RecursionError):
        body = orjson.dumps(_tamed(content), option=_OPTIONS)
    return Response(body, status, media_type="application/json")


def refusal(status: int, message: str) -> Response:
    kind = _KINDS.get(status, "error")
    return answer({"error": {"type": kind, "message": message}}, status)


def _tamed(value: object, depth: int = 0) -> object:
    """Return what JSON can carry: lone surrogates, huge integers and deep nests become text."""
    if depth > 50:
        return "..."
    match value:
        case str():
            return value.encode("utf-8", "replace").decode("utf-8")
        case bool() | float() | None:
            return value
        case int():
            return value if abs(value) < 2**63 else float(str(value)) if value < 1e300 else None
        case Mapping():
            return {str(_tamed(k, depth + 1)): _tamed(v, depth + 1) for k, v in value.items()}
        case list() | tuple():
            return [_tamed(item, depth + 1) for item in value]
        case _:
            return str(value)
