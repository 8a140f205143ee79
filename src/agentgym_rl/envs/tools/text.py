"""The text of a tool call, which is the action of an environment with tools.

    refund(order=7, reason="broken")                                 how we write it
    refund(7, "broken")     {"name": "refund", "arguments": {...}}   what is read as well

Values are JSON, or Python's spelling of the same (True, None, single quotes). They are only ever
decoded, in linear time; nothing is evaluated.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from agentgym_rl.envs.base import JsonValue

MAX_CALL_CHARS = 2**18
"""Of one call; longer ones are refused unread."""
MAX_DEPTH = 32
"""Of lists and objects in one another."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,127}")
_ARGUMENT = re.compile(r"([A-Za-z_$][\w.$-]*)\s*=(?!=)")
_SINGLE_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_PYTHON_WORDS: Mapping[str, JsonValue] = {"True": True, "False": False, "None": None}
_WORD = re.compile(r"True|False|None")
_BLANK = re.compile(r"\s*")
_LINE_ENDS = re.compile("[\x7f-\x9f\u2028\u2029]")
"""Characters that end a line for some readers and that JSON leaves as they are."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class MalformedCallError(ValueError):
    """A text is not a call; the message is the complaint, for the agent."""

    def __init__(self, complaint: str, *, has_signature: bool = False) -> None:
        """`has_signature`: the complaint says how the tool is called."""
        super().__init__(complaint)
        self.has_signature = has_signature


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool.

    Example: ToolCall("refund", {"order": 7}).text is 'refund(order=7)'
    """

    name: str
    arguments: Mapping[str, JsonValue]

    @property
    def text(self) -> str:
        """The action that says this call; it is one line, whatever the arguments hold."""
        shown = (f"{_key(name)}={to_json(value)}" for name, value in self.arguments.items())
        return f"{self.name}({', '.join(shown)})"


def is_tool_name(name: object) -> bool:
    """Return whether a tool can have this name."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def to_json(value: JsonValue) -> str:
    """Return a value as JSON on one line, readable: without escapes for letters of any script."""
    text = json.dumps(value, ensure_ascii=False)
    text = _LINE_ENDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return _SURROGATE.sub("?", text)


def read_call(text: str, parameters: Mapping[str, Sequence[str]]) -> ToolCall:
    """Return the call that an action says; `parameters` are those of each tool, in their order.

    Raises MalformedCallError for a text that is not a call of one of the tools.
    """
    text = _SURROGATE.sub("?", text.strip())
    if len(text) > MAX_CALL_CHARS:
        raise MalformedCallError(f"The call is longer than {MAX_CALL_CHARS} characters.")
    if text.startswith("{"):
        return _json_call(text, parameters)
    name = _NAME.match(text)
    if name is None:
        raise MalformedCallError("This is not a call of a tool.")
    require_tool(name[0], parameters)
    rest = text[name.end() :].lstrip()
    if not rest:
        return ToolCall(name[0], {})
    if not rest.startswith("("):
        raise MalformedCallError(f"After `{name[0]}` there must be its arguments in parentheses.")
    return ToolCall(name[0], _arguments(rest, parameters[name[0]], name[0]))


def require_tool(name: object, known: Mapping[str, object]) -> None:
    """Raise MalformedCallError for a name that is not one of the tools."""
    if not isinstance(name, str) or name not in known:
        tools = ", ".join(f"`{tool}`" for tool in known)
        raise MalformedCallError(f"There is no tool {str(name)[:80]!r}; there are: {tools}.")


def decode_json(text: str, start: int, *, what: str) -> tuple[JsonValue, int]:
    """Return the JSON value that begins at a place, after blanks, and where it ends.

    Half a character, as "\\ud800" says, is a question mark: no text can be sent that has it.
    """
    try:
        value, end = _DECODER.raw_decode(text, _skip_blanks(text, start))
        return _cleaned(value, MAX_DEPTH), end
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "too deep or too large"
        raise MalformedCallError(f"{what} is not JSON ({reason}).") from None


def _cleaned(value: JsonValue, depth: int) -> JsonValue:
    """Return a value without half characters.

    Raises ValueError for what is nested too deep, and for numbers like 1e999.
    """
    if isinstance(value, str):
        return _SURROGATE.sub("?", value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("too large")
    if value is None or isinstance(value, int | float):
        return value
    if not depth:
        raise ValueError("too deep")
    if isinstance(value, Mapping):
        return {
            _SURROGATE.sub("?", name): _cleaned(item, depth - 1) for name, item in value.items()
        }
    return [_cleaned(item, depth - 1) for item in value]


def name_and_arguments(call: object) -> tuple[object, object]:
    """Return the name and the arguments of a call in any of the forms that models write."""
    if isinstance(call, dict) and isinstance(call.get("function"), dict):
        call = call["function"]
    if not isinstance(call, dict) or "name" not in call:
        raise MalformedCallError("A tool call is a JSON object with `name` and `arguments`.")
    arguments = call.get("arguments", call.get("parameters"))
    if isinstance(arguments, str):  # as OpenAI's API has them: JSON in a text
        text = arguments
        arguments, end = decode_json(text, 0, what="The tool call")
        if text[end:].strip():
            raise MalformedCallError("There is text after the JSON of the arguments.")
    return call["name"], arguments


def call_of(value: object, parameters: Mapping[str, Sequence[str]]) -> ToolCall:
    """Return the call that decoded JSON describes."""
    name, arguments = name_and_arguments(value)
    require_tool(name, parameters)
    assert isinstance(name, str), "it is one of the tools"
    if arguments is not None and not isinstance(arguments, dict):
        raise MalformedCallError(f"The arguments of `{name}` must be a JSON object.")
    return ToolCall(name, arguments or {})


def _json_call(text: str, parameters: Mapping[str, Sequence[str]]) -> ToolCall:
    value, end = decode_json(text, 0, what="The tool call")
    if text[end:].strip():
        raise MalformedCallError("There is text after the JSON of the call.")
    return call_of(value, parameters)


def _arguments(text: str, names: Sequence[str], tool: str) -> dict[str, JsonValue]:
    """Return the arguments in the parentheses with which a text begins, and which must end it."""
    found: dict[str, JsonValue] = {}
    place, num_unnamed = _skip_blanks(text, 1), 0
    while not text.startswith(")", place):
        name, place = _argument_name(text, place)
        value, place = _value(text, place)
        if name is None and num_unnamed < len(names):
            name = names[num_unnamed]
            num_unnamed += 1
        if name is None or name in found:
            what = "too many arguments" if name is None else f"the argument `{name}` twice"
            raise MalformedCallError(f"The call of `{tool}` has {what}.")
        found[name] = value
        place = _skip_blanks(text, place)
        if text.startswith(",", place):
            place = _skip_blanks(text, place + 1)
        elif not text.startswith(")", place):
            raise MalformedCallError(
                f"The call of `{tool}` cannot be read at {text[place : place + 20]!r}: arguments "
                "are `name=value`, separated by commas, between parentheses."
            )
    if text[place + 1 :].strip():
        raise MalformedCallError("There is text after the call; give exactly one call.")
    return found


def _argument_name(text: str, place: int) -> tuple[str | None, int]:
    """Return the name at a place, if an argument has one, and where its value begins."""
    plain = _ARGUMENT.match(text, place)
    if plain is not None:
        return plain[1], _skip_blanks(text, plain.end())
    if text.startswith('"', place):
        quoted, end = decode_json(text, place, what="An argument")
        end = _skip_blanks(text, end)
        if text.startswith("=", end):
            return str(quoted), _skip_blanks(text, end + 1)
    return None, place


def _value(text: str, place: int) -> tuple[JsonValue, int]:
    quoted = _SINGLE_QUOTED.match(text, place)
    if quoted is not None:
        inner = quoted[1].replace("\\'", "'")
        inner = re.sub(r'(\\.)|"', lambda found: found[1] or '\\"', inner, flags=re.DOTALL)
        value, _ = decode_json(f'"{inner}"', 0, what="An argument")
        return value, quoted.end()
    word = _WORD.match(text, place)
    if word is not None:
        return _PYTHON_WORDS[word[0]], word.end()
    return decode_json(text, place, what="An argument")


def _key(name: str) -> str:
    found = _ARGUMENT.match(f"{name}=")
    return name if found is not None and found[1] == name else to_json(name)


def _skip_blanks(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return found.end() if found is not None else place


def _refuse_number(word: str) -> NoReturn:
    raise json.JSONDecodeError(f"{word} is not a number of JSON", word, 0)


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse_number)
"""A text may have its line ends as they are; NaN and Infinity are refused."""
