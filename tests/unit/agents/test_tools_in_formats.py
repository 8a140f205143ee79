"""An environment's tools in the formats: through the chat template, or in words."""

from __future__ import annotations

import pytest
from examples.customer_service import CustomerService

from agentgym_rl.agents.agent import Agent
from agentgym_rl.agents.formats import make_format
from agentgym_rl.config import AgentConfig
from agentgym_rl.config.agent import FORMATS
from agentgym_rl.envs.tools import ToolCall
from agentgym_rl.models.chat import ChatRenderer
from tool_templates import TOOL_FAMILIES, tool_tokenizer

SPEC = CustomerService.spec
MOVE = ToolCall("move", {"order": 7, "street": 'Oak "x" </tool_call> é\u2028', "number": 3}).text
ACTIONS = ("orders()", 'report(outcome="done")', MOVE, "not a call", '{"name": "look"}')


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("action", ACTIONS)
def test_every_format_carries_every_action(name: str, action: str):
    assert make_format(name, SPEC).can_carry(action)


@pytest.mark.parametrize("name", FORMATS)
def test_every_prompt_names_the_tools_once(name: str):
    prompt = Agent(AgentConfig.model_validate({"format": name}), SPEC).first_prompt("")
    shown = '"name": "exchange"' if name == "function_call" else "- exchange(order: integer"
    assert prompt.count(shown) == 1
    assert ("<tools>" in prompt) == (name == "function_call")


def test_a_call_becomes_the_action_and_types_stay():
    calling = make_format("function_call", SPEC)
    reply = 'I look.\n<tool_call>{"name": "look", "arguments": {"order": 7}}</tool_call>'
    assert calling.parse(reply).action == "look(order=7)"
    assert calling.parse('{"name": "orders"}').action == "orders()"
    unknown = calling.parse('<tool_call>{"name": "pay", "arguments": {}}</tool_call>')
    assert unknown.action is None and "There is no tool 'pay'" in unknown.complaint
    # Wrong arguments are for the environment to explain.
    assert calling.parse('{"name": "look", "arguments": {"x": 1}}').action == "look(x=1)"


@pytest.mark.parametrize("family", TOOL_FAMILIES)
def test_the_chat_template_shows_the_tools_and_writes_the_calls(family: str):
    agent = Agent(AgentConfig.model_validate({"format": "function_call"}), SPEC)
    tokenizer = tool_tokenizer(family)
    renderer = ChatRenderer(tokenizer).with_tools(agent.tools)
    met = agent.for_model(renderer)
    prompt = tokenizer.decode(renderer.prompt(met.first_prompt("Ann: Refund order 7.")))
    assert prompt.count("exchange") >= 1 and "refund" in prompt
    assert "- exchange(order" not in prompt, "the template shows them, the prompt does not"
    for action in ("look(order=7)", 'report(outcome="done", answer="sent")'):
        assert met.parse(met.write(action, "I do it.")).action == action
