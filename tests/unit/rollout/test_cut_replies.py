"""Replies that the token limit cuts: never taken for whole, always counted, exact in training."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agentgym_rl.agents.agent import Agent
from agentgym_rl.config import AgentConfig
from agentgym_rl.engines.base import TextCompletion, TextEngine
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.rollout.episode import EpisodeSpec, Participants, TextPolicy, run_episode
from agentgym_rl.rollout.statistics import rollout_metrics
from agentgym_rl.types import (
    Episode,
    Group,
    Message,
    SamplingParams,
    SegmentKind,
    StopReason,
    Task,
)
from fake_engines import ScriptedEngine, fake_renderer, make_limits, make_participants
from fakes import CountingEnv

GOAL_12 = Task("counting", "test", 11)


class TwelveEnv(CountingEnv):
    """Takes "add 1" and "add 12" alike."""

    def __init__(self) -> None:
        super().__init__(largest=12)


CALL = '<tool_call>{"name": "act", "arguments": {"action": "add 12"}}</tool_call>'


async def play(*replies: str, format_: str, limit: int, max_rounds: int = 2) -> Episode:
    async with LocalEnvSource(TwelveEnv, timeout_s=30.0) as source:
        participants = await make_participants(
            source, ScriptedEngine(list(replies)), format_=format_
        )
        limits = make_limits(max_tokens_per_round=limit, max_rounds=max_rounds)
        return await run_episode(EpisodeSpec(GOAL_12, 0, ()), participants, limits)


def num_tokens(text: str) -> int:
    """Return the tokens of a text, its end of turn left out."""
    return len(fake_renderer().reply(text)) - 1


@pytest.mark.parametrize(
    ("format_", "whole", "cut"),
    [
        ("direct", "add 12", "add 1"),
        ("react", "Thought: all.\nAction: add 12", "Thought: all.\nAction: add 1"),
        ("tags", "<action>add 12</action>", "<action>add 1"),
        ("function_call", CALL, CALL[: CALL.index("2")]),
        ("code", "```\nadd 12\n```", "```\nadd 1"),
    ],
)
async def test_a_cut_action_is_not_taken_for_a_shorter_one(format_: str, whole: str, cut: str):
    assert fake_renderer().reply(whole)[: num_tokens(cut)] == fake_renderer().reply(cut)[:-1]
    episode = await play(whole, format_=format_, limit=num_tokens(cut))
    first = episode.rounds[0]
    assert (first.reply, first.action, first.valid_action) == (cut, None, False)
    assert f"cut at {num_tokens(cut)} tokens" in first.observation
    assert episode.num_replies_cut == 2
    whole_one = await play(whole, format_=format_, limit=num_tokens(whole) + 1)
    assert (whole_one.stop_reason, whole_one.num_replies_cut) == (StopReason.SUCCESS, 0)


@pytest.mark.parametrize(
    ("format_", "closed"),
    [
        ("react", "Action: add 12\n"),
        ("tags", "<action>add 12</action>"),
        ("function_call", CALL.removesuffix("</tool_call>")),
        ("code", "```\nadd 12\n```"),
        ("direct", "```\nadd 12\n```"),
    ],
)
async def test_an_action_that_was_complete_before_the_cut_is_taken(format_: str, closed: str):
    said = closed + " and so I am done here"
    if format_ == "direct":
        said = closed  # all but the end of turn
    ids = fake_renderer().reply(said)
    limit = next(n for n in range(1, len(ids)) if fake_renderer().decode_reply(ids[:n]) == closed)
    episode = await play(said, format_=format_, limit=limit)
    assert (episode.stop_reason, episode.rounds[0].action) == (StopReason.SUCCESS, "add 12")
    assert episode.num_replies_cut == 1, "it was cut all the same"


async def test_a_cut_reply_is_trained_on_as_sampled_and_closed_by_a_token_that_is_not():
    limit = num_tokens("add 1")
    episode = await play("add 12", "add 12", format_="direct", limit=limit)
    sample, end_of_turn = episode.samples[0], fake_renderer().stop_token_ids[0]
    first, observation = sample.segments[1], sample.segments[2]
    assert (first.kind, observation.kind) == (SegmentKind.ACTION, SegmentKind.OBSERVATION)
    sampled = fake_renderer().reply("add 12")[:limit]
    assert list(sample.token_ids[first.start : first.end]) == sampled
    assert sample.loss_mask[first.start : first.end] == (1,) * limit
    assert sample.token_ids[observation.start] == end_of_turn
    assert sample.loss_mask[observation.start : observation.end] == (0,) * (
        observation.end - observation.start
    )
    assert end_of_turn not in sampled and sum(sample.loss_mask) == 2 * limit


async def test_metrics_tell_cut_replies_and_their_length():
    limit = num_tokens("add 1")
    cut = await play("add 12", format_="direct", limit=limit)
    whole = await play("add 12", format_="direct", limit=64)
    metrics = rollout_metrics([Group(GOAL_12, (cut, whole))], max_rounds=2)
    assert metrics["rollout/replies_cut_rate"] == pytest.approx(2 / 3)
    # Two replies of the limit, and one with its end of turn.
    mean = (2 * limit + num_tokens("add 12") + 1) / 3
    assert metrics["rollout/reply_tokens_mean"] == pytest.approx(mean)
    nothing = rollout_metrics([Group(GOAL_12, ())], max_rounds=2)
    assert nothing["rollout/replies_cut_rate"] == nothing["rollout/reply_tokens_mean"] == 0.0


class CutEndpoint(TextEngine):
    """An endpoint whose first reply ends with `finish_reason: length`."""

    def __init__(self) -> None:
        self._num_replies = 0

    async def reply(
        self, messages: Sequence[Message], params: SamplingParams, *, seed: int
    ) -> TextCompletion:
        self._num_replies += 1
        is_cut = self._num_replies == 1
        return TextCompletion(f"Action: add 1{'' if is_cut else '2'}", is_cut=is_cut)

    async def close(self) -> None: ...


async def test_a_reply_that_an_endpoint_cuts_is_seen_by_the_format_too():
    async with LocalEnvSource(TwelveEnv, timeout_s=30.0) as source:
        participants = Participants(
            source, Agent(AgentConfig(), CountingEnv.spec), TextPolicy(CutEndpoint())
        )
        episode = await run_episode(EpisodeSpec(GOAL_12, 0, ()), participants, make_limits())
    assert [round_.action for round_ in episode.rounds] == [None, "add 12"]
    assert "cut at 64 tokens" in episode.rounds[0].observation
    assert (episode.stop_reason, episode.num_replies_cut) == (StopReason.SUCCESS, 1)
