"""The reference of settings, written from the settings classes: key, type, default, meaning."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from agentgym_rl.config import RunConfig
from agentgym_rl.config.envs import EnvTableConfig
from tools.site.prose import prose

_INTRODUCTION = """\
# Settings

Every setting of a run, with its type, its default and what it does. This page is generated from the
settings classes (`src/agentgym_rl/config/`), so it is complete.

- Write a setting in a recipe (`lr = 1e-5` under `[training]`) or on the command line
  (`training.lr=1e-5`); [Recipes](../recipes.md) says how the two combine.
- `agentgym train RECIPE --dry-run` prints every setting of a run and starts nothing.
- A section whose `type` is a choice has one list of settings per type.
- An unknown key, a wrong type or an impossible combination is refused, with the remedy.
"""
_NAMES: Mapping[object, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
}


def settings_page() -> str:
    """Return the page in Markdown."""
    return "\n".join([_INTRODUCTION, *_sections()])


def _sections() -> Iterator[str]:
    top = [name for name, field in RunConfig.model_fields.items() if not _models(field.annotation)]
    yield "## Top level\n"
    yield from (_setting(name, RunConfig.model_fields[name]) for name in top if name != "envs")
    for name, field in RunConfig.model_fields.items():
        members = _models(field.annotation)
        if not members:
            continue
        yield f"## [{name}] {{#{name}}}\n"
        if len(members) > 1:
            yield _choices(name, members, field)
        for member in members:
            if len(members) > 1:
                yield f"### {name}.type = {_type_of(member)} {{#{name}-{_type_of(member)}}}\n"
            yield from _section(name, member)
    yield "## [envs.LABEL] {#envs}\n"
    yield "One of [several environments](../several-environments.md), in place of `[env]`.\n"
    yield from _section("envs.LABEL", EnvTableConfig, anchors=False)


def _choices(name: str, members: list[type[BaseModel]], field: FieldInfo) -> str:
    default = field.default.type if field.default is not PydanticUndefined else ""
    types_ = ", ".join(f"[`{_type_of(m)}`](#{name}-{_type_of(m)})" for m in members)
    own = "" if name == "engine" else ', or `"module:Class"` for one of your own'
    return f"`{name}.type` is one of {types_}{own}. Default: `{default}`.\n"


def _section(prefix: str, model: type[BaseModel], *, anchors: bool = True) -> Iterator[str]:
    yield f"{prose(model.__doc__ or '')}\n"
    for name, field in model.model_fields.items():
        key = f"{prefix}.{name}"
        inner = _models(field.annotation)
        if len(inner) == 1 and not anchors:
            yield f"`{key}`\n:   What differs from `[{name}]` here.\n"
        elif len(inner) == 1:
            yield f"### {key} {{#{key}}}\n"
            yield from _section(key, inner[0])
        elif inner:
            yield f"`{key}`\n:   {_text(field)}\n"
        elif name != "type" or not _is_one_literal(field):
            yield _setting(key, field, anchor=anchors and _is_first(prefix, model, name))


def _is_first(prefix: str, model: type[BaseModel], name: str) -> bool:
    """Whether this is the first of a union's members with the key, which gets the anchor."""
    members = _models(RunConfig.model_fields[prefix].annotation) if "." not in prefix else [model]
    return next(member for member in members if name in member.model_fields) is model


def _setting(key: str, field: FieldInfo, *, anchor: bool = True) -> str:
    default = field.get_default(call_default_factory=True, validated_data={})
    shown = "required" if field.is_required() else f"default `{_value(default)}`"
    name = f"[`{key}`](#{key}){{#{key}}}" if anchor else f"`{key}`"
    return f"{name} · {_type(field)} · {shown}\n:   {_text(field)}\n"


def _text(field: FieldInfo) -> str:
    return prose(field.description or "")


def _value(value: object) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[]" if not value else str(list(value))
    if isinstance(value, Mapping):
        return "{}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _type(field: FieldInfo) -> str:
    return _name(field.annotation) + _limits(field.metadata)


def _name(annotation: object) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _name(args[0]) + _limits(args[1:])
    if origin is Literal:
        return (
            ", ".join(f"`{arg}`" for arg in args[:-1])
            + (" or " if args[1:] else "")
            + (f"`{args[-1]}`")
        )
    if origin is tuple:
        return f"list of {_name(args[0])}s"
    if origin is dict:
        return f"table of {_name(args[1])}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_name(arg) for arg in args if arg is not type(None))
    return _NAMES[annotation]


def _limits(metadata: Sequence[object]) -> str:
    """Return ", above 0" and the like, for the limits that a field has."""
    words = list[str]()
    for item in metadata:
        match item:
            case annotated_types.Ge(ge=limit):
                words.append(f"at least {limit}")
            case annotated_types.Gt(gt=limit):
                words.append(f"above {limit}")
            case annotated_types.Le(le=limit):
                words.append(f"at most {limit}")
            case annotated_types.Lt(lt=limit):
                words.append(f"below {limit if limit != 2**63 else '2^63'}")
            case annotated_types.MultipleOf(multiple_of=unit):
                words.append(f"a multiple of {unit}")
            case annotated_types.MinLen(min_length=length):
                words.append("not empty" if length == 1 else f"{length} or more")
            case _:
                continue
    return f" ({', '.join(words)})" if words else ""


def _models(annotation: object) -> list[type[BaseModel]]:
    """Return the settings classes that a field may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) is dict:
        return []
    return [model for arg in get_args(annotation) for model in _models(arg)]


def _type_of(model: type[BaseModel]) -> str:
    return str(model.model_fields["type"].default)


def _is_one_literal(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
