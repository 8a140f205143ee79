"""Steps of a run on several environments: labels, failures, limits, metrics and advantages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import ClassVar

import pytest

from agentgym_rl.config import (
    AdaptiveRoundsConfig,
    FixedRoundsConfig,
    RunConfig,
    StepRoundsConfig,
    parse_config,
)
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import RunError
from agentgym_rl.models.loading import Policy
from agentgym_rl.rollout.statistics import metrics_by_env, metrics_of_env
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.algorithms.base import ScoredEpisode, ScoredSample
from agentgym_rl.training.collect import carry_over, collection
from agentgym_rl.training.collect.collection import Collector
from agentgym_rl.training.make import make_algorithm, make_collector
from agentgym_rl.training.rounds import RunRounds
from agentgym_rl.training.run_parts import RunEnv, RunParts
from agentgym_rl.types import Episode, Group, Sample, StopReason, Task
from engine_plays import endless_policy
from fake_engines import KeyedEngine, make_participants
from fakes import CountingEnv

WORDS = ["add 1", "add 2", "bad"]
ROUNDS = {"left": 3, "right": 2}


class Outage(CountingEnv):
    """Fails its first resets, as a server that is down does, or always at one task."""

    num_failures, broken_task = 0, -1
    names: ClassVar[list[str]] = []

    def reset(self, task: Task) -> str:
        type(self).names.append(task.env)
        if task.index == type(self).broken_task:
            raise OSError("the task is broken")
        if type(self).num_failures:
            type(self).num_failures -= 1
            raise OSError("the server is down")
        return super().reset(task)


class Counted(CountingEnv):
    """Knows how many of its episodes are under way."""

    num_open = most_open = 0

    def __init__(self) -> None:
        super().__init__()
        Counted.num_open += 1
        Counted.most_open = max(Counted.most_open, Counted.num_open)

    def close(self) -> None:
        Counted.num_open -= 1


@pytest.fixture(scope="module")
def policy() -> Policy:
    return endless_policy()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (collection, carry_over):
        monkeypatch.setattr(module, "PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(Outage, "names", [])
    monkeypatch.setattr(Outage, "num_failures", 0)
    monkeypatch.setattr(Outage, "broken_task", -1)


def make_config(*overrides: str) -> RunConfig:
    texts = [
        "algorithm.group_size=2", "training.tasks_per_step=4", "rollout.max_restarts=0",
        "rollout.max_tokens=500", "rollout.max_tokens_per_round=16", "training.steps=20",
    ]  # fmt: skip
    table = {"envs": {"left": {"name": "fakes:CountingEnv"}, "right": {"name": "m:Outage"}}}
    return parse_config(table, [*texts, *overrides], source="test")


async def make_parts(
    config: RunConfig, policy: Policy, right: type[CountingEnv] = Outage
) -> RunParts:
    engine, envs = KeyedEngine(WORDS), list[RunEnv]()
    for (label, of_env), cls in zip(config.environments.items(), (CountingEnv, right), strict=True):
        participants = await make_participants(LocalEnvSource(cls), engine)
        tasks = [replace(task, env=label) for task in cls.tasks("train")]
        envs.append(
            RunEnv(label, of_env, replace(participants, label=label), tasks, config.weight(label))
        )
    return RunParts(config, policy, RunFolder(Path("unused")), envs)


async def make(policy: Policy, *overrides: str) -> Collector:
    return make_collector(await make_parts(make_config(*overrides), policy))


def replies(groups: Sequence[Group]) -> list[list[tuple[str, ...]]]:
    return [[tuple(r.reply for r in e.rounds) for e in group.episodes] for group in groups]


async def test_tasks_bear_the_label_and_the_environment_sees_its_own_name(policy: Policy):
    collected = await (await make(policy)).collect(1, ROUNDS)
    assert [group.task.env for group in collected.groups] == ["left", "right"] * 2
    assert set(Outage.names) == {"counting"}
    by_label = {label: [g for g in collected.groups if g.task.env == label] for label in ROUNDS}
    for label, groups in by_label.items():
        assert max(len(e.rounds) for g in groups for e in g.episodes) <= ROUNDS[label]


@pytest.mark.parametrize("stale", [pytest.param(0, marks=pytest.mark.long), 1])
async def test_an_environment_that_comes_back_costs_the_others_nothing(policy: Policy, stale: int):
    carries = ("rollout.max_staleness=1", "policy_loss.importance_cap=2") if stale else ()
    whole = await make(policy, *carries, "training.steps=1")
    expected = await whole.collect(1, ROUNDS)
    Outage.num_failures = 4  # all episodes of `right`
    again = await make(policy, *carries, "training.steps=1")
    collected = await again.collect(1, ROUNDS)
    assert replies(collected.groups) == replies(expected.groups)
    assert not any(e.is_failed for group in collected.groups for e in group.episodes)
    assert again.state() == whole.state()
    for collector in (whole, again):
        await collector.aclose()


@pytest.mark.parametrize("stale", [0, pytest.param(1, marks=pytest.mark.long)])
async def test_an_environment_that_stays_away_ends_the_run_and_is_named(policy: Policy, stale: int):
    carries = ("rollout.max_staleness=1", "policy_loss.importance_cap=2") if stale else ()
    Outage.num_failures = 10**6
    collector = await make(policy, *carries)
    with pytest.raises(RunError, match=r"failed, 3 times \(right\);.*the server is down"):
        await collector.collect(1, ROUNDS)
    await collector.aclose()


async def test_a_failed_group_is_no_reward_for_anyone(policy: Policy):
    planned = (await make(policy))._tasks.take(4)
    Outage.broken_task = planned[1].index
    assert [task.env for task in planned] == ["left", "right"] * 2 and planned[3] != planned[1]
    collected = await (await make(policy)).collect(1, ROUNDS)
    assert [len(group.completed) for group in collected.groups] == [2, 0, 2, 2]
    assert [group.task.env for group in collected.kept] == ["left", "left", "right"]
    metrics = metrics_by_env(collected.groups, max_rounds=ROUNDS)
    assert (metrics["rollout/left/episodes_failed"], metrics["rollout/right/episodes_failed"]) == (
        0,
        2,
    )


@pytest.mark.long
async def test_a_resumed_collector_goes_on_with_tasks_of_every_environment(policy: Policy):
    settings = ("envs.left.weight=3", "rollout.follow_learnable=0.5", "rollout.rest_solved=1")
    whole, expected = await make(policy, *settings), list[list[str]]()
    for step in range(1, 8):
        expected.append([g.task.id for g in (await whole.collect(step, ROUNDS)).groups])
    first = await make(policy, *settings)
    for step in (1, 2, 3):
        await first.collect(step, ROUNDS)
    second = await make(policy, *settings)
    second.resume(3, json.loads(json.dumps(first.state())))
    for step in range(4, 8):
        got = [g.task.id for g in (await second.collect(step, ROUNDS)).groups]
        assert got == expected[step - 1]


async def test_groups_that_carry_over_are_found_again_in_their_environment(policy: Policy):
    settings = ("rollout.max_staleness=1", "policy_loss.importance_cap=2", "training.steps=4")
    plan = make_config(*settings)
    whole, got = await make(policy, *settings), list[str]()
    expected = Counter(task.id for task in whole._tasks.take(16))
    first = await make(policy, *settings)
    for step in (1, 2):
        got += [g.task.id for g in (await first.collect(step, ROUNDS)).groups]
    state = json.loads(json.dumps(first.state()))
    await first.aclose()
    assert len(state["carried"]) == plan.training.tasks_per_step // 4
    second = await make(policy, *settings)
    second.resume(2, state)
    for step in (3, 4):
        got += [g.task.id for g in (await second.collect(step, ROUNDS)).groups]
    await second.aclose()
    assert Counter(got) == expected


async def test_an_environment_may_have_fewer_episodes_under_way(policy: Policy):
    config = make_config("envs.right.rollout.max_concurrency=1", "training.tasks_per_step=8")
    collector = make_collector(await make_parts(config, policy, Counted))
    await collector.collect(1, ROUNDS)
    assert (Counted.most_open, Counted.num_open) == (1, 0)


def test_metrics_are_of_all_groups_and_of_each_environment():
    groups = [make_group("a", [1.0, 0.0]), make_group("b", [1.0, 1.0]), make_group("b", [None, 1])]
    metrics = metrics_by_env(groups, max_rounds={"a": 4, "b": 9, "c": 1})
    assert metrics["rollout/success_rate"] == 4 / 5 and metrics["rollout/max_rounds"] == 9
    assert metrics["rollout/a/success_rate"] == 0.5 and metrics["rollout/b/success_rate"] == 1
    assert metrics["rollout/a/max_rounds"] == 4 and metrics["rollout/b/episodes_failed"] == 1
    assert not any(name.startswith("rollout/c/") for name in metrics)
    one = metrics_by_env(groups[:1], max_rounds={"a": 4})
    assert not any(name.startswith("rollout/a/") for name in one)
    of_b = metrics_of_env(metrics | {"step": 3}, "b")
    assert of_b is not None and of_b["rollout/success_rate"] == 1 and of_b["step"] == 3
    assert metrics_of_env(metrics, "c") is None


def test_each_environment_has_its_schedule_and_knows_only_its_own_history():
    rounds = RunRounds(
        {
            "fixed": FixedRoundsConfig(rounds=7),
            "staged": StepRoundsConfig(rounds=(2, 4), steps_per_stage=2),
            "adaptive": AdaptiveRoundsConfig(rounds=(3, 6), window=2),
        }
    )
    got = list[dict[str, int]]()
    for step in range(1, 7):
        got.append(rounds.max_rounds(step))
        # Episodes of `adaptive` all end at the horizon, in every other step; others never do.
        rates = {"success_rate": 0.5, "truncated_rate": 0.0, "max_tokens_rate": 0.0, "episodes": 4}
        line = {f"rollout/{name}": value for name, value in rates.items()}
        if step % 2:
            own = rates | {"success_rate": 0.0, "truncated_rate": 1.0}
            line |= {f"rollout/adaptive/{name}": value for name, value in own.items()}
        rounds.follow([{"step": step, **line}])
    assert [line["fixed"] for line in got] == [7] * 6
    assert [line["staged"] for line in got] == [2, 2, 4, 4, 4, 4]
    assert [line["adaptive"] for line in got] == [3, 3, 3, 6, 6, 6], "two steps of its own"


def make_group(env: str, rewards: Sequence[float | None], *, num_tokens: int = 2) -> Group:
    task = Task(env, "train", 0)
    episodes = [
        Episode(
            task=task,
            sample_index=index,
            stop_reason=StopReason.ENV_ERROR if reward is None else StopReason.SUCCESS,
            reward=reward,
            success=reward == 1,
            rounds=(),
            messages=(),
            samples=() if reward is None else (make_sample(reward, num_tokens * (index + 1)),),
            seconds=0.0,
        )
        for index, reward in enumerate(rewards)
    ]
    return Group(task, tuple(episodes))


def make_sample(reward: float, num_tokens: int) -> Sample:
    zeros = (0.0,) * num_tokens
    return Sample(
        token_ids=(1, *range(num_tokens)),
        loss_mask=(0, *(1,) * num_tokens),
        logprobs=(0.0, *zeros),
        rewards=(*zeros, reward),
        segments=(),
        version=0,
    )


@pytest.mark.parametrize("algorithm", ["grpo", "reinforce_pp"])
def test_advantages_of_each_environment_have_mean_0_and_deviation_1(algorithm: str):
    groups = [
        make_group("small", [0.0, 0.1, 0.0]),
        make_group("large", [0.0, 80.0, 100.0], num_tokens=5),
        make_group("small", [0.1, 0.0, 0.2]),
        make_group("flat", [1.0, 1.0, 1.0]),
    ]
    scored = [
        [ScoredEpisode(e, tuple(ScoredSample(s) for s in e.samples)) for e in group.episodes]
        for group in groups
    ]

    def advantages(*overrides: str) -> dict[str, list[float]]:
        config = parse_config({}, [f"algorithm.type={algorithm}", *overrides], source="test")
        batch = make_algorithm(config).advantages(scored)
        found: dict[str, list[float]] = {}
        for group, samples in zip(groups, batch.groups, strict=True):
            found.setdefault(group.task.env, []).extend(a for s in samples for a in s.advantages)
        return found

    plain, normalized = advantages(), advantages("credit.normalize_per_env=true")
    for env in ("small", "large"):
        values, before = normalized[env], plain[env]
        assert fmean(values) == pytest.approx(0, abs=1e-6)
        variance = sum(value**2 for value in values) / (len(values) - 1)
        assert variance == pytest.approx(1, abs=1e-5)
        # The order of what is better stays: only scale and place change.
        assert sorted(range(len(values)), key=lambda n: (values[n], n)) == sorted(
            range(len(before)), key=lambda n: (before[n], n)
        )
    assert set(normalized["flat"]) == {0.0}
