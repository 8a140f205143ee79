"""Calls that a tool must refuse or survive: garbage for a check of an environment with tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentgym_rl.envs.base import JsonValue, ToolSchema
from agentgym_rl.envs.tools.described import parameters_of
from agentgym_rl.envs.tools.text import ToolCall

_DEEP = 40
_VALUES: tuple[JsonValue, ...] = (
    None, True, -1, 2**80, 0.5, "", "x", "\x00\u202e", "'; DROP TABLE orders; --", "{0} %n", [],
    {"a": [{}]},
)  # fmt: skip


def wrong_calls(tools: Sequence[ToolSchema]) -> tuple[str, ...]:
    """Return calls of every tool that lack arguments or have wrong, odd and too many of them."""
    calls = [text for name, names in parameters_of(tools).items() for text in _of(name, names)]
    return (*calls, "no_such_tool(x=1)", '{"name": 3, "arguments": []}') if calls else ()


def _of(tool: str, names: Sequence[str]) -> Iterator[str]:
    yield f"{tool}()"
    yield f"{tool}("
    yield f"{tool}(no_such_argument=1)"
    yield f"{tool}({'[' * _DEEP}{']' * _DEEP})"
    for place, name in enumerate(names):
        for value in (_VALUES[place % len(_VALUES)], *_VALUES[place::3]):
            yield ToolCall(tool, {**dict.fromkeys(names, "x"), name: value}).text
        yield f"{tool}({name}=NaN)"
