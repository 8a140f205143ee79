"""A Python function as a tool: its schema, the check of its arguments, its result as text.

The signature gives names, types and defaults, the docstring the descriptions, pydantic both the
schema and the check. Arguments are checked strictly: "3" is not a number, 3.0 is not a whole one.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import to_jsonable_python

from agentgym_rl.envs.base import JsonValue, ToolSchema
from agentgym_rl.envs.tools.described import signature_of
from agentgym_rl.envs.tools.docstrings import read_docstring
from agentgym_rl.envs.tools.text import MalformedCallError, is_tool_name, to_json

_MAX_COMPLAINTS = 3
_MAX_COMPLAINT_CHARS = 300
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())


class ToolError(Exception):
    """A tool refuses a call, and the agent is told why: its message is the observation.

    Any other exception is a failure of the environment, and the episode is not scored.
    """


@dataclass(frozen=True, slots=True)
class Final:
    """What a tool returns to end the episode; `value` is the last observation."""

    value: object = "Done."


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """One function that an agent can call."""

    name: str
    function: Callable[..., object]
    is_method: bool
    """Whether its first argument is the environment."""
    parameters: tuple[str, ...]
    """Names of the arguments, in the order of the signature."""
    arguments: type[BaseModel]
    """Checks the arguments. Its fields are `arg_0`, `arg_1` ...: a name may be any word."""
    schema: ToolSchema

    def checked(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Return the arguments as the function takes them, defaults included.

        Raises MalformedCallError, with what to do, for what the signature does not allow.
        """
        try:
            # As JSON: there a list can be a tuple, and a text a date or a member of an enum.
            found = self.arguments.model_validate_json(json.dumps(dict(arguments)))
        except ValidationError as error:
            raise MalformedCallError(self._complaint(error), has_signature=True) from None
        except (ValueError, RecursionError):  # of json.dumps; ValidationError is one too
            raise MalformedCallError(
                f"The arguments of `{self.name}` are too deep or too large."
            ) from None
        values = (getattr(found, f"arg_{place}") for place in range(len(self.parameters)))
        return dict(zip(self.parameters, values, strict=True))

    def call(self, environment: object, arguments: Mapping[str, object]) -> object:
        own = (environment,) if self.is_method else ()
        return self.function(*own, **arguments)

    def _complaint(self, error: ValidationError) -> str:
        problems = [
            _problem(str(one["type"]), ".".join(map(str, one["loc"])), one["msg"])
            for one in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        shown = "; ".join(problems[:_MAX_COMPLAINTS])[:_MAX_COMPLAINT_CHARS]
        return f"`{self.name}` was not called: {shown}. Call it as {signature_of(self.schema)}."


def function_tool(function: Callable[..., object], *, is_method: bool = False) -> FunctionTool:
    """Return the tool that a typed, documented function is.

    Raises TypeError, with the remedy, for one that lacks a type or a docstring.
    """
    name = getattr(function, "__name__", "")  # an object with __call__ has none
    what = f"the tool {getattr(function, '__qualname__', repr(function))}"
    if not is_tool_name(name) or not inspect.isfunction(function):
        raise TypeError(f"{what} must be a function with a name; wrap it in a `def`")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"{what} must be a plain function, neither async nor a generator")
    described = read_docstring(inspect.getdoc(function) or "")
    if not described.text:
        raise TypeError(f"{what} needs a docstring: it is what the agent is told about it")
    parameters = list(inspect.signature(function).parameters.values())[is_method:]
    hints = _hints(function, what)
    fields: dict[str, Any] = {}  # what `create_model` takes is of many types
    for place, parameter in enumerate(parameters):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{what}: {parameter} is not an argument that a model can name")
        if parameter.name not in hints:
            raise TypeError(f"{what}: give the argument {parameter.name!r} a type")
        given: dict[str, Any] = {"alias": parameter.name}  # as above
        if parameter.name in described.arguments:  # else an annotation may describe it
            given["description"] = described.arguments[parameter.name]
        is_needed = parameter.default is parameter.empty
        default = ... if is_needed else parameter.default
        fields[f"arg_{place}"] = (hints[parameter.name], Field(default, **given))
    try:
        model = create_model(name, __config__=_STRICT, **fields)
        schema = _plain(model.model_json_schema(by_alias=True))
    except Exception as error:  # whatever pydantic finds wrong with a type of the user's
        raise TypeError(f"{what} cannot be described: {error}") from error
    return FunctionTool(
        name=name,
        function=function,
        is_method=is_method,
        parameters=tuple(parameter.name for parameter in parameters),
        arguments=model,
        schema=tool_schema(name, described.text, schema),
    )


def tool_schema(name: str, description: str, parameters: Mapping[str, JsonValue]) -> ToolSchema:
    """Return the schema of a tool as chat templates and APIs take it."""
    shown: dict[str, JsonValue] = {"type": "object", "properties": {}, **parameters}
    shown.pop("additionalProperties", None)  # calls are checked; prompts are shorter without
    function: JsonValue = {"name": name, "description": description, "parameters": shown}
    return {"type": "function", "function": function}


def as_text(value: object) -> str:
    """Return what a tool returned as the text of an observation: texts as they are, else JSON."""
    if isinstance(value, str):
        return value
    return "Done." if value is None else to_json(to_jsonable_python(value))


def _hints(function: Callable[..., object], what: str) -> dict[str, object]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{what}: {error}; the types of a tool must be names of its module"
        ) from error


def _problem(kind: str, place: str, message: str) -> str:
    if kind == "missing":
        return f"the argument `{place}` is missing"
    if kind == "extra_forbidden":
        return f"there is no argument `{place[:40]}`"
    return f"`{place[:80]}`: {message}" if place else message


def _plain(schema: object) -> Any:  # any JSON
    """Return a JSON schema without the titles that pydantic makes of names."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, object] = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str):
            continue
        is_data = key in ("default", "const", "enum", "examples")
        kept[key] = value if is_data else _plain(value)
    return kept
