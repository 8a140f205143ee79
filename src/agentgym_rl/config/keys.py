"""Every setting by its dotted key, and the keys that a misspelt or misplaced one may mean."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import get_args

from pydantic import BaseModel

from agentgym_rl.config.run import RunConfig

_SURE = 0.75
"""How alike two names are, of 1, before one is suggested across sections."""
_MAX_SUGGESTED = 3


@cache
def setting_keys() -> tuple[str, ...]:
    """Return the keys of all settings, those of every type of a section included.

    Keys of `[envs.LABEL]` are left out: they have the same names as in `[env]`.
    """
    return tuple(dict.fromkeys(_keys(RunConfig)))


def elsewhere(key: str, here: Sequence[str]) -> str:
    """Return " (did you mean 'training.lr'?)" for a key that is not among those `here`.

    A key of this very name in another section comes first, then the most similar one, of which
    those here are preferred. A key that another type of its section has is told with that type.
    """
    name, known = _name(key), setting_keys()
    if key in known:
        section = key.rpartition(".")[0]
        types = " or ".join(f"{section}.type={kind}" for kind in _types_with(section, name))
        return f" (only with {types})" if types else ""
    found = [other for other in known if _name(other) == name]
    if not found:
        near = difflib.get_close_matches(name, list(here), n=1)
        far = difflib.get_close_matches(name, sorted(set(map(_name, known))), n=1, cutoff=_SURE)
        is_near = bool(near) and _likeness(name, near[0]) >= _SURE
        found = [other for other in known if far and _name(other) == far[0]]
        if is_near or not found:
            found = near
    if not found:
        return ""
    return f" (did you mean {' or '.join(repr(other) for other in found[:_MAX_SUGGESTED])}?)"


def _types_with(section: str, name: str) -> list[str]:
    """Return the types of a section of the first level that have a setting."""
    field = RunConfig.model_fields.get(section)
    kinds = get_args(field.annotation) if field is not None else ()
    return [
        str(kind.model_fields["type"].default)
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, BaseModel)
        if {"type", name} <= kind.model_fields.keys()
    ]


def _name(key: str) -> str:
    return key.rpartition(".")[2]


def _likeness(name: str, other: str) -> float:
    return difflib.SequenceMatcher(None, name, other).ratio()


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if name == "envs":
            continue
        sections = [
            kind
            for kind in (field.annotation, *get_args(field.annotation))
            if isinstance(kind, type) and issubclass(kind, BaseModel)
        ]
        for section in sections:
            yield from _keys(section, f"{prefix}{name}.")
        if not sections:
            yield f"{prefix}{name}"
