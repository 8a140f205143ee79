"""Recipes and overrides become one `RunConfig`; a mistake gets an error that names the remedy.

Overrides are dotted `key=value`; the value is read as TOML and, where it is not TOML, taken as a
string. `recipes.py` finds recipes and lets one extend another; `renamed.py` and `removed.py` know
what older names of settings mean.
"""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from types import MappingProxyType
from typing import get_args

import tomli_w
from pydantic import BaseModel, ValidationError

from agentgym_rl.config.algorithms import AlgorithmBaseConfig
from agentgym_rl.config.envs import EnvTableConfig
from agentgym_rl.config.keys import elsewhere
from agentgym_rl.config.overrides import Overrides, override_texts
from agentgym_rl.config.own_sections import OWN_BASES, OwnClasses
from agentgym_rl.config.recipes import TomlTable, find_recipe, read_table, without_ignored
from agentgym_rl.config.removed import without_removed
from agentgym_rl.config.renamed import present_setting, refuse_both_names, use_present_names
from agentgym_rl.config.run import RunConfig
from agentgym_rl.errors import ConfigError, did_you_mean
from agentgym_rl.lookup import is_own

logger = logging.getLogger(__name__)

_QUOTED = re.compile(r"'([^']+)'")
_MEMBERS: Mapping[str, Mapping[str, type[BaseModel]]] = MappingProxyType(
    {
        section: {
            member.model_fields["type"].default: member
            for member in get_args(RunConfig.model_fields[section].annotation)
        }
        for section in OWN_BASES
    }
)
"""Sections whose legal keys depend on their `type` -> type -> settings."""

_ALLOWED: Mapping[str, str] = MappingProxyType(
    {
        "bool": "true or false",
        "dict": "a table like {{name = 1}}",
        "finite": "a finite number",
        "float": "a number",
        "greater_than": "above {gt:.12g}",
        "greater_than_equal": "at least {ge:.12g}",
        "int": "a whole number",
        "less_than": "below {lt:.12g}",
        "less_than_equal": "at most {le:.12g}",
        "literal": "{expected}",
        "model": "a section, whose keys are set one by one",
        "multiple": "a multiple of {multiple_of:.12g}",
        "string": "text",
        "tuple": "a list like [1, 2] or ['a', 'b']",
        "union_tag_invalid": '{expected_tags} or "module:Class"',
    }
)
"""pydantic's kind of error, or the first word of its name -> what is allowed."""


def load_config(recipe: str | Path, overrides: Overrides = ()) -> RunConfig:
    """Return the configuration of `recipe` (a name or a TOML file) with `overrides` applied.

    Overrides are a table, {"training.lr": 1e-5}, or texts, ["training.lr=1e-5"]. Raises
    ConfigError, which names the setting and the remedy.
    """
    name = str(recipe)
    return parse_config(read_table(find_recipe(name)), overrides, source=name)


def parse_config(
    table: Mapping[str, object],
    overrides: Overrides = (),
    *,
    source: str,
    classes: Mapping[str, type] | None = None,
    is_data: bool = False,
    imports: bool = True,
) -> RunConfig:
    """Return the configuration that a TOML table and overrides describe; `source` is for errors.

    `classes` are the classes that a program handed over, by name; they are not imported again. With
    `is_data` the table is from a run folder: no class that it names is imported, and the settings
    of such a class stay unchecked. Overrides come from the user, so their classes are imported;
    without `imports` they are from the run folder too.
    """
    new, texts = deepcopy(dict(table)), override_texts(overrides)
    use_present_names(new)
    given = {text.partition("=")[0].strip() for text in texts}
    refuse_both_names(given)
    named = given if imports else set[str]()
    unread = {section for section in OWN_BASES if is_data and f"{section}.type" not in named}
    own = OwnClasses(classes or {}, frozenset(unread))
    if is_data:
        new = without_removed(new, source=source, is_data=True)
        _refuse_own_agent(new, given)
    _refuse_unknown_labels(new, given)
    # Types first: a change of type drops what the recipe set for the old one, never an override.
    for text in sorted(texts, key=lambda text: ".type" not in text.partition("=")[0]):
        new = _apply_override(new, text, own)
    new = without_removed(new, source=source)
    models = dict[str, type[BaseModel]]()
    try:
        for table, section, inner in _typed_sections(new):
            name = inner.setdefault("type", next(iter(_MEMBERS[section])))
            if is_own(name):
                models[section] = own.settings(section, str(name))
                table[section] = models[section].model_validate(inner)
        return RunConfig.model_validate(new)
    except ValidationError as error:
        sentences = _explain(error, models)
        raise ConfigError(f"{source}: " + "\n".join(sentences)) from None
    except ValueError as error:  # raised by a class of the user
        raise ConfigError(f"{source}: {error}") from error


def _typed_sections(new: TomlTable) -> Iterator[tuple[TomlTable, str, TomlTable]]:
    """Yield sections with a `type`, at the top and schedules of environments: the table that one is
    in, its name, and itself."""
    envs = new.get("envs")
    places = [(new, section) for section in _MEMBERS]
    places += [(env, "rounds") for env in (envs.values() if isinstance(envs, dict) else ())]
    for table, section in places:
        inner = table.get(section) if isinstance(table, dict) else None
        if isinstance(inner, dict):
            yield table, section, inner


def dump_config(config: RunConfig) -> str:
    """Return the whole configuration as TOML, every default written out."""
    return tomli_w.dumps(config.model_dump(mode="json"))


def _apply_override(table: TomlTable, override: str, own: OwnClasses) -> TomlTable:
    """Set a key of the table; return it without what the new type ignores."""
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
    section = parts[-2] if len(parts) > 1 else ""
    is_type = parts[-1] == "type" and (len(parts) == 2 or parts[0] == "envs")
    model = _model_of(section, value, own) if is_type else None
    if model is None or target.get("type") == value:
        target[parts[-1]] = value
        return table
    for key in [key for key in target if key not in model.model_fields]:
        message = "%s.%s of the recipe is not a setting of type %s: left out"
        logger.warning(message, ".".join(parts[:-1]), key, value)
        del target[key]
    target["type"] = value
    if not issubclass(model, AlgorithmBaseConfig):
        return table
    table, dropped = without_ignored(table, model.ignores)
    for name in dropped:
        logger.warning("%s of the recipe is ignored by algorithm.type=%s: left out", name, value)
    return table


def _model_of(section: str, name: object, own: OwnClasses) -> type[BaseModel] | None:
    """Return the settings of a type of a section; None where it has none of that name."""
    if section in OWN_BASES and is_own(name):
        try:
            return own.settings(section, str(name))
        except ValueError as error:
            raise ConfigError(str(error)) from error
    return _MEMBERS.get(section, {}).get(str(name))


def _refuse_own_agent(table: TomlTable, given: Collection[str]) -> None:
    """Refuse a run's own agent or format that the command does not name: results depend on it."""
    for key, value in named_agents(table).items():
        if is_own(value) and key not in given:
            raise ConfigError(
                f"{key}={value!r} of the run is not imported, because a run folder is data: "
                f"add {key}={value} if you trust it"
            )


def named_agents(table: Mapping[str, object]) -> dict[str, object]:
    """Return the agents and formats that a recipe names, by dotted key."""
    envs = table.get("envs")
    tables = {"": table, **{f"envs.{k}.": v for k, v in (_table(envs)).items()}}
    return {
        f"{prefix}agent.{key}": agent[key]
        for prefix, inner in tables.items()
        for agent in [_table(_table(inner).get("agent"))]
        for key in ("type", "format")
        if key in agent
    }


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _refuse_unknown_labels(table: TomlTable, given: Collection[str]) -> None:
    """Refuse an override of an environment that the recipe does not have: a label is misspelt."""
    known = _table(table.get("envs"))
    for key in sorted(given):
        section, _, rest = key.partition(".")
        label = rest.partition(".")[0]
        if section != "envs" or label in known or f"envs.{label}.name" in given or not label:
            continue
        there = f"it has {', '.join(known)}" if known else "it has none"
        raise ConfigError(
            f"{key}: the recipe has no environment with the label {label!r}"
            f"{did_you_mean(label, known)}; {there}. To add one, begin with its name, "
            f"envs.{label}.name=..."
        )


def parse_value(text: str) -> object:
    """Return the TOML value that `text` writes; what is not TOML is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(error: ValidationError, models: Mapping[str, type[BaseModel]]) -> list[str]:
    """Return one sentence per mistake: the key as the user writes it, what is wrong, the remedy.

    `models` are the settings of own classes, by section; only the last was being validated.
    """
    sentences = []
    own = next((key for key, model in models.items() if model.__name__ == error.title), None)
    for item in error.errors():
        location = [str(part) for part in item["loc"]]
        if own is not None:
            location = [own, "", *location]  # as errors of a union's member have it
        parts = _without_types(location)
        kind, value = item["type"], item["input"]
        if kind == "union_tag_invalid":
            parts, value = [*parts, "type"], value["type"]
        key = ".".join(parts) or "the recipe"
        message = item["msg"].removeprefix("Value error, ")
        if kind == "extra_forbidden":
            fields = _fields_at(location[:-1], models)
            message = f"unknown key{elsewhere(key, fields)}"
            message += f"; legal here: {', '.join(fields)}" if fields else ""
        elif kind == "missing":
            message = f"is required; set {key}=..."
        elif allowed := what_is_allowed(kind, item.get("ctx", {})):
            message = f"must be {allowed}, got {value!r}"
            message += did_you_mean(str(value), _QUOTED.findall(allowed))
        elif kind != "value_error":
            message = f"{message}, got {value!r}"
        sentences.append(message if key == "the recipe" else f"{key}: {message}")
    return sentences


def what_is_allowed(kind: str, limits: Mapping[str, object]) -> str:
    """Return what a value may be, "at least 1", for pydantic's kind of error and its context; empty
    for a kind that has words of its own."""
    allowed = _ALLOWED.get(kind) or _ALLOWED.get(kind.partition("_")[0], "")
    return allowed.format(**limits)


def flatten(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return the values of nested tables under their dotted keys."""
    flat: dict[str, object] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _without_types(location: Sequence[str]) -> list[str]:
    """Return an error location as the user writes it: pydantic puts the type after its section."""
    depth = 2 if location and location[0] == "envs" else 0
    is_typed = len(location) > depth + 1 and location[depth] in OWN_BASES
    return [*location[: depth + 1], *location[depth + 2 :]] if is_typed else list(location)


def _fields_at(location: Sequence[str], models: Mapping[str, type[BaseModel]]) -> list[str]:
    """Return the legal keys of the section at a pydantic error location."""
    model: type[BaseModel] = RunConfig
    parts = list(location)
    if parts[:1] == ["envs"]:
        model, parts = EnvTableConfig, parts[2:]
    if parts and parts[0] in OWN_BASES:
        section, name = parts[0], parts[1] if len(parts) > 1 else ""
        model, parts = _MEMBERS[section].get(name) or models[section], parts[2:]
    for part in parts:
        inner = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)
