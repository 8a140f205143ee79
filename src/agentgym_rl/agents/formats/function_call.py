"""Tool calls in JSON, in the forms that models are trained to write.

    <tool_call>{"name": "search", "arguments": {"text": "..."}}</tool_call>     Qwen, Hermes
    {"name": "search", "parameters": {"text": "..."}}                           Llama 3
    [{"name": "search", "arguments": "{\\"text\\": \\"...\\"}"}]                    Mistral, OpenAI

All are read, whichever is asked for. Instructions and demonstrations show the form of the model's
chat template if it shows tools (`for_template`), otherwise the first. The tools are those of the
environment (`EnvSpec.tools`), or its tags (`EnvSpec.action_tags`) with one text each; actions that
are neither are calls of `act`. Replies are only ever decoded as JSON.
"""

from __future__ import annotations

import contextlib
import json
import re

from agentgym_rl.agents.formats.base import ActionFormat, ParsedReply, ToolTemplate
from agentgym_rl.agents.formats.elements import (
    GENERIC,
    make_element,
    only_element,
    split_action,
    thought_end,
)
from agentgym_rl.envs.base import EnvSpec, JsonValue, ToolSchema
from agentgym_rl.envs.tools.described import parameters_of
from agentgym_rl.envs.tools.text import (
    MalformedCallError,
    ToolCall,
    call_of,
    decode_json,
    name_and_arguments,
    read_call,
)

_ACT = "act"

_OPEN = re.compile(r"<tool_call>", re.IGNORECASE)
_CLOSE = re.compile(r"\s*(?:</tool_call>|\Z)", re.IGNORECASE)
_BARE = re.compile(
    r"(?:<\|python_tag\|>\s*|\[TOOL_CALLS\]\s*)?"
    r'(?P<json>(?:\[\s*)?\{\s*"(?:name|function|type|id|arguments|parameters)"\s*:)'
)
"""The beginning of a call, or of a list of calls, that stands by itself."""
_THOUGHT_END = re.compile(r"</think>", re.IGNORECASE)
_THOUGHT = re.compile(r"<think>", re.IGNORECASE)


class FunctionCallFormat(ActionFormat):
    """The action is one call of a tool; what is said before it is thought."""

    name = "function_call"

    def __init__(self, spec: EnvSpec, template: ToolTemplate | None = None) -> None:
        super().__init__(spec)
        self._parameters = parameters_of(spec.tools)
        self._tools = tuple(self._parameters) or spec.action_tags or (_ACT,)
        self._template = template
        tool = self._tools[0]
        example = ToolCall(tool, {_parameter(tool): "..."})
        if spec.tools:
            example = self._call(spec.example_action)
        form = self._native(example) or f"<tool_call>{_as_object(example)}</tool_call>"
        self._form = f"Call exactly one tool: `{form}`."

    @property
    def tools(self) -> tuple[ToolSchema, ...]:
        return self._spec.tools or tuple(map(_describe, self._tools))

    def for_template(self, template: ToolTemplate) -> ActionFormat:
        return FunctionCallFormat(self._spec, template)

    def instructions(self) -> str:
        if self._template is not None:
            return (
                "Think first if it helps, then call exactly one tool, for example:\n"
                f"{self.write(self._spec.example_action)}"
            )
        tools = "\n".join(map(_to_json, self.tools))
        return (
            f"You act by calling tools. These are there, as JSON schemas:\n<tools>\n{tools}\n"
            "</tools>\nThink first if it helps, then call exactly one tool: a JSON object with its "
            "name and arguments between `<tool_call>` and `</tool_call>`, for example:\n"
            f"{self.write(self._spec.example_action)}"
        )

    def read(self, reply: str) -> ParsedReply:
        try:
            calls = _find_calls(reply)
            if not calls:
                return self._read_element(reply)
            if len(calls) > 1:
                raise MalformedCallError(f"{len(calls)} tool calls found.")
            start, call = calls[0]
            return ParsedReply(self._action(call), action_start=start)
        except MalformedCallError as error:
            return ParsedReply(None, f"{error} {self._form}")

    def write(self, action: str, thought: str = "") -> str:
        if any(mark.search(thought) for mark in (_OPEN, _BARE, _THOUGHT, _THOUGHT_END)):
            raise ValueError(f"a thought must not hold a tool call or tags: {thought[:80]!r}")
        call = self._call(action)
        opening = f"{thought}\n" * bool(thought)
        native = self._native(call)
        if native is not None and self.read(opening + native).action == action:
            return opening + native
        # The same JSON, without marks that close something.
        shown = _as_object(call).replace("</", "<\\/")
        return f"{opening}<tool_call>\n{shown}\n</tool_call>"

    def _call(self, action: str) -> ToolCall:
        """Return the call that says an action; one that is not a call is said by `act`."""
        if self._spec.tools:
            with contextlib.suppress(MalformedCallError):
                call = read_call(action, self._parameters)
                if call.text == action:
                    return call
            return ToolCall(_ACT, {_parameter(_ACT): action})
        tag, inner = split_action(action, self._spec.action_tags)
        tool = _ACT if tag == GENERIC else tag
        return ToolCall(tool, {_parameter(tool): inner})

    def _read_element(self, reply: str) -> ParsedReply:
        """Read a reply without a call: the environment's tags will do, if they are clear."""
        start = thought_end(reply) or 0
        element = only_element(reply[start:], self._spec.action_tags)
        if element is None:
            raise MalformedCallError("No tool call found.")
        return ParsedReply(element[0], action_start=start + element[1])

    def _native(self, call: ToolCall) -> str | None:
        """Return a call as the chat template writes it, if it does."""
        if self._template is None:
            return None
        return self._template.call_text(call.name, call.arguments)

    def _action(self, call: object) -> str:
        """Return the action that a call means."""
        tool, arguments = name_and_arguments(call)
        if self._spec.tools and (tool != _ACT or _ACT in self._tools):
            return call_of(call, self._parameters).text
        if not isinstance(tool, str) or tool not in (*self._tools, _ACT):
            known = ", ".join(f"`{name}`" for name in self._tools)
            raise MalformedCallError(f"There is no tool {str(tool)[:80]!r}; there are: {known}.")
        parameter = _parameter(tool)
        if not isinstance(arguments, dict) or len(arguments) != 1:
            raise MalformedCallError(f"The tool `{tool}` takes one argument, `{parameter}`.")
        (inner,) = arguments.values()  # there is only one, whatever a model calls it
        if not isinstance(inner, str) or not inner.strip():
            raise MalformedCallError(
                f"The argument `{parameter}` must be a text that is not empty."
            )
        return inner if tool == _ACT else make_element(tool, inner)


def _parameter(tool: str) -> str:
    """Return the name of the one parameter of a tool."""
    return "action" if tool == _ACT else "text"


def _describe(tool: str) -> ToolSchema:
    """Return the schema of a tool as chat templates and APIs take it."""
    parameters: JsonValue = {
        "type": "object",
        "properties": {_parameter(tool): {"type": "string"}},
        "required": [_parameter(tool)],
    }
    what = "Do one action in the environment." if tool == _ACT else f"The action {tool!r}."
    function: JsonValue = {"name": tool, "description": what, "parameters": parameters}
    return {"type": "function", "function": function}


def _as_object(call: ToolCall) -> str:
    return _to_json({"name": call.name, "arguments": call.arguments})


def _to_json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _find_calls(reply: str) -> list[tuple[int, object]]:
    """Return the calls after the thought, each with the place where it starts."""
    thought = _THOUGHT_END.search(reply)
    if thought is None and _THOUGHT.match(reply.lstrip()):
        raise MalformedCallError("The thought has no end: close it with `</think>`, then act.")
    place = thought.end() if thought is not None else 0
    opening = _OPEN if _OPEN.search(reply, place) else _BARE
    calls: list[tuple[int, object]] = []
    while (mark := opening.search(reply, place)) is not None:
        is_bare = opening is _BARE
        start = mark.start("json") if is_bare else mark.end()
        value, place = decode_json(reply, start, what="The tool call")
        if not is_bare and _CLOSE.match(reply, place) is None:
            raise MalformedCallError("After the JSON of a call there must be `</tool_call>`.")
        calls += [(mark.start(), call) for call in (value if isinstance(value, list) else [value])]
    return calls
