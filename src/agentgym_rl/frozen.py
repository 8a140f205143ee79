"""Mappings that cannot be changed: the JSON data of a task, and the named numbers of a round.

What an environment reports of its own is checked here once, whether it comes from an object in this
process or from a server, so that a store or a page never meets a value that it cannot hold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]

MAX_NUMBERS = 64
"""Named numbers of one round."""
MAX_NAME_CHARS = 64
_MAX_DEPTH = 32
_INT64 = 2**63
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_V = TypeVar("_V")


class FrozenDict(dict[str, _V]):
    """A dict that refuses changes. It equals the same dict, has a hash, and can be pickled."""

    __slots__ = ()

    def _refuse(self, *args: object, **names: object) -> NoReturn:
        raise TypeError("this mapping cannot be changed; make a copy with dict(...)")

    # One refusal for all that changes a dict, whatever its arguments.
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[FrozenDict[_V]], tuple[dict[str, _V]]]:
        return type(self), (dict(self),)


NOTHING: FrozenDict[Any] = FrozenDict()  # Any: it has no values, so it is of every type
"""The empty mapping."""


def frozen_payload(
    payload: Mapping[str, JsonValue], what: str = "the payload of a task"
) -> FrozenDict[JsonValue]:
    """Return a copy of JSON data that cannot be changed; lists become tuples.

    Raises TypeError or ValueError, with the place, for what JSON in UTF-8 cannot carry.
    """
    if not isinstance(payload, Mapping):
        raise TypeError(f"{what} must be a mapping, not {type(payload).__name__}")
    return _frozen_mapping(payload, what.split()[1], _MAX_DEPTH)


def named_numbers(values: Mapping[str, float], what: str) -> FrozenDict[float]:
    """Return finite numbers under names like identifiers, as floats that cannot be changed.

    Example: {"depth": 2, "found_key": True} -> {"depth": 2.0, "found_key": 1.0}
    Raises TypeError or ValueError; `what` they are is for the message.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{what} must be a mapping of names to numbers, not {_kind(values)}")
    if len(values) > MAX_NUMBERS:
        raise ValueError(f"{what} has {len(values)} names; at most {MAX_NUMBERS} are allowed")
    return FrozenDict({_name(name, what): _number(values[name], name, what) for name in values})


def is_name(name: object) -> bool:
    """Return whether a value can name a number."""
    return isinstance(name, str) and len(name) <= MAX_NAME_CHARS and bool(_NAME.fullmatch(name))


def parts_sum_to(parts: Mapping[str, float], reward: float) -> bool:
    """Return whether the parts of a reward sum to it, but for rounding."""
    return math.isclose(math.fsum(parts.values()), reward, rel_tol=1e-6, abs_tol=1e-6)


def _name(name: object, what: str) -> str:
    if not is_name(name):
        raise ValueError(
            f"{what} has the name {str(name)[:80]!r}; a name has letters, digits and underscores, "
            f"begins with no digit, and has at most {MAX_NAME_CHARS} characters"
        )
    return str(name)


def _number(value: object, name: str, what: str) -> float:
    # numpy's numbers have __float__ as well; a text has not.
    if isinstance(value, complex) or not hasattr(value, "__float__"):
        raise TypeError(f"{what}: {name!r} must be a number, not {_kind(value)}")
    number = float(value)  # pyrefly: ignore[bad-argument-type] - it has __float__
    if not math.isfinite(number):
        raise ValueError(f"{what}: {name!r} must be finite, not {number}")
    return number


def _frozen(value: object, place: str, depth: int) -> JsonValue:
    if isinstance(value, Mapping):
        return _frozen_mapping(value, place, depth)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, place)
    if isinstance(value, int):
        if not -_INT64 <= value < _INT64:
            raise ValueError(f"{place} is an int of more than 64 bits; give it as a string")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{place} must be finite, not {value}")
        return float(value)
    if type(value) in (list, tuple):
        return _frozen_sequence(value, place, depth)  # pyrefly: ignore[bad-argument-type] - it is
    raise TypeError(
        f"{place} must be plain JSON, not {_kind(value)}: convert NumPy's numbers with float() or "
        "int(), sets with sorted(), objects with str()"
    )


def _frozen_sequence(value: Sequence[JsonValue], place: str, depth: int) -> tuple[JsonValue, ...]:
    _refuse_depth(place, depth)
    return tuple(_frozen(item, f"{place}[{index}]", depth - 1) for index, item in enumerate(value))


def _frozen_mapping(
    value: Mapping[str, JsonValue], place: str, depth: int
) -> FrozenDict[JsonValue]:
    _refuse_depth(place, depth)
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"the keys of {place} must be str, not {_kind(key)}")
    return FrozenDict(
        {
            _text(key, place): _frozen(item, f"{place}.{key[:40]}", depth - 1)
            for key, item in value.items()
        }
    )


def _refuse_depth(place: str, depth: int) -> None:
    if not depth:
        raise ValueError(f"{place[:100]} is nested more than {_MAX_DEPTH} deep")


def _text(text: str, place: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{place} holds lone surrogates, which UTF-8 cannot carry") from None
    return str(text)


def _kind(value: object) -> str:
    return type(value).__name__
