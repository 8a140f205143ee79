"""What a run was set to, beside its recipe, and the command that would train it again.

A run folder is data: no class that it names is imported, and only recipes of the package are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentgym_rl.config import RunConfig, load_config, parse_config
from agentgym_rl.config.load import flatten
from agentgym_rl.config.overrides import override_texts
from agentgym_rl.config.own_sections import OWN_BASES
from agentgym_rl.config.recipes import packaged_recipes, read_table
from agentgym_rl.errors import ConfigError
from agentgym_rl.lookup import is_own
from agentgym_rl.report.words import command, line

_MAX_DIFFERENCES = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that is not as in the recipe; empty where one side does not have it."""

    key: str
    value: str
    otherwise: str


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of a run beside those of its recipe."""

    base: str
    """What it is compared with, in words."""
    differences: tuple[Difference, ...]
    command: str
    """Trains it again from its recipe; empty where the recipe is not one of the package."""
    exact_command: str
    """Trains it again from its own config.toml."""


def run_settings(folder: Path, table: Mapping[str, object] | None, recipe: str) -> RunSettings:
    """Return what is different in a run's `config.toml`; `table` is None where it is broken."""
    own = flatten(table or {})
    known = recipe if recipe in packaged_recipes() else ""
    base = flatten(_base(known, own))
    keys = [key for key in own | base if own.get(key) != base.get(key)]
    exact = command("agentgym", "train", folder / "config.toml")
    return RunSettings(
        base=f"the recipe {known}" if known else "the defaults",
        differences=tuple(
            Difference(line(key), _text(own, key), _text(base, key))
            for key in keys[:_MAX_DIFFERENCES]
        ),
        command=_command(known, own, base, keys) if known else "",
        exact_command=exact,
    )


def _base(recipe: str, own: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of the recipe, or the defaults for the same built-in types."""
    try:
        if recipe:
            return load_config(recipe).model_dump(mode="json")
        names = {section: own.get(f"{section}.type") for section in OWN_BASES}
        table = {
            section: {"type": name}
            for section, name in names.items()
            if isinstance(name, str) and not is_own(name)
        }
        return parse_config(table, source="", is_data=True).model_dump(mode="json")
    except ConfigError:
        return RunConfig().model_dump(mode="json")


def _text(table: Mapping[str, object], key: str) -> str:
    """Return a value as a recipe writes it."""
    if key not in table:
        return ""
    try:
        return line(override_texts({key: table[key]})[0].removeprefix(f"{key}="))
    except ConfigError:
        return line(table[key])


def _command(
    recipe: str, own: Mapping[str, object], base: Mapping[str, object], keys: list[str]
) -> str:
    """Return the command, empty where overrides of the recipe would not give these settings."""
    try:
        overrides = override_texts({key: own[key] for key in keys if key in own})
        if any(key in base and key not in own for key in keys):
            table = read_table(packaged_recipes()[recipe])
            given = parse_config(table, overrides, source="", is_data=True, imports=False)
            if flatten(given.model_dump(mode="json")) != own:
                return ""
    except ConfigError:
        return ""
    return command("agentgym", "train", recipe, *overrides)
