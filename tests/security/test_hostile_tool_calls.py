"""Arguments of tools as an attacker would write them: nothing is evaluated, nothing breaks."""

from __future__ import annotations

import json
import time

import pytest
from examples.customer_service import CustomerService
from examples.tool_environment import Thermostat

from agentgym_rl.agents.formats import make_format
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.service.protocol import decode_spec
from agentgym_rl.envs.tools.text import read_call
from agentgym_rl.serving.bodies import ProtocolError

HUGE = 1_000_000
HOSTILE = {
    "huge text": 'look(order="' + "x" * HUGE + '")',
    "huge number": f"look(order={'9' * HUGE})",
    "number beyond 64 bits": f"refund(order={2**100})",
    "deep lists": f"look(order={'[' * HUGE}",
    "deep objects": '{"name": "look", "arguments": {"order": ' + '{"a":' * 100_000,
    "deep and closed": "look(order=" + "[" * 5000 + "]" * 5000 + ")",
    "many arguments": "look(" + ",".join(f"a{n}=1" for n in range(50_000)) + ")",
    "many unnamed": "look(" + "1," * 100_000 + ")",
    "not a number": "look(order=NaN)",
    "infinity": "look(order=-Infinity)",
    "overflow": "look(order=1e99999)",
    "python": "look(order=__import__('os').system('true'))",
    "attribute": "look.__class__(order=1)",
    "dunder": "__init__(order=1)",
    "private": "_open_store()",
    "surrogate names": '{"name": "look", "arguments": {"\\ud800": 1}}',
    "surrogates": 'look(order="\ud800")',
    "escaped surrogates": 'stock(kind="\\ud800", color="red")',
    "right to left": 'stock(kind="\u202e\u0000\ufeff", color="red")',
    "sql": 'stock(kind="mug\'; DROP TABLE orders; --", color="red")',
    "self": "look(self=1, order=1)",
    "duplicate": '{"name": "look", "name": "refund", "arguments": {}}',
    "template": "stock(kind='{{7*7}}%s{0.__class__}', color='red')",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_call_is_an_observation_in_good_time(name: str):
    env = CustomerService()
    env.reset(CustomerService.tasks("test")[0])
    before = env.details()
    began = time.process_time()
    result = env.step(HOSTILE[name])
    assert time.process_time() - began < 2.0
    assert not result.valid_action and not result.is_last
    assert len(result.observation) < 1000
    result.observation.encode()
    assert env.details() == before
    env.close()


def test_half_a_character_in_json_is_none_that_cannot_be_sent():
    for text in ('look("\\ud800")', '{"name": "look", "arguments": {"order": ["\\udfff"]}}',
                 '{"name": "look", "arguments": "{\\"\\\\ud800\\": 1}"}'):  # fmt: skip
        arguments = read_call(text, {"look": ("order",)}).arguments
        assert "?" in json.dumps(arguments, ensure_ascii=False).encode().decode()
    kept = read_call('look("\\ud83d\\ude00")', {"look": ("order",)})
    assert kept.arguments == {"order": "😀"}


@pytest.mark.parametrize("name", HOSTILE)
def test_the_same_in_a_tool_call_is_refused(name: str):
    calling = make_format("function_call", Thermostat.spec)
    began = time.process_time()
    parsed = calling.parse(
        f'<tool_call>{{"name": "turn", "arguments": {HOSTILE[name]}}}</tool_call>'
    )
    assert time.process_time() - began < 2.0
    assert len(parsed.complaint) < 1000
    if parsed.action is not None:  # JSON as it should be: the environment refuses it
        room = Thermostat()
        room.reset(Thermostat.tasks("test")[0])
        assert not room.step(parsed.action).valid_action


@pytest.mark.parametrize(
    "tools", [[1], ["x"], [{"a": {"b": float("inf")}}], {"a": 1}, [{"\ud800": 1}], "tools"]
)
def test_a_server_cannot_send_tools_that_are_not_schemas(tools: object):
    spec = Thermostat.spec
    fields = {name: getattr(spec, name) for name in EnvSpec.__dataclass_fields__}
    fields = {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}
    assert decode_spec(fields) == spec
    with pytest.raises(ProtocolError):
        decode_spec({**fields, "tools": tools})
