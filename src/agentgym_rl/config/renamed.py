"""Settings that had other names: recipes and runs that say them are still read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import cache

from agentgym_rl.errors import ConfigError

logger = logging.getLogger(__name__)


def _less_one(value: object) -> object:
    return value - 1 if isinstance(value, int) and not isinstance(value, bool) else value


def _same(value: object) -> object:
    return value


_RENAMED: Mapping[str, tuple[str, Callable[[object], object]]] = {
    "agent.reflection.attempts": ("agent.reflection.tries", _same),
    "rollout.max_attempts": ("rollout.max_restarts", _less_one),  # the first start is no restart
}
"""The old dotted key, the present one, and the value that an old one has now."""


def present_setting(key: str, value: object) -> tuple[str, object]:
    """Return the present name of a setting and its value under it; warns of an old name."""
    name, now = _renamed(key, value)
    if name != key:
        _report(key, name, str(now))
    return name, now


def with_present_keys(settings: Mapping[str, object]) -> dict[str, object]:
    """Return settings by dotted key, as a program recorded them, under their present names."""
    return dict(_renamed(key, value) for key, value in settings.items())


def refuse_both_names(keys: Collection[str]) -> None:
    """Raise ConfigError where a setting is given under its old and its present name."""
    for old, (new, _) in _RENAMED.items():
        if old in keys and new in keys:
            raise ConfigError(f"{old} is now called {new}, and both are set: leave {old} out")


def use_present_names(table: dict[str, object]) -> None:
    """Rename old settings in the nested table of a recipe, in place."""
    for old, (new, _) in _RENAMED.items():
        *sections, old_name = old.split(".")
        new_name = new.rpartition(".")[2]
        inner: object = table
        for section in sections:
            inner = inner.get(section) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or old_name not in inner:
            continue
        if new_name in inner:
            refuse_both_names((old, new))
        _, inner[new_name] = present_setting(old, inner.pop(old_name))


def _renamed(key: str, value: object) -> tuple[str, object]:
    name, convert = _RENAMED.get(key, (key, _same))
    return name, convert(value)


@cache  # once per process, however often a recipe is read
def _report(old: str, new: str, value: str) -> None:
    logger.warning("%s is now called %s: write %s=%s", old, new, new, value)
