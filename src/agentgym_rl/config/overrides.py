"""Overrides as a program gives them, turned into the `key=value` texts of the command line.

    {"training.steps": 20, "rounds": {"type": "fixed", "rounds": 8}}
    ["training.steps=20", "rounds.type=\\"fixed\\"", "rounds.rounds=8"]

Both forms are parsed alike by `load.py`. A nested table changes settings key by key, as a recipe
that extends another does; a dotted key replaces its whole value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from os import fspath
from typing import TypeAlias

from agentgym_rl.errors import ConfigError

Overrides: TypeAlias = Mapping[str, object] | Sequence[str]
"""A table of (dotted) keys and values, or texts "key=value"."""


def override_texts(overrides: Overrides) -> list[str]:
    """Return overrides as texts "key=value". Raises ConfigError for other values."""
    if isinstance(overrides, Mapping):
        return [f"{key}={_toml(key, value)}" for key, value in _settings(overrides)]
    is_list = isinstance(overrides, Sequence) and not isinstance(overrides, str)
    if not is_list or not all(isinstance(text, str) for text in overrides):
        raise ConfigError(
            f"overrides={overrides!r}: write a table such as "
            '{"training.lr": 1e-5}, or a list of texts such as ["training.lr=1e-5"]'
        )
    return list(overrides)


def _settings(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if not isinstance(key, str) or not key:
            raise ConfigError(f'the key of a setting is a text such as "training.lr", got {key!r}')
        if isinstance(value, Mapping) and value and "." not in key:
            yield from _settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _toml(key: str, value: object) -> str:
    """Return the value as TOML writes it on one line; its numbers, texts and lists are JSON's."""
    if isinstance(value, Mapping):
        items = (f"{json.dumps(name)} = {_toml(key, inner)}" for name, inner in value.items())
        return "{" + ", ".join(items) + "}"
    try:
        if value is not None:
            return json.dumps(value, ensure_ascii=False, default=fspath)
    except TypeError:
        pass
    raise ConfigError(
        f"{key}={value!r} is a {type(value).__name__}; a setting is a number, a text, true or "
        "false, or a list or table of these"
    )
