"""Sections whose `type` is "module:Class": validated by the settings class of that class.

    class Clipped(GRPO):                       # algorithm.type = "my_module:Clipped"
        config_class = ClippedConfig           # a subclass of GRPOConfig, or left out

A class inherits the settings of the built-in that it subclasses. A class that a run folder names is
never imported: read as data, such a section keeps its values unchecked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, create_model

from agentgym_rl.config.algorithms import OnlineConfig
from agentgym_rl.config.rounds import RoundsBaseConfig
from agentgym_rl.config.sections import EngineBaseConfig
from agentgym_rl.lookup import OBJECT_MARKER, load_object

OWN_BASES: Mapping[str, type[BaseModel]] = MappingProxyType(
    {"algorithm": OnlineConfig, "rounds": RoundsBaseConfig, "engine": EngineBaseConfig}
)
"""Section -> the base class of its settings."""


@dataclass(frozen=True, slots=True)
class OwnClasses:
    """How the settings of own classes are found."""

    handed: Mapping[str, type] = field(default_factory=dict)
    """Classes that a program handed over, by their names in the recipe."""
    unread: frozenset[str] = frozenset()
    """Sections whose class only a run folder named: it is not imported."""

    def settings(self, section: str, name: str) -> type[BaseModel]:
        """Return the settings of the class that `<section>.type` names. Raises ValueError."""
        if name in self.handed:
            return _settings_of(section, name, self.handed[name])
        if section in self.unread or name.startswith(OBJECT_MARKER):
            return _unread_settings(section, name)
        return _settings_of(section, name, load_object(name, given=f"{section}.type={name!r}"))


@cache  # the same class is the same model: configurations are compared by it
def _settings_of(section: str, name: str, found: object) -> type[BaseModel]:
    base = OWN_BASES[section]
    settings = getattr(found, "config_class", None)  # the class is the user's
    if not (isinstance(settings, type) and issubclass(settings, base)):
        raise ValueError(
            f"{section}.type={name!r} has no settings: give the class a `config_class`, a subclass "
            f"of {base.__name__}, or make it a subclass of a built-in one"
        )
    return create_model(settings.__name__, __base__=settings, type=(str, name))


class _UnreadAlgorithm(OnlineConfig):
    """Settings of an algorithm whose class was not imported."""

    model_config = ConfigDict(extra="allow")


class _UnreadRounds(RoundsBaseConfig):
    """Settings of a schedule whose class was not imported."""

    model_config = ConfigDict(extra="allow")


def _unread_settings(section: str, name: str) -> type[BaseModel]:
    """Return a model that takes any settings of a class that must not be imported.

    Raises ValueError for an engine: without its class nothing can be sampled.
    """
    if section == "engine":
        raise ValueError(
            f"engine.type={name!r} of the run is not imported, because a run folder is data: add "
            f"engine.type={name} to use it, or engine.type=native"
        )
    return _UnreadAlgorithm if section == "algorithm" else _UnreadRounds
