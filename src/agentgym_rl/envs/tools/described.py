"""Tools in words, for prompts whose chat template does not show tools itself.

Made from the schemas alone, so that the tools of a server, or of another program, read the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agentgym_rl.envs.base import EnvSpec, JsonValue, ToolSchema
from agentgym_rl.envs.tools.text import to_json

_HOW = (
    "You act by calling one tool at a time, written as `name(argument=value)`; values are JSON. "
    "The tools:"
)
_MAX_DEPTH = 3
"""Of types in words; what is deeper is "object"."""


def briefing(spec: EnvSpec) -> str:
    """Return what a player is told before the first observation, the tools included."""
    return "\n\n".join(filter(None, (spec.instructions.strip(), describe_tools(spec.tools))))


def describe_tools(tools: Sequence[ToolSchema]) -> str:
    """Return the tools in words, with how to call them; nothing without tools."""
    if not tools:
        return ""
    return "\n".join((_HOW, *(line for tool in tools for line in _lines(tool))))


def parameters_of(tools: Sequence[ToolSchema]) -> dict[str, tuple[str, ...]]:
    """Return the names of each tool's arguments, in their order."""
    return {tool_name(tool): tuple(_properties(tool)) for tool in tools}


def tool_name(tool: ToolSchema) -> str:
    """Return the name in a schema."""
    return str(_mapping(tool.get("function")).get("name"))


def signature_of(tool: ToolSchema) -> str:
    """Return how a tool is called, e.g. "refund(order: integer, reason: text = \\"\\")"."""
    needed = needed_by(tool)
    shown = [
        f"{name}: {type_in_words(schema)}" + _default(schema, is_needed=name in needed)
        for name, schema in _properties(tool).items()
    ]
    return f"{tool_name(tool)}({', '.join(shown)})"


def type_in_words(schema: JsonValue, depth: int = _MAX_DEPTH) -> str:
    """Return a type, such as `integer`, `"late" or "broken"`, `list of text`."""
    known = _mapping(schema)
    choices = known.get("enum")
    if isinstance(choices, Sequence):
        return " or ".join(map(to_json, choices))
    if "const" in known:
        return to_json(known["const"])
    union = known.get("anyOf") or known.get("oneOf")
    if isinstance(union, Sequence) and union and depth:
        return " or ".join(dict.fromkeys(type_in_words(one, depth - 1) for one in union))
    kind = known.get("type")
    if isinstance(kind, Sequence) and not isinstance(kind, str):
        return " or ".join(map(str, kind))
    if kind == "array" and depth and "items" in known:
        return f"list of {type_in_words(known['items'], depth - 1)}"
    if kind == "object" and depth and known.get("properties"):
        fields = _mapping(known["properties"])
        shown = (f"{to_json(name)}: {type_in_words(fields[name], depth - 1)}" for name in fields)
        return f"{{{', '.join(shown)}}}"
    return {"string": "text", "array": "list"}.get(str(kind), str(kind or "any value"))


def _lines(tool: ToolSchema) -> Iterator[str]:
    what = " ".join(str(_mapping(tool.get("function")).get("description") or "").split())
    yield f"- {signature_of(tool)}" + (f": {what}" if what else "")
    for name, schema in _properties(tool).items():
        said = " ".join(str(_mapping(schema).get("description") or "").split())
        if said:
            yield f"    {name}: {said}"


def _default(schema: JsonValue, *, is_needed: bool) -> str:
    if is_needed:
        return ""
    known = _mapping(schema)
    return f" = {to_json(known['default'])}" if "default" in known else " (optional)"


def _parameters(tool: ToolSchema) -> Mapping[str, JsonValue]:
    return _mapping(_mapping(tool.get("function")).get("parameters"))


def _properties(tool: ToolSchema) -> Mapping[str, JsonValue]:
    """Return the schema of each argument, with the definitions that it refers to in its place."""
    parameters = _parameters(tool)
    definitions = _mapping(parameters.get("$defs"))
    properties = _mapping(parameters.get("properties"))
    return {name: _resolved(schema, definitions, 4) for name, schema in properties.items()}


def _resolved(schema: JsonValue, definitions: Mapping[str, JsonValue], depth: int) -> JsonValue:
    if isinstance(schema, Mapping) and depth:
        target = str(schema.get("$ref", "")).rpartition("/")[2]
        if target in definitions:
            schema = {**_mapping(definitions[target]), **schema, "$ref": None}
        return {key: _resolved(value, definitions, depth - 1) for key, value in schema.items()}
    if isinstance(schema, Sequence) and not isinstance(schema, str) and depth:
        return [_resolved(item, definitions, depth - 1) for item in schema]
    return schema


def needed_by(tool: ToolSchema) -> Sequence[str]:
    """Return the names of the arguments that a call must have."""
    needed = _parameters(tool).get("required")
    is_list = isinstance(needed, Sequence) and not isinstance(needed, str)
    return tuple(map(str, needed)) if is_list else ()


def _mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, Mapping) else {}
