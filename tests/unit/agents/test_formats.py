"""Action formats by example: what each kind of reply means, and what the model is told."""

from __future__ import annotations

import json

import pytest

from agentgym_rl.agents.agent import Agent
from agentgym_rl.agents.formats import ParsedReply, make_format
from agentgym_rl.config import AgentConfig
from fakes import fake_spec

PLAIN = fake_spec("plain")
SEARCH = fake_spec(
    "search", action_tags=("search", "answer"), example_action="<search> who? </search>"
)


def hermes(name: str, **arguments: object) -> str:
    call = {"name": name, "arguments": arguments}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


# What is in this table is in docs/agents.md: change both.
ACTIONS = [
    ("react", "Thought: left.\nAction: go", "go", 15),
    ("react", "  action :go  \r\nand more", "go", 0),
    ("react", "Action: \n\n go \nstop", "go", 0),
    ("react", "Thought: no Action: here\r\nACTION: äöü 漢 🙂", "äöü 漢 🙂", 26),
    ("direct", " go\nleft \n", "go\nleft", 0),
    ("tags", "<think>left</think>\n<action> go </action>", "go", 20),
    ("tags", "<THINK>a</Think>\r\n<Action>\r\ngo\r\n</ACTION >\r\nbye", "go", 18),
    ("tags", "<think><action>no</action></think><action>go</action>", "go", 34),
    ("tags", "<action>no</action> hm </think><action>go</action>", "go", 31),
    ("tags", "<think><think>a</think>b</think><action>go</action>", "go", 32),
    ("tags", "no thought <action>a < b && c</action>", "a < b && c", 11),
    ("tags", "<action>&lt;action> &amp;lt;/action> &lt;b></action>",
     "<action> &lt;/action> &lt;b>", 0),
    ("function_call", hermes("act", action="go"), "go", 0),
    ("function_call", "left.\r\n" + hermes("act", action="a\nb"), "a\nb", 7),
    ("function_call", '<TOOL_CALL>{"name": "act", "arguments": {"action": "go"}}', "go", 0),
    ("function_call", '{"name": "act", "parameters": {"action": "go"}}', "go", 0),
    ("function_call", '<|python_tag|>{"name": "act", "parameters": {"action": "go"}}', "go", 0),
    ("function_call", '[TOOL_CALLS][{"name": "act", "arguments": {"action": "go"}}]', "go", 0),
    ("function_call", '```json\n{"name": "act", "arguments": {"action": "go"}}\n```', "go", 8),
    ("function_call", '{"type": "function", "function": {"name": "act", "arguments": '
     '"{\\"action\\": \\"go\\"}"}}', "go", 0),
    ("function_call", "<think>" + hermes("act", action="no") + "</think>"
     + hermes("act", action="go"), "go", 86),
    ("function_call", hermes("act", action="<tool_call>{}</tool_call>"),
     "<tool_call>{}</tool_call>", 0),
    ("function_call", hermes("act", text="a"), "a", 0),
    ("code", "Left.\n```\ngo\n```\nbye", "go", 6),
    ("code", "```python\r\n  a = 1\r\n\r\n  b = 2\r\n```\r\n", "  a = 1\r\n\r\n  b = 2", 0),
    ("code", "````\na\n```\nb\n```\n````", "a\n```\nb\n```", 0),
    ("code", "so:\n  ```go left```", "go left", 4),
]  # fmt: skip

COMPLAINTS = [
    ("react", "", "No action found"),
    ("react", "Thought: only this", "No action found"),
    ("react", "Action: a\nAction: b", "2 actions found"),
    ("react", "Action:  \r\n ", "The action is empty"),
    ("direct", " \r\n\t", "Your reply was empty"),
    ("tags", "", "No action found"),
    ("tags", "<think>only this</think>", "No action found"),
    ("tags", "<think>only this", "The thought has no end"),
    ("tags", "<action>go", "The action has no end"),
    ("tags", "<action> \r\n</action>", "The action is empty"),
    ("tags", "<action>a</action><action>b</action>", "2 actions found"),
    ("tags", "<action>a <action>b</action></action>", "`<action>` is inside `<action>`"),
    ("tags", "<action><think>a</think>go</action>", "`<think>` is inside `<action>`"),
    ("tags", "<action>a <action" + " " * 100_000 + ">", "`<action>` is inside `<action>`"),
    ("tags", "<search>a</search>", "No action found"),
    ("function_call", "", "No tool call found"),
    ("function_call", "go left", "No tool call found"),
    ("function_call", "<think>only this", "The thought has no end"),
    ("function_call", hermes("act", action="a") * 2, "2 tool calls found"),
    ("function_call", '[{"name": "act"}, {"name": "act"}]', "2 tool calls found"),
    ("function_call", '<tool_call>{"name": "act"', "is not JSON"),
    ("function_call", "<tool_call>{'name': 'act'}</tool_call>", "is not JSON"),
    ("function_call", "<tool_call>__import__('os')</tool_call>", "is not JSON"),
    ("function_call", "<tool_call>" + "[" * 100_000, "is not JSON"),
    ("function_call", "<tool_call>" + "9" * 100_000, "is not JSON"),
    ("function_call", '<tool_call>{"name": "act"}}</tool_call>', "After the JSON"),
    ("function_call", "<tool_call>3</tool_call>", "A tool call is a JSON object"),
    ("function_call", hermes("jump", action="a"), "There is no tool 'jump'"),
    ("function_call", hermes("act", action="a", why="b"), "takes one argument, `action`"),
    ("function_call", hermes("act", action=3), "must be a text"),
    ("function_call", hermes("act", action=" "), "must be a text"),
    ("function_call", '{"name": "act", "arguments": "go"}', "is not JSON"),
    (
        "function_call",
        '{"name": "act", "arguments": "{\\"action\\": \\"go\\"} and"}',
        "text after the JSON",
    ),
    ("function_call", "<tool_call>[]</tool_call>", "No tool call found"),
    ("code", "", "No action found"),
    ("code", "only a thought", "No action found"),
    ("code", "```\na\n```\n```\nb\n```", "2 blocks found"),
    ("code", "```\ngo", "The block has no end"),
    ("code", "```\n \r\n```", "The block is empty"),
]


@pytest.mark.parametrize(("name", "reply", "action", "start"), ACTIONS)
def test_replies_that_carry_an_action(name: str, reply: str, action: str, start: int):
    assert make_format(name, PLAIN).parse(reply) == ParsedReply(action, action_start=start)


@pytest.mark.parametrize(("name", "reply", "complaint"), COMPLAINTS)
def test_replies_that_carry_none(name: str, reply: str, complaint: str):
    parsed = make_format(name, PLAIN).parse(reply)
    assert (parsed.action, parsed.action_start) == (None, None)
    assert complaint in parsed.complaint and len(parsed.complaint) < 300


@pytest.mark.parametrize(
    ("name", "reply", "action"),
    [
        ("tags", "<think>hm</think><search> who? </search>", "<search> who? </search>"),
        ("tags", "<ANSWER>Ada</answer>", "<answer>Ada</answer>"),
        ("tags", "<action><b></action>", "<b>"),
        ("tags", "<search>&lt;/search></search>", "<search></search></search>"),
        ("function_call", hermes("search", text=" who? "), "<search> who? </search>"),
        ("function_call", hermes("act", action="<b>"), "<b>"),
    ],
)
def test_actions_of_an_environment_with_tags(name: str, reply: str, action: str):
    assert make_format(name, SEARCH).parse(reply).action == action


def test_both_tags_in_one_reply_are_two_actions():
    parsed = make_format("tags", SEARCH).parse("<search>a</search><answer>b</answer>")
    assert parsed.action is None and "2 actions" in parsed.complaint


@pytest.mark.parametrize("spec", [PLAIN, SEARCH])
@pytest.mark.parametrize("name", ["react", "direct", "tags", "function_call", "code"])
def test_instructions_end_with_an_example_that_parses(name: str, spec):
    action_format = make_format(name, spec)
    text = action_format.instructions()
    example = text[text.index("for example:") if "for example:" in text else text.index("For ex") :]
    shown = action_format.parse(example.partition("\n")[2])
    assert shown.action == spec.example_action


def test_instructions_name_the_tags_and_tools_of_the_environment():
    assert (
        "`<search>...</search>` or `<answer>...</answer>`"
        in make_format("tags", SEARCH).instructions()
    )
    lines = make_format("function_call", SEARCH).instructions().splitlines()
    tools = lines[lines.index("<tools>") + 1 : lines.index("</tools>")]
    names = [json.loads(line)["function"]["name"] for line in tools]
    assert names == ["search", "answer"]


def test_demonstrations_in_each_format():
    written = {
        name: make_format(name, PLAIN).write("go")
        for name in ("react", "direct", "tags", "function_call", "code")
    }
    assert written == {
        "react": "Thought: I do the next step.\nAction: go",
        "direct": "go",
        "tags": "<think>I do the next step.</think>\n<action>go</action>",
        "function_call": '<tool_call>\n{"name": "act", "arguments": {"action": "go"}}\n'
        "</tool_call>",
        "code": "I do the next step.\n```\ngo\n```",
    }


def test_a_thought_in_front_of_the_action_stays_a_thought():
    assert make_format("tags", PLAIN).parse(
        make_format("tags", PLAIN).write("go", "no </think><action>stop</action>")
    ).action == "go"  # fmt: skip
    with pytest.raises(ValueError, match="fence of backticks"):
        make_format("code", PLAIN).write("go", "```\nstop\n```")
    with pytest.raises(ValueError, match="tool call"):
        make_format("function_call", PLAIN).write("go", hermes("act", action="stop"))


def test_an_unknown_format_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'xml'.*react, direct, tags, function_call, code"):
        make_format("xml", PLAIN)


def test_the_agent_takes_its_format_from_the_recipe():
    agent = Agent(AgentConfig(format="tags"), SEARCH)
    assert "<think>" in agent.first_prompt("Who?")
    assert agent.parse("<answer>Ada</answer>").action == "<answer>Ada</answer>"
