"""Exact tokens for every combination of format, planning, reflection, memory and thoughts.

What the engine was given and what it said is in the samples, token for token, whatever the agent
made of its context: the ids that were sampled are those with a loss, once each and in order, and
every session's context is a sample (up to what was shown after its last reply).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.agents.agent import Agent
from agentgym_rl.config import AgentConfig
from agentgym_rl.config.agent import FORMATS
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.rollout.episode import EpisodeSpec, Participants, TokenPolicy, run_episode
from agentgym_rl.training.algorithms.base import ScoredEpisode, ScoredSample
from agentgym_rl.training.algorithms.episode_tokens import episode_tokens
from agentgym_rl.types import (
    Completion,
    Episode,
    Sample,
    SamplingParams,
    SegmentKind,
    StopReason,
    Task,
)
from fake_engines import LOGPROB, FakeEngine, FakeSession, KeyedEngine, fake_renderer, make_limits
from fakes import CountingEnv

PLANNING = ({"enabled": False}, {"enabled": True}, {"enabled": True, "every": 2, "on_stall": 2})
TRIES = (1, 3)
MEMORY = (
    {"type": "full"},
    {"type": "window", "rounds": 3},
    {"type": "window", "rounds": 1},
    {"type": "summary", "rounds": 2},
)
THOUGHTS = ("keep", "strip")
COMBINATIONS = list(itertools.product(FORMATS, PLANNING, TRIES, MEMORY, THOUGHTS))

WORDS = (
    "add 1",
    "add 2",
    "Thought: hm\nAction: add 1",
    "Thought: é日本🙂\nAction: add 2",
    "<think>one\ntwo</think>\n\nAction: add 1",
    "<think>hm 🙂</think><action>add 1</action>",
    'So: <tool_call>{"name": "act", "arguments": {"action": "add 2"}}</tool_call>',
    "I add.\n```\nadd 1\n```",
    "nonsense",
    "",
)
quick = settings(max_examples=3)


class CuttingEngine(KeyedEngine):
    """Ends some replies in the middle, so that the policy has not closed them."""

    def session(self, key: int) -> FakeSession:
        super().session(key)
        self.sessions[-1] = _CuttingSession(self, key, len(self.sessions) - 1)
        return self.sessions[-1]


class _CuttingSession(FakeSession):
    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        is_cut = (self.key + len(self.context)) % 3 == 0
        limit = min(params.max_tokens, 7) if is_cut else params.max_tokens
        return await super().generate(new_ids, SamplingParams(params.temperature, limit))


async def play(config: AgentConfig, engine: FakeEngine, **limits: float) -> Episode:
    source = LocalEnvSource(CountingEnv)
    agent = Agent(config, await source.spec())
    participants = Participants(source, agent, TokenPolicy(engine, fake_renderer()))
    request = EpisodeSpec(Task("counting", "train", 8), 0, (0, "test"))
    return await run_episode(request, participants, make_limits(**limits))


def agent_config(
    format_: str, planning: dict[str, object], tries: int, memory: dict[str, object], past: str
) -> AgentConfig:
    return AgentConfig.model_validate(
        {
            "format": format_,
            "include_instructions": False,
            "past_thoughts": past,
            "planning": planning,
            "reflection": {"tries": tries},
            "memory": memory,
        }
    )


def check_exact(episode: Episode, engine: FakeEngine, *, max_tokens: int) -> None:
    assert not episode.is_failed, episode.error
    sessions = [session for session in engine.sessions if session.num_replies]
    assert len(sessions) == len(episode.samples)
    assert len({session.key for session in sessions}) == len(sessions)
    for sample, session in zip(episode.samples, sessions, strict=True):
        assert list(sample.token_ids) == session.context, "what the engine saw is the sample"
        assert len(sample.token_ids) <= max_tokens
        sampled = [t for t, m in zip(sample.token_ids, sample.loss_mask, strict=True) if m]
        assert sampled == session.sampled, "each sampled token has a loss where it was sampled"
        assert [lp for lp in sample.logprobs if lp] == [LOGPROB] * len(sampled)
        check_segments(sample)
    scored = ScoredEpisode(episode, tuple(ScoredSample(sample) for sample in episode.samples))
    tokens = episode_tokens(scored)  # raises unless rewards add up to the episode's
    assert tokens.rounds_A.diff().min() >= 0 if tokens.num_tokens > 1 else True, "order of time"
    assert len(tokens.states) == int(tokens.rounds_A[-1]) + 1


def check_segments(sample: Sample) -> None:
    segments = sample.segments
    assert segments[0].kind is SegmentKind.PROMPT and segments[0].start == 0
    assert segments[-1].end == len(sample.token_ids)
    assert all(a.end == b.start for a, b in itertools.pairwise(segments))
    for segment in segments:
        mask = set(sample.loss_mask[segment.start : segment.end])
        assert len(mask) == 1, "a segment is learned from whole or not at all"
        assert mask == {0} or segment.kind.is_reply


@pytest.mark.parametrize(("format_", "planning", "tries", "memory", "past"), COMBINATIONS, ids=str)
def test_tokens_are_exact(
    format_: str, planning: dict[str, object], tries: int, memory: dict[str, object], past: str
):
    config = agent_config(format_, planning, tries, memory, past)

    @quick
    @given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), st.integers(120, 900))
    def check(words: list[str], max_tokens: int) -> None:
        engine = CuttingEngine(words)
        limits = {"max_rounds": 6, "max_tokens": max_tokens, "max_tokens_per_round": 48}
        episode = asyncio.run(play(config, engine, **limits))
        check_exact(episode, engine, max_tokens=max_tokens)

    check()


async def test_memory_goes_on_where_a_full_context_would_end():
    limits = {"max_rounds": 10, "max_tokens": 170, "max_tokens_per_round": 16}
    words = ["nonsense"]
    full = agent_config("direct", {}, 1, {"type": "full"}, "keep")
    assert (await play(full, KeyedEngine(words), **limits)).stop_reason is StopReason.MAX_TOKENS
    for type_ in ("window", "summary"):
        config = agent_config("direct", {}, 1, {"type": type_, "rounds": 50}, "keep")
        engine = KeyedEngine(words)
        episode = await play(config, engine, **limits)
        assert (episode.stop_reason, len(episode.rounds)) == (StopReason.MAX_ROUNDS, 10)
        assert len(episode.samples) > 1
        check_exact(episode, engine, max_tokens=170)
