"""Settings that an algorithm ignores, as its settings class declares them (`ignores`).

A recipe that changes the algorithm of another does not take them over, a run that sets one is
refused, and a warm start sets them back.
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
    """What follows "kl.coef=0.1 "."""

    def places(self) -> Iterator[tuple[str, str]]:
        """Yield the section and the key of each; no key for a whole section."""
        for setting in self.settings:
            section, _, key = setting.partition(".")
            yield section, key


def check_ignored(config: BaseModel, ignores: Sequence[Ignored], *, algorithm: str) -> None:
    """Refuse a configuration that sets what would do nothing."""
    for ignored in ignores:
        for setting in ignored.settings:
            for name, value, default in _changed(config, setting):
                raise ValueError(
                    f"{name}={_written(value)} {ignored.why}; with algorithm.type={algorithm} "
                    f"leave it out or set {name}={_written(default)}"
                )


def reset_ignored(config: Config, ignores: Sequence[Ignored]) -> Config:
    """Return the configuration with the defaults of what is ignored."""
    for ignored in ignores:
        for section, key in ignored.places():
            value = getattr(config, section)
            default = _default(value, key) if key else _default(config, section)
            new = value.model_copy(update={key: default}) if key else default
            config = config.model_copy(update={section: new})
    return config


def _changed(config: BaseModel, setting: str) -> Iterator[tuple[str, object, object]]:
    """Yield the keys at or under a setting that are not at their defaults, with these."""
    owner, name = config, setting
    section, _, key = setting.partition(".")
    if key:
        owner, name = getattr(config, section), key
    value = getattr(owner, name)
    if isinstance(value, BaseModel):
        for field in value.model_dump(exclude_defaults=True):
            yield f"{setting}.{field}", getattr(value, field), _default(value, field)
    elif value != _default(owner, name):
        yield setting, value, _default(owner, name)


def _default(owner: BaseModel, name: str) -> object:
    return type(owner).model_fields[name].get_default(call_default_factory=True)


def _written(value: object) -> str:
    """Return a value as an override would give it."""
    return value if isinstance(value, str) else json.dumps(value)
