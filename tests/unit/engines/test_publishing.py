"""Weights that change in the middle of an episode: later replies are of the new ones alone."""

from __future__ import annotations

import asyncio

import pytest
import torch

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.engines.host import HostEngine
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.engines.paged.engine import PagedEngine
from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.models.loading import Policy
from agentgym_rl.rollout.handler import RolloutHandler
from agentgym_rl.types import SamplingParams
from engine_plays import PROMPT, endless_policy

PARAMS = SamplingParams(temperature=1.0, max_tokens=7)


def make_engine(kind: str, policy: Policy) -> HostEngine:
    config = NativeEngineConfig()
    if kind == "native":
        return NativeEngine(policy, config)
    return PagedEngine(policy, config, num_pages=200, max_rows=8)


def change_weights(policy: Policy, seed: int) -> None:
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=noise), alpha=0.05)


def last_reply_logprobs(policy: Policy, handler: RolloutHandler) -> list[float]:
    """Return what a fresh forward pass over the whole context says of the last reply."""
    sample = handler.sample()
    last = sample.segments[-1]
    with torch.inference_mode():
        logprobs_A = action_logprobs(policy.model, [sample], temperature=1.0).logprobs_A
    return logprobs_A[last.start - last.end :].tolist()


@pytest.mark.parametrize("kind", ["native", "paged"])
async def test_replies_after_a_publication_are_of_the_new_weights_alone(kind: str):
    policy = endless_policy()
    engine = make_engine(kind, policy)
    handlers, sessions = [RolloutHandler() for _ in range(3)], [engine.session(k) for k in range(3)]
    try:
        for version in range(4):
            replies = await asyncio.gather(*(s.generate(PROMPT * 6, PARAMS) for s in sessions))
            for handler, reply in zip(handlers, replies, strict=True):
                if version:
                    handler.append_observation(PROMPT * 6, "")
                else:
                    handler.append_prompt(PROMPT * 6, "")
                handler.append_reply(reply, "")
                expected = last_reply_logprobs(policy, handler)
                assert reply.logprobs == pytest.approx(expected, abs=1e-4)
            change_weights(policy, seed=version)
            engine.publish(version + 1)
    finally:
        engine.close()
    for handler in handlers:
        assert [s.version for s in handler.segments if s.kind.is_reply] == [0, 1, 2, 3]
        assert handler.sample().version == 3
