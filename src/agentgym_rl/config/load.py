"""Recipes and overrides become one `RunConfig`; a mistake gets an error that names the remedy.

Overrides are dotted `key=value`; the value is read as TOML and, where it is no TOML, taken as a
string. Where recipes are found and how one extends another is in `recipes.py`.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import tomli_w
from pydantic import BaseModel, ValidationError

from agentgym_rl.config.overrides import Overrides, override_texts
from agentgym_rl.config.recipes import TomlTable, find_recipe, read_table, without_idle
from agentgym_rl.config.renamed import present_setting, use_present_names
from agentgym_rl.config.run import AlgorithmConfig, EngineConfig, RoundsConfig, RunConfig
from agentgym_rl.errors import ConfigError, did_you_mean

logger = logging.getLogger(__name__)

# Sections whose legal keys depend on their `type`.
_UNIONS: Mapping[str, object] = {
    "algorithm": AlgorithmConfig,
    "engine": EngineConfig,
    "rounds": RoundsConfig,
}


def load_config(recipe: str | Path, overrides: Overrides = ()) -> RunConfig:
    """Return the configuration of `recipe` (a name or a TOML file) with `overrides` applied.

    Overrides are a table, {"training.lr": 1e-5}, or texts, ["training.lr=1e-5"]. Raises
    ConfigError, which names the setting and the remedy.
    """
    name = str(recipe)
    return parse_config(read_table(find_recipe(name)), overrides, source=name)


def parse_config(table: TomlTable, overrides: Overrides = (), *, source: str) -> RunConfig:
    """Return the configuration that a TOML table and overrides describe; `source` is for errors."""
    use_present_names(table)
    # Types first: a change of type drops what the recipe set for the old one, never an override.
    for override in sorted(override_texts(overrides), key=lambda text: not _sets_type(text)):
        table = _apply_override(table, override)
    for section in _UNIONS:
        inner = table.get(section)
        if isinstance(inner, dict):
            inner.setdefault("type", _union_members(section)[0].model_fields["type"].default)
    try:
        return RunConfig.model_validate(table)
    except ValidationError as error:
        raise ConfigError(f"{source}: " + "\n".join(_explain(error))) from None


def dump_config(config: RunConfig) -> str:
    """Return the whole configuration as TOML, every default written out."""
    return tomli_w.dumps(config.model_dump(mode="json"))


def _apply_override(table: TomlTable, override: str) -> TomlTable:
    """Set a key of the table; return it without what a change of type leaves idle."""
    key, equals, text = override.partition("=")
    key, value = present_setting(key.strip(), parse_value(text.strip()))
    parts = key.split(".")
    if not equals or not all(parts):
        raise ConfigError(
            f"override {override!r} is not of the form key=value, e.g. training.lr=1e-5"
        )
    target = table
    for part in parts[:-1]:
        inner = target.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"override {override!r}: {part!r} is a value, not a section")
        target = inner
    changes_type = parts[-1] == "type" and target.get("type") != value
    if changes_type:
        _keep_shared_keys(parts[0], target, value)
    target[parts[-1]] = value
    if not changes_type or parts[0] != "algorithm":
        return table
    table, dropped = without_idle(table, value)
    for name in dropped:
        logger.warning("%s of the recipe is nothing to algorithm.type=%s: left out", name, value)
    return table


def parse_value(text: str) -> object:
    """Return the TOML value that `text` writes; what is no TOML is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _sets_type(override: str) -> bool:
    return override.partition("=")[0].strip().endswith(".type")


def _keep_shared_keys(section: str, target: TomlTable, new_type: object) -> None:
    """Drop what the recipe set for another type and the new type does not know."""
    for member in _union_members(section):
        if member.model_fields["type"].default == new_type:
            for key in [key for key in target if key not in member.model_fields]:
                logger.warning(
                    "%s.%s of the recipe is no setting of type %s: left out", section, key, new_type
                )
                del target[key]


def _union_members(section: str) -> tuple[type[BaseModel], ...]:
    annotated = _UNIONS.get(section)
    return get_args(get_args(annotated)[0]) if annotated is not None else ()


def _explain(error: ValidationError) -> list[str]:
    """Return one sentence a mistake: the key as the user writes it, what is wrong, the remedy."""
    sentences = []
    for item in error.errors():
        location = [str(part) for part in item["loc"]]
        union = location and location[0] in _UNIONS
        parts = [location[0], *location[2:]] if union and len(location) > 1 else location
        key = ".".join(parts) or "the recipe"
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = f"unknown key{_suggest(location)}"
        elif item["type"] == "missing":
            message = f"{message}; set {key}=..."
        elif item["type"] == "tuple_type":
            message = f"Input should be a list like [1, 2] or ['a', 'b'], got {item['input']!r}"
        elif item["type"] != "value_error":
            message = f"{message}, got {item['input']!r}"
        sentences.append(message if key == "the recipe" else f"{key}: {message}")
    return sentences


def flatten(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return the values of nested tables under their dotted keys."""
    flat: dict[str, object] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _suggest(location: Sequence[str]) -> str:
    fields = _fields_at(location[:-1])
    return (
        f"{did_you_mean(location[-1], fields)}; legal here: {', '.join(fields)}" if fields else ""
    )


def _fields_at(location: Sequence[str]) -> list[str]:
    """Return the legal keys of the section at a pydantic error location."""
    model: type[BaseModel] = RunConfig
    for depth, part in enumerate(location):
        if depth == 1 and location[0] in _UNIONS:
            members = {
                member.model_fields["type"].default: member
                for member in _union_members(location[0])
            }
            model = members[part]
            continue
        if part in _UNIONS:
            continue
        inner = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)
