"""Action formats by law: any reply parses, what is written comes back, and time is linear."""

from __future__ import annotations

import re
import textwrap
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.agents.formats import base, make_format
from agentgym_rl.agents.formats.base import ActionFormat, ParsedReply
from agentgym_rl.agents.formats.decoration import quoted_literal
from agentgym_rl.config.agent import FORMATS as BUILT_IN
from agentgym_rl.envs.base import EnvSpec
from case_shares import spread_over
from fakes import fake_spec
from odd_actions import moves

SPECS = (
    fake_spec("plain"),
    fake_spec("search", action_tags=("search", "answer"), example_action="<search>a</search>"),
    fake_spec("fenced", example_action="```click [12]```"),
)
EXAMPLE = textwrap.dedent((ActionFormat.__doc__ or "").partition('"=> ":\n')[2])
"""A whole format in the docstring of the contract; it is held to the same laws."""


def example_of_the_contract(spec: EnvSpec) -> ActionFormat:
    names: dict[str, Any] = dict(vars(base), quoted_literal=quoted_literal)  # Any: of a module
    exec(EXAMPLE, names)
    return names["ArrowFormat"](spec)


NAMES = (*BUILT_IN, "example")
PAIRS = [  # every format begins with another environment
    (name, SPECS[(number + place) % len(SPECS)])
    for number, name in enumerate(NAMES)
    for place in range(len(SPECS))
]
FORMATS = [
    example_of_the_contract(spec) if name == "example" else make_format(name, spec)
    for name, spec in PAIRS
]
IDS = [f"{name}-{spec.name}" for name, spec in PAIRS]
ONE_EACH = slice(None, None, len(SPECS))

PIECES = (
    "<think>", "</think>", "<action>", "</action>", "</ACTION >", "<search>", "</search>",
    "<answer>", "</answer>", "&lt;", "&amp;", "&lt;/action>", "&amp;lt;search>", "<tool_call>",
    "</tool_call>", "<\\/tool_call>", '{"name": "act", "arguments": {"action": "go"}}', '{"name": ',
    '"', "\\", "{", "}", "[", "]", "```", "````", "`", "~~~", "Thought: ", "Action: ", "action:",
    "\n", "\r\n", "\r", " ", "\t", "\x0b", "\u2028", "\x00", "\ud800", "go", "漢", "🙂", "İ",
    "\u017f", "**", "*", "- ", "1. ", "'", "\u201c", "\u201d", "\u200b", "**Action:** ",
    "\nAction: ", " Action: ", "\nObservation: ", "</think>\n", ".", "\uff1a", "### ", "_",
)  # fmt: skip

texts = st.one_of(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.text())
replies = st.one_of(texts, moves().map(lambda move: move.text(("go", "pick up"))))
actions = texts.map(str.strip).filter(bool)
elements = st.tuples(st.sampled_from(("search", "answer")), texts.filter(str.strip)).map(
    lambda pair: f"<{pair[0]}>{pair[1]}</{pair[0]}>"
)


@pytest.mark.parametrize("action_format", spread_over(FORMATS, len(NAMES)), ids=IDS)
@settings(max_examples=60)
@given(reply=replies)
def test_any_reply_parses_and_its_action_can_be_said_again(action_format, reply: str):
    parsed = action_format.parse(reply)
    assert (parsed.action is None) == bool(parsed.complaint) == (parsed.action_start is None)
    if parsed.action is not None:
        assert parsed.action.strip() and 0 <= parsed.action_start <= len(reply)
        assert action_format.can_carry(parsed.action)


@pytest.mark.parametrize("action_format", spread_over(FORMATS, len(NAMES)), ids=IDS)
@settings(max_examples=60)
@given(action=st.one_of(actions, elements))
def test_what_is_written_comes_back(action_format, action: str):
    if action_format.name == "react":
        action = action.splitlines()[0].strip() or "go"
    reply = action_format.write(action)
    parsed = action_format.parse(reply)
    if action_format.name == "function_call":  # JSON can name half a character, which none can send
        action = re.sub("[\ud800-\udfff]", "?", action)
    assert parsed.action == action
    assert action_format.can_carry(action)
    if action_format.name in ("react", "tags", "code"):
        assert parsed.action_start == reply.index("\n") + 1, "the thought is the first line"


def test_react_carries_one_line_only():
    react = FORMATS[0]
    assert not react.can_carry("a\nb") and not react.can_carry("a\nAction: b")


def test_the_example_of_the_contract_is_a_whole_format():
    arrow = example_of_the_contract(fake_spec("plain"))
    assert arrow.parse(arrow.write("go left", "A wall.")) == ParsedReply("go left", action_start=8)
    assert arrow.parse("go left").complaint and "=> " in arrow.instructions()


GARBAGE = (
    "<", "<think", "<action>", "</action>", "<action ", "<action>a</action>", "</think>", "<think>",
    "&", "&amp;", "amp;", "&lt;action", "&amp;lt;", "<tool_call>", "</tool_call>", '{"name": ', "{",
    "[", "[ ", "[\n", '[{"name":', '"', '{"name": "act"}', '{"a": ', "```", "```\n", "`", "` ",
    "a```\n", "Action: ", "\nAction:", "\naction ", " ", "\n", "\r\n", "\t\n", "x", "漢", "🙂",
    "<|python_tag|>", "[TOOL_CALLS] ", "\\", "\x00", "\ud800", "- ", "1. ", "**", "*", "> ", "#",
    " Action: ", "\nObservation:", "\n- ", "**Action", "</think>\n", "\u200b", "\u201c", "Action ",
)  # fmt: skip
NUM_CHARS, MAX_S = 30_000, 0.5
"""Linear time is a few milliseconds, quadratic time many seconds."""
STARTS = ("", "<tool_call>", '<tool_call>{"name": "', "<action>", "<action", "&amp;", "```\n", "<")


@pytest.mark.parametrize("action_format", FORMATS[ONE_EACH], ids=IDS[ONE_EACH])
def test_garbage_takes_linear_time(action_format):
    slowest = 0.0
    for start in STARTS:
        for piece in GARBAGE:
            reply = start + piece * (NUM_CHARS // len(piece))
            began = time.process_time()
            action_format.parse(reply)
            slowest = max(slowest, time.process_time() - began)
    assert slowest < MAX_S


@pytest.mark.parametrize("action_format", FORMATS[ONE_EACH], ids=IDS[ONE_EACH])
@pytest.mark.parametrize("piece", GARBAGE)
def test_long_actions_are_written_in_linear_time(action_format, piece: str):
    action = (piece * (NUM_CHARS // len(piece))).strip() or "go"
    began = time.process_time()
    action_format.write(action)
    assert time.process_time() - began < MAX_S
