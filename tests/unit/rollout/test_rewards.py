"""Weights of named parts and reward functions of a user's own, in collected episodes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import pytest

import reward_functions
from agentgym_rl.config import RewardConfig, RunConfig, parse_config
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import ConfigError
from agentgym_rl.rewards import RewardFunction, load_function, weighted, with_rewards
from agentgym_rl.rollout.collect import collect, keep_groups
from agentgym_rl.rollout.rewards import EpisodeRewards
from agentgym_rl.rollout.statistics import rollout_metrics
from agentgym_rl.types import (
    Episode,
    Group,
    Message,
    Round,
    Sample,
    Segment,
    SegmentKind,
    StopReason,
    Task,
)
from fake_engines import ScriptedEngine, make_limits, make_participants
from fakes import ReportingEnv, end_hangs

SOLVING = ["add 1", "add 2"]
"""Solves task 2, whose goal is 3, in two rounds: parts goal 1 and length -0.25."""


async def play(rewards: EpisodeRewards, *, num: int = 1) -> Group:
    participants = await make_participants(LocalEnvSource(ReportingEnv), ScriptedEngine(SOLVING))
    (group,) = await collect(
        [ReportingEnv.tasks("train")[1]],
        replace(participants, rewards=rewards),
        make_limits(),
        group_size=num,
        noise=(0,),
        temperature=1.0,
        max_concurrency=8,
    )
    return group


async def play_one(
    function: RewardFunction | None = None,
    *,
    weights: Mapping[str, float] | None = None,
    timeout_s: float = 20.0,
) -> Episode:
    rewards = EpisodeRewards(function, weights=weights or {}, timeout_s=timeout_s)
    return (await play(rewards)).episodes[0]


def token_rewards(episode: Episode) -> list[float]:
    return [value for sample in episode.samples for value in sample.rewards if value]


def test_weights_are_1_unless_given():
    parts = {"answer": 1.0, "format": 0.5, "style": 4.0}
    assert weighted(parts, {"format": 0.2, "style": 0.0, "other": 9.0}) == 1.1


async def test_weights_weigh_the_parts_that_an_environment_reports():
    episode = await play_one(weights={"length": 2.0})
    assert episode.reward == 0.5  # 1 - 2 * 0.25
    assert token_rewards(episode) == [0.5]
    assert episode.reward_parts == {"goal": 1.0, "length": -0.25}
    assert episode.env_reward is None


async def test_without_weights_nothing_changes():
    episode = await play_one()
    assert (episode.reward, token_rewards(episode)) == (0.75, [0.75])


async def test_a_function_replaces_the_reward_and_leaves_success_alone():
    episode = await play_one(reward_functions.by_length)
    assert (episode.reward, episode.env_reward, episode.success) == (0.25, 0.75, True)
    assert [item.reward for item in episode.rounds] == [0.0, 0.25]
    assert token_rewards(episode) == [0.25]
    assert episode.reward_parts == {}
    assert episode.metrics == {"count": 3.0, "num_steps": 2.0}


async def test_a_function_may_return_named_parts_which_are_weighed():
    episode = await play_one(reward_functions.of_parts, weights={"goal": 0.5, "rounds": 0.0})
    assert episode.reward == 0.75 + 0.5 * 3  # own, and half of the payload's goal
    assert episode.reward_parts == {"own": 0.75, "rounds": -0.25, "goal": 3.0}
    groups = [Group(episode.task, (episode,))]
    found = rollout_metrics(groups, max_rounds=5)
    assert found["rollout/reward_mean"] == 2.25
    assert found["rollout/env_reward_mean"] == 0.75
    assert found["rollout/reward/goal"] == 3.0
    assert found["rollout/env/count"] == 3.0


async def test_a_function_may_be_async():
    assert (await play_one(reward_functions.judged)).reward == 1.5


async def test_a_plain_function_runs_beside_the_event_loop():
    reward_functions.THREADS.clear()
    group = await play(EpisodeRewards(reward_functions.on_its_thread), num=4)
    assert [episode.reward for episode in group.episodes] == [1.0] * 4
    assert set(reward_functions.THREADS) == {"reward"}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (reward_functions.broken, "KeyError: 'no such answer'"),
        (reward_functions.not_a_number, "ValueError: the reward of reporting/2 must be a finite"),
        (reward_functions.a_text, "TypeError: a reward is a number, not '1.0'"),
        (lambda episode: None, "TypeError"),
        (lambda episode: {"a b": 1.0}, "ValueError: the reward has the name 'a b'"),
        (lambda episode: [1.0], "one number for each of its 2 rounds"),
    ],
)
async def test_a_function_that_fails_makes_the_episode_fail(
    function: RewardFunction, message: str, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING):
        group = await play(EpisodeRewards(function), num=2)
    for episode in group.episodes:
        assert (episode.stop_reason, episode.reward) == (StopReason.REWARD_ERROR, None)
        assert (episode.success, episode.samples, episode.num_restarts) == (False, (), 0)
        assert episode.is_failed and episode.rounds
        assert "the reward function failed for reporting/2: " in (episode.error or "")
        assert message in (episode.error or "")
    assert len([item for item in caplog.records if item.exc_info]) == 1  # where it failed, once
    assert keep_groups([group], min_size=1) == []
    assert rollout_metrics([group], max_rounds=5)["rollout/episodes_failed"] == 2.0


async def test_a_function_that_hangs_fails_at_its_deadline_and_holds_up_nobody():
    try:
        episode = await play_one(reward_functions.hanging, timeout_s=0.05)
        assert episode.stop_reason is StopReason.REWARD_ERROR
        assert "no reward within 0.05 s (env.timeout_s)" in (episode.error or "")
    finally:
        end_hangs()


async def test_a_timeout_of_the_functions_own_is_told_as_such():
    async def gives_up(episode: Episode) -> float:
        raise TimeoutError("the judge does not answer")

    episode = await play_one(gives_up)
    assert "TimeoutError: the judge does not answer" in (episode.error or "")


async def test_failed_episodes_are_not_asked_about():
    failed = Episode(
        Task("a", "train", 1), 0, StopReason.ENV_ERROR, None, False, (), (), (), 0.0, error="x"
    )
    assert await EpisodeRewards(reward_functions.broken).of_episode(failed) is failed


async def test_a_weight_of_a_part_that_there_is_not_is_told_of(caplog: pytest.LogCaptureFixture):
    rewards = EpisodeRewards(weights={"lenght": 2.0, "goal": 1.0})
    with caplog.at_level(logging.WARNING):
        await play(rewards, num=64)
    (message,) = [item.getMessage() for item in caplog.records]
    assert message == (
        "reward.weights of lenght had no effect in 64 episodes; parts of the last: goal, length"
    )


def test_rewards_are_on_action_tokens_of_the_last_try():
    def sample(try_index: int, start: int) -> Sample:
        kinds = (SegmentKind.PLAN, SegmentKind.OBSERVATION, SegmentKind.ACTION)
        segments = tuple(Segment(kind, i, i + 1, start) for i, kind in enumerate(kinds))
        return Sample((1, 2, 3), (1, 0, 1), (0.0,) * 3, (0.0, 0.0, 5.0), segments, 0, try_index)

    episode = Episode(
        task=Task("a", "train", 1),
        sample_index=0,
        stop_reason=StopReason.TERMINATED,
        reward=5.0,
        success=False,
        rounds=(Round("x", "x", "o", 5.0, True), Round("x", "x", "o", 5.0, True, try_index=1)),
        messages=(Message("user", "go"),),
        samples=(sample(0, 0), sample(1, 1)),
        seconds=0.0,
    )
    found = with_rewards(episode, 0.5)
    assert [item.rewards for item in found.samples] == [(0.0, 0.0, 0.0), (0.0, 0.0, 0.5)]
    assert [item.reward for item in found.rounds] == [0.0, 0.5]
    assert with_rewards(found, 0.25).env_reward == 5.0  # the environment's, however often


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("by_length", r"reward.function='by_length' is not of the form \"module:function\""),
        ("reward_function:by_length", r"there is no module 'reward_function'; check the spelling"),
        ("reward_functions:by_lenght", r"has no 'by_lenght' \(did you mean 'by_length'\?\)"),
        ("reward_functions:NOT_A_FUNCTION", r"is not a function: it is 3"),
        ("math:pow", r"takes \(x, y, /\), and is called with the episode alone: missing .*'y'"),
    ],
)
def test_a_function_that_there_is_not_is_refused_with_the_remedy(name: str, message: str):
    with pytest.raises(ConfigError, match=message):
        EpisodeRewards.of(RunConfig(reward=RewardConfig(function=name)))


def test_methods_and_callables_are_functions_too():
    assert load_function("reward_functions:by_length", setting="x") is reward_functions.by_length
    assert load_function("math:inf.__add__", setting="x")(1.0) == float("inf")  # type: ignore[arg-type]


def test_weights_come_from_a_recipe_or_an_override():
    config = parse_config(
        {"reward": {"weights": {"format": 0.25}}}, ["reward.weights.answer=2"], source="test"
    )
    assert config.reward.weights == {"format": 0.25, "answer": 2.0}
    with pytest.raises(ConfigError, match="finite"):
        parse_config({"reward": {"weights": {"format": float("nan")}}}, [], source="test")
