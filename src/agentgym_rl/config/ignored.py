"""Settings that an algorithm ignores, as its settings class declares them (`ignores`).

A recipe that changes the algorithm of the recipe it extends does not inherit them, a run that sets
one is refused, and a warm start resets them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel

Config = TypeVar("Config", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Ignored:
    """Some settings without effect, and why they have none."""

    settings: tuple[str, ...]
    """Whole sections ("kl"), or keys of one ("rollout.rest_solved")."""
    why: str
    """Completes a sentence that begins with a setting: "kl.coef=0.1 acts on advantages, ..."."""

    def places(self) -> Iterator[tuple[str, str]]:
        """Yield the section and the key of each; no key for a whole section."""
        for setting in self.settings:
            section, _, key = setting.partition(".")
            yield section, key


def check_ignored(config: BaseModel, ignores: Sequence[Ignored], *, algorithm: str) -> None:
    """Refuse a configuration that sets what would do nothing."""
    for ignored in ignores:
        for section, key, default in _defaults(config, ignored):
            value = getattr(getattr(config, section), key)
            if value != default:
                name = f"{section}.{key}"
                raise ValueError(
                    f"{name}={_written(value)} {ignored.why}; with algorithm.type={algorithm} "
                    f"leave it out or set {name}={_written(default)}"
                )


def reset_ignored(config: Config, ignores: Sequence[Ignored]) -> Config:
    """Return the configuration with the defaults of what is ignored."""
    for ignored in ignores:
        for section, key, default in _defaults(config, ignored):
            inner = getattr(config, section).model_copy(update={key: default})
            config = config.model_copy(update={section: inner})
    return config


def _defaults(config: BaseModel, ignored: Ignored) -> Iterator[tuple[str, str, object]]:
    """Yield the section, the key and the default of each ignored setting."""
    for section, only in ignored.places():
        fields = type(getattr(config, section)).model_fields
        for key in [only] if only else fields:
            yield section, key, fields[key].get_default(call_default_factory=True)


def _written(value: object) -> str:
    """Return a value as an override would give it."""
    return value if isinstance(value, str) else json.dumps(value)
