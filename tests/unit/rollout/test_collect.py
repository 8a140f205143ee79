"""Collecting groups: order, noise, independence, and what is kept to train on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import EngineError
from agentgym_rl.rollout.collect import collect, keep_groups
from agentgym_rl.rollout.statistics import has_spread, rollout_metrics
from agentgym_rl.types import Episode, Group, Round, StopReason, Task
from fake_engines import FakeEngine, KeyedEngine, ScriptedEngine, make_limits, make_participants
from fakes import HANG_OVER, CountingEnv, TroubleEnv

WORDS = ("add 1", "add 2", "bad")


def tasks_of(env: type[CountingEnv], *goals: int) -> list[Task]:
    return [Task(env.spec.name, "train", goal - 1) for goal in goals]


async def gather(
    engine: FakeEngine,
    tasks: Sequence[Task],
    *,
    env: type[CountingEnv] = TroubleEnv,
    group_size: int = 3,
    noise: tuple[str | int, ...] = (0, "train", 1),
    max_concurrency: int = 99,
    on_episode: Callable[[Episode], None] | None = None,
    **limits: float,
) -> list[Group]:
    """Collect groups of a fake environment."""
    return await collect(
        tasks,
        await make_participants(LocalEnvSource(env, timeout_s=20.0), engine),
        make_limits(**limits),
        group_size=group_size,
        noise=noise,
        temperature=1.0,
        max_concurrency=max_concurrency,
        on_episode=on_episode,
    )


def transcripts(groups: Sequence[Group]) -> list[list[tuple[str, ...]]]:
    return [[tuple(r.reply for r in e.rounds) for e in group.episodes] for group in groups]


def make_episode(reason: StopReason, reward: float | None, *, num_restarts: int = 0) -> Episode:
    return Episode(
        task=Task("counting", "train", 0),
        sample_index=0,
        stop_reason=reason,
        reward=reward,
        success=reason is StopReason.SUCCESS,
        rounds=(),
        messages=(),
        samples=(),
        seconds=0.0,
        num_restarts=num_restarts,
        error="it broke" if reason.is_failure else None,
    )


SOLVED = make_episode(StopReason.SUCCESS, 1.0)
MISSED = make_episode(StopReason.MAX_ROUNDS, 0.0)
BROKEN = make_episode(StopReason.ENV_ERROR, None, num_restarts=2)


def make_group(*episodes: Episode) -> Group:
    return Group(Task("counting", "train", 0), episodes)


async def test_groups_come_in_the_order_of_tasks_whoever_ends_first():
    rng = random.Random(0)
    engine = ScriptedEngine(*([rng.uniform(0.0, 0.05), "add 3"] for _ in range(12)))
    tasks = tasks_of(TroubleEnv, 9, 3, 7, 5)
    ended: list[Episode] = []
    groups = await gather(engine, tasks, on_episode=ended.append, max_rounds=1)
    assert [group.task for group in groups] == tasks
    for group in groups:
        assert [episode.sample_index for episode in group.episodes] == [0, 1, 2]
        assert {episode.task for episode in group.episodes} == {group.task}
    in_order = [episode for group in groups for episode in group.episodes]
    assert ended != in_order, "the delays were meant to mix the order"
    assert sorted(map(id, ended)) == sorted(map(id, in_order)), "each is told once"


async def test_the_episodes_of_a_group_have_the_same_start_and_noise_of_their_own():
    engine = KeyedEngine(WORDS)
    groups = await gather(engine, tasks_of(TroubleEnv, 4, 6), group_size=6)
    for group in groups:
        assert {episode.messages[0] for episode in group.episodes} == {
            group.episodes[0].messages[0]
        }
    assert len({session.key for session in engine.sessions}) == 12
    assert all(len(set(group)) > 1 for group in transcripts(groups))


async def test_a_task_that_occurs_twice_gets_episodes_that_differ():
    engine = KeyedEngine(WORDS)
    first, second = await gather(engine, tasks_of(TroubleEnv, 9, 9))
    assert len({session.key for session in engine.sessions}) == 6
    assert transcripts([first]) != transcripts([second])


async def test_episodes_depend_on_the_noise_and_not_on_how_many_run_at_a_time():
    tasks = tasks_of(TroubleEnv, 4, 6, 8)
    expected = transcripts(await gather(KeyedEngine(WORDS), tasks))
    for max_concurrency in (1, 2, 5):
        groups = await gather(KeyedEngine(WORDS), tasks, max_concurrency=max_concurrency)
        assert transcripts(groups) == expected
    other = await gather(KeyedEngine(WORDS), tasks, noise=(0, "train", 2))
    assert transcripts(other) != expected


@pytest.mark.parametrize("max_concurrency", [1, 3])
async def test_no_more_episodes_run_at_once_than_may(max_concurrency: int):
    engine = ScriptedEngine([0.01, "add 3"])
    await gather(engine, tasks_of(TroubleEnv, 3, 3, 3), max_concurrency=max_concurrency)
    assert len(engine.sessions) == 9
    assert engine.max_open == max_concurrency


@pytest.mark.parametrize("slow", ["engine", "env"])
async def test_one_slow_episode_does_not_hold_up_the_others(slow: str):
    others_ended = asyncio.Event()
    ended: list[Episode] = []

    def on_episode(episode: Episode) -> None:
        ended.append(episode)
        if len(ended) == 7:
            others_ended.set()
            HANG_OVER.set()

    # Its first round ends when the seven others have had their three.
    script = [others_ended if slow == "engine" else "hang", "add 3"]
    engine = ScriptedEngine(script, ["add 1", "add 1", "add 1"])
    try:
        await gather(engine, tasks_of(TroubleEnv, 3), group_size=8, on_episode=on_episode)
    finally:
        HANG_OVER.set()
        HANG_OVER.clear()
    *others, last = ended
    assert [len(episode.rounds) for episode in others] == [3] * 7
    assert last.sample_index == 0 and last.success


async def test_failed_episodes_are_in_their_groups_and_spare_the_others():
    engine = ScriptedEngine(
        ["add 3"], ["raise"], ["add 1", EngineError("no memory")], ["add 1"], ["add 3"], ["exit"]
    )
    groups = await gather(engine, tasks_of(TroubleEnv, 3, 3), max_rounds=1, max_restarts=0)
    assert [[e.stop_reason for e in group.episodes] for group in groups] == [
        [StopReason.SUCCESS, StopReason.ENV_ERROR, StopReason.MAX_ROUNDS],
        [StopReason.MAX_ROUNDS, StopReason.SUCCESS, StopReason.ENV_ERROR],
    ]
    assert [[e.reward for e in group.episodes] for group in groups] == [
        [1.0, None, 0.0],
        [0.0, 1.0, None],
    ]
    kept = keep_groups(groups, min_size=2)
    assert [[e.reward for e in group.episodes] for group in kept] == [[1.0, 0.0], [0.0, 1.0]]


async def test_a_collection_in_which_everything_fails_ends_and_keeps_nothing():
    engine = ScriptedEngine(["raise"])
    groups = await gather(engine, tasks_of(TroubleEnv, 3, 4), max_restarts=1)
    assert all(e.is_failed and e.num_restarts == 1 for g in groups for e in g.episodes)
    assert keep_groups(groups, min_size=1) == []


def test_groups_below_their_size_are_dropped_whole_and_failed_episodes_always():
    groups = [
        make_group(SOLVED, BROKEN, MISSED),
        make_group(SOLVED, BROKEN, BROKEN),
        make_group(BROKEN, BROKEN, BROKEN),
        make_group(SOLVED, SOLVED, MISSED),
    ]
    assert keep_groups(groups, min_size=2) == [make_group(SOLVED, MISSED), groups[3]]
    assert keep_groups(groups, min_size=1) == [
        make_group(SOLVED, MISSED),
        make_group(SOLVED),
        groups[3],
    ]
    assert keep_groups(groups, min_size=3) == [groups[3]]


def test_failed_episodes_are_counted_and_enter_no_mean():
    metrics = rollout_metrics(
        [make_group(SOLVED, BROKEN), make_group(MISSED, MISSED)], max_rounds=7
    )
    # One of the three that completed was solved.
    assert metrics["rollout/success_rate"] == pytest.approx(1 / 3)
    assert metrics["rollout/reward_mean"] == pytest.approx(1 / 3)
    assert metrics["rollout/truncated_rate"] == pytest.approx(2 / 3)
    assert metrics["rollout/episodes"] == 4
    assert metrics["rollout/episodes_failed"] == metrics["rollout/episodes_restarted"] == 1
    assert metrics["rollout/groups_without_spread"] == 2
    assert metrics["rollout/max_rounds"] == 7


def test_with_a_discount_a_later_success_is_another_result():
    wait, win = (Round("", "", "", reward, valid_action=True) for reward in (0.0, 1.0))
    soon, later = replace(SOLVED, rounds=(win,)), replace(SOLVED, rounds=(wait, win))
    both_solved, both_missed = make_group(soon, later), make_group(MISSED, MISSED)
    assert not has_spread(both_solved)
    assert has_spread(both_solved, discount=0.95)
    assert not has_spread(make_group(soon, soon), discount=0.95)
    assert not has_spread(both_missed, discount=0.95)
    metrics = rollout_metrics([both_solved, both_missed], max_rounds=7, discount=0.95)
    assert metrics["rollout/groups_without_spread"] == 1


def test_a_step_of_failures_alone_has_metrics_too():
    metrics = rollout_metrics([make_group(BROKEN, BROKEN)], max_rounds=7)
    assert metrics["rollout/episodes_failed"] == 2
    assert metrics["rollout/success_rate"] == metrics["rollout/reward_mean"] == 0.0
