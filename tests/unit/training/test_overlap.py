"""Groups that are collected while the learner updates: how old they get, and what is left."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from agentgym_rl.config import (
    ClusterConfig,
    GRPOConfig,
    PolicyLossConfig,
    RolloutConfig,
    RunConfig,
    TrainingConfig,
)
from agentgym_rl.engines.channels.channel import Turn
from agentgym_rl.engines.channels.delivery import WeightSource
from agentgym_rl.engines.pool.pool import EnginePool
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.models.loading import Policy
from agentgym_rl.rollout.tasks import EpochSampler
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.collect.carry_over import CarryOverCollector
from agentgym_rl.training.collect.collection import Collected
from agentgym_rl.training.collect.overlap import OverlapCollector
from agentgym_rl.training.make import make_collector
from agentgym_rl.training.run_parts import RunEnv, RunParts
from agentgym_rl.types import Task
from engine_plays import endless_policy
from episode_groups import carried_places
from fake_engines import FakeEngine, FakeSession, KeyedEngine, ScriptedEngine, make_participants
from fakes import TroubleEnv

TASKS = [Task("trouble", "train", index) for index in range(40)]


class PooledEngine(KeyedEngine):
    """An engine of a pool that takes its time, and counts replies under way."""

    max_context: int | None = None
    is_alive = is_ready = True

    def __init__(self, number: int) -> None:
        super().__init__(["add 1", "add 2", "sleep 0.002", "bad"])
        self.name, self.num_under_way, self.num_begun = f"engine-{number}", 0, 0

    async def reply(self, session: FakeSession) -> str:
        self.num_under_way += 1
        self.num_begun += 1
        await asyncio.sleep([0.0, 0.001, 0.002, 0.02][session.key % 4])
        self.num_under_way -= 1
        return await super().reply(session)


class Channel:
    """Gives versions in turn."""

    def follow(self, source: WeightSource) -> bool:
        return True

    def publish(
        self,
        version: int,
        engines: Sequence[PooledEngine],
        *,
        turn: Turn[PooledEngine] | None = None,
    ) -> int:
        for engine in engines:
            with nullcontext() if turn is None else turn([engine]):
                assert not engine.num_under_way, "a reply would be of two versions"
                engine.publish(version)
        return 0

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def policy() -> Policy:
    return endless_policy()


def make_config(*, steps: int, tasks_per_step: int, stale: int, overlap: bool) -> RunConfig:
    return RunConfig(
        cluster=ClusterConfig(type="local", engines=2),
        algorithm=GRPOConfig(group_size=2),
        rollout=RolloutConfig(
            max_staleness=stale,
            overlap=overlap,
            max_tokens=500,
            max_tokens_per_round=16,
            max_restarts=0,
        ),
        policy_loss=PolicyLossConfig(importance_cap=2.0),
        training=TrainingConfig(steps=steps, tasks_per_step=tasks_per_step),
    )


async def make(
    policy: Policy,
    engine: FakeEngine | EnginePool[PooledEngine],
    *,
    steps: int = 6,
    tasks_per_step: int = 3,
    stale: int = 1,
    overlap: bool = True,
) -> CarryOverCollector:
    config = make_config(steps=steps, tasks_per_step=tasks_per_step, stale=stale, overlap=overlap)
    participants = await make_participants(LocalEnvSource(TroubleEnv, timeout_s=60.0), engine)
    env = RunEnv("trouble", config, participants, TASKS)
    collector = make_collector(RunParts(config, policy, RunFolder(Path("unused")), [env]))
    assert isinstance(collector, CarryOverCollector)
    assert isinstance(collector, OverlapCollector) is overlap
    return collector


def ages_of(collected: Collected, step: int) -> list[int]:
    """Return by how many steps each reply of a step is older than its weights."""
    return [
        step - 1 - segment.version
        for group in collected.groups
        for episode in group.episodes
        for sample in episode.samples
        for segment in sample.segments
        if segment.version is not None
    ]


@pytest.mark.parametrize("stale", [1, pytest.param(2, marks=pytest.mark.long)])
async def test_replies_continue_during_updates_and_get_no_older_than_they_may(
    policy: Policy, stale: int
):
    engines, steps = [PooledEngine(number) for number in range(2)], 6
    pool = EnginePool(engines, Channel(), wait_s=60.0)
    collector = await make(policy, pool, steps=steps, stale=stale)
    taken, num_meanwhile = list[Collected](), 0
    for step in range(1, steps + 1):
        taken.append(await collector.collect(step, {"trouble": 1 + step}))
        pool.begin_update()
        num_begun = sum(engine.num_begun for engine in engines)
        await asyncio.sleep(0.01)  # the update
        num_meanwhile += sum(engine.num_begun for engine in engines) - num_begun
        assert len(carried_places(collector)) <= 3 * stale
        await asyncio.to_thread(pool.publish, step)
        ages = ages_of(taken[-1], step)
        assert min(ages) >= 0 and max(ages) <= stale
        assert taken[-1].metrics["rollout/staleness_max"] == max(ages)
        assert len(taken[-1].groups) == 3
    assert num_meanwhile > 0
    assert carried_places(collector) == []
    planned = EpochSampler(TASKS, seed=0).take(1, 3 * steps)
    got = [group.task for collected in taken for group in collected.groups]
    assert Counter(got) == Counter(planned)
    await collector.aclose()
    pool.close()


@pytest.mark.long
async def test_a_step_waits_where_later_ones_could_not_take_what_is_slow(policy: Policy):
    may_end = asyncio.Event()
    # Of the four groups that begin first three are slow, more than one step can take.
    engine = ScriptedEngine(*[[may_end, "bad"]] * 6, ["bad"])
    collector = await make(policy, engine, steps=6, tasks_per_step=2, stale=2)
    await collector.collect(1, {"trouble": 1})
    engine.publish(1)
    assert {(1, 0), (1, 1), (2, 0)} <= set(carried_places(collector))
    second = asyncio.create_task(collector.collect(2, {"trouble": 1}))
    await asyncio.sleep(0.2)
    assert not second.done(), "step 3 has room for two of the three"
    may_end.set()
    assert (await second).metrics["rollout/groups_carried"] >= 1
    engine.publish(2)
    third = await collector.collect(3, {"trouble": 1})
    assert third.metrics["rollout/staleness_max"] <= 2
    assert min(step for step, _ in carried_places(collector)) > 1
    await collector.aclose()


@pytest.mark.parametrize(
    ("stale", "overlap"),
    [
        (2, True),
        pytest.param(1, True, marks=pytest.mark.long),
        pytest.param(1, False, marks=pytest.mark.long),
    ],
)
async def test_a_resumed_run_repeats_what_had_begun_as_far_as_it_may_be_ahead(
    policy: Policy, stale: int, overlap: bool
):
    first = await make(policy, KeyedEngine(["add 1", "bad"]), steps=5, stale=2)
    got = list[Task]()
    for step in (1, 2):
        got += [group.task for group in (await first.collect(step, {"trouble": 2})).groups]
    while len(carried_places(first)) < 6:
        await asyncio.sleep(0.001)  # as many as may be ahead
    state = json.loads(json.dumps(first.state()))
    await first.aclose()
    engine = KeyedEngine(["add 1", "bad"])
    second = await make(policy, engine, steps=5, stale=stale, overlap=overlap)
    second.resume(2, state)
    engine.publish(2)
    for step in (3, 4, 5):
        collected = await second.collect(step, {"trouble": 2})
        got += [group.task for group in collected.groups]
        assert collected.metrics["rollout/staleness_max"] <= stale
        engine.publish(step)
    assert Counter(got) == Counter(EpochSampler(TASKS, seed=0).take(1, 15))
    assert "carried" not in second.state()
    await second.aclose()


async def test_closing_begins_nothing_more_and_leaves_nothing(policy: Policy):
    before, never = asyncio.all_tasks(), asyncio.Event()
    engine = ScriptedEngine(*[["bad"]] * 6, [never])
    collector = await make(policy, engine)
    await collector.collect(1, {"trouble": 1})
    await collector.aclose()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert all(session.is_closed for session in engine.sessions)
