"""Several environments in one run: the tables `[envs.LABEL]`, in the place of `[env]`.

[envs.babyai]               # the label is the environment's name unless `name` says another
weight = 2

[envs.hard]
name = "textcraft"
levels = ["4"]
rollout = { max_tokens = 8192 }     # what differs for it from [rollout]; so with agent
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pydantic import Field, SerializerFunctionWrapHandler, field_serializer, model_serializer

from agentgym_rl.config.agent import EnvAgentConfig
from agentgym_rl.config.base import BaseConfig
from agentgym_rl.config.rounds import RoundsConfig
from agentgym_rl.config.sections import EnvConfig, EpisodeLimitsConfig
from agentgym_rl.errors import ConfigError

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TAKEN = ("env", "reward")
"""`rollout/env/` and `rollout/reward/` are names of other metrics."""


class EnvTableConfig(EnvConfig):
    """One of several environments: what `[env]` has, its weight, and what differs for it."""

    name: str = ""
    """A built-in environment, an entry point of another package, or "module:Class"; empty for the
    table's label."""

    weight: float = Field(default=1.0, ge=0)
    """Its share of the tasks of a step (and of demonstrations), relative to the other weights; 0
    only evaluates on it."""

    rounds: RoundsConfig | None = None
    """Its schedule of the limit on rounds, in place of `[rounds]`."""

    agent: EnvAgentConfig = EnvAgentConfig()
    rollout: EpisodeLimitsConfig = EpisodeLimitsConfig()

    @property
    def env(self) -> EnvConfig:
        """What `[env]` of a run on this environment alone would be."""
        return EnvConfig.model_validate(self.model_dump(include=set(EnvConfig.model_fields)))

    @field_serializer("agent", "rollout")
    def _only_differences(self, section: BaseConfig) -> dict[str, object]:
        return section.model_dump(mode="json", exclude_unset=True)

    @model_serializer(mode="wrap")
    def _without_none(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """TOML has no null."""
        return {key: value for key, value in handler(self).items() if value is not None}


def labelled(tables: object) -> object:
    """Return the tables `[envs]` of a recipe, each with a name. Raises ValueError for a label that
    cannot be a part of a metric's name."""
    if not isinstance(tables, Mapping):
        return tables
    for label in tables:
        if not isinstance(label, str) or not _LABEL.fullmatch(label):
            raise ValueError(
                f"{label!r} cannot be the label of an environment: write letters, digits, _ and -, "
                f"such as [envs.{_suggested(label)}], and the environment's name inside: "
                f'name = "{label}"'
            )
        if label in _TAKEN:
            raise ValueError(
                f"{label!r} cannot be the label of an environment: rollout/{label}/ are other "
                f"metrics; choose another label, and the environment's name inside"
            )
    return {label: _named(label, table) for label, table in tables.items()}


@contextmanager
def naming_env(label: str, *, is_several: bool) -> Iterator[None]:
    """Have errors about one of several environments name it, and its settings as they are set."""
    try:
        yield
    except (ConfigError, ValueError) as error:
        if not is_several:
            raise
        text = re.sub(r"\benv\.(?=[a-z_])", f"envs.{label}.", str(error))
        raise ConfigError(f"envs.{label}: {text}") from error


def _named(label: str, table: object) -> object:
    """Return a table with its label as the name, unless it has one."""
    if isinstance(table, EnvTableConfig):
        return table if table.name else table.model_copy(update={"name": label})
    if isinstance(table, Mapping):
        return {**table, "name": table.get("name") or label}
    return table


def _suggested(label: object) -> str:
    words = re.findall(r"[a-z0-9]+", str(label).rpartition("/")[2].lower())
    return "_".join(words) or "mine"
