"""Stop tokens that only `generation_config` declares: every engine stops, no text has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from agentgym_rl.config import NativeEngineConfig, VllmEngineConfig
from agentgym_rl.engines.base import Engine
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.engines.paged.engine import PagedEngine
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.loading import Policy, load_pretrained
from agentgym_rl.types import Completion, SamplingParams
from chat_families import family
from engine_plays import PROMPT, endless_policy
from vllm_stand_in import StandIn

DECLARED = (103, 131, 152)
"""Ordinary tokens, which neither the tokenizer nor its template calls the end of anything."""
ENGINES: dict[str, Callable[[Policy, NativeEngineConfig], Engine]] = {
    "native": NativeEngine,
    "paged": partial(PagedEngine, num_pages=64, max_rows=16),
}


def declaring_policy() -> Policy:
    policy = endless_policy()
    assert policy.model.generation_config is not None
    policy.model.generation_config.eos_token_id = list(DECLARED)
    return Policy(policy.model, policy.tokenizer, ChatRenderer(policy.tokenizer))


def assert_without_stop(policy: Policy, reply: Completion) -> None:
    text = policy.renderer.decode_reply(reply.token_ids)
    assert text == policy.tokenizer.decode(list(reply.token_ids[:-1]))


@pytest.mark.parametrize("name", ENGINES)
async def test_a_declared_stop_ends_the_reply_and_is_not_in_its_text(name: str):
    policy = declaring_policy()
    engine = ENGINES[name](policy, NativeEngineConfig())
    params = SamplingParams(30.0, 60)
    try:
        replies = await asyncio.gather(
            *(engine.session(key).generate(PROMPT, params) for key in range(48))
        )
    finally:
        engine.close()
    stopped = [reply for reply in replies if reply.token_ids[-1] in DECLARED]
    assert len({reply.token_ids[-1] for reply in stopped}) > 1
    assert all(reply.is_stopped for reply in stopped)
    for reply in stopped:
        assert_without_stop(policy, reply)


@pytest.mark.slow  # starts a process
async def test_vllm_is_asked_to_stop_at_the_same_tokens(tmp_path: Path):
    policy, stand_in = declaring_policy(), StandIn.install(tmp_path / "stand-in")
    engine = VllmEngine(policy, VllmEngineConfig(python=stand_in.python), folder=tmp_path / "x")
    try:
        # It says 102, 103: the first token is 100 and the sum of the context.
        reply = await engine.session(0).generate([1, 1], SamplingParams(1.0, 2))
    finally:
        engine.close()
    assert reply.token_ids == (102, 103) and reply.is_stopped
    (call,) = stand_in.calls("/v1/completions")
    assert set(call["body"]["stop_token_ids"]) == policy.stop_token_ids
    assert_without_stop(policy, reply)


def test_the_end_of_turn_stays_first_and_tools_keep_the_declared_stops():
    policy = declaring_policy()
    first = ChatRenderer(policy.tokenizer).stop_token_ids[0]
    assert policy.renderer.stop_token_ids[0] == first
    qwen = family("qwen").renderer.with_stops([7])
    schema = {"type": "function", "function": {"name": "act", "parameters": {}}}
    assert 7 in qwen.with_tools([schema]).stop_token_ids


def test_a_turn_closes_a_reply_that_a_declared_stop_ended():
    policy = declaring_policy()
    turn = policy.renderer.turn("Wall.", reply_ids=[5, DECLARED[0]])
    assert turn[0] == policy.renderer.stop_token_ids[0]


def test_declared_stops_are_there_after_saving_and_loading(tmp_path: Path):
    declaring_policy().save(tmp_path / "model")
    policy = load_pretrained(tmp_path / "model")
    assert set(DECLARED) < policy.stop_token_ids
    assert policy.renderer.decode_reply([42, DECLARED[1]]) == policy.renderer.decode_reply([42])
