"""Settings that had other names: recipes and runs that say them are still read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agentgym_rl.errors import ConfigError


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
    """Return the present name of a setting and its value under it."""
    name, convert = _RENAMED.get(key, (key, _same))
    return name, convert(value)


def with_present_keys(settings: Mapping[str, object]) -> dict[str, object]:
    """Return settings by dotted key under their present names."""
    return dict(present_setting(key, value) for key, value in settings.items())


def use_present_names(table: dict[str, object]) -> None:
    """Rename old settings in the nested table of a recipe, in place."""
    for old, (new, convert) in _RENAMED.items():
        *sections, old_name = old.split(".")
        new_name = new.rpartition(".")[2]
        inner: object = table
        for section in sections:
            inner = inner.get(section) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or old_name not in inner:
            continue
        if new_name in inner:
            raise ConfigError(f"{old} is now {new}, and both are set: leave {old} out")
        inner[new_name] = convert(inner.pop(old_name))
