"""Groups that carry over: who waits for whom, how old tokens get, and that nothing is lost."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agentgym_rl.config import (
    GRPOConfig,
    PolicyLossConfig,
    RolloutConfig,
    RunConfig,
    TrainingConfig,
)
from agentgym_rl.envs.client import EnvClient
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import EngineError, RunError
from agentgym_rl.models.loading import Policy
from agentgym_rl.rollout.episode import Participants
from agentgym_rl.rollout.statistics import has_spread
from agentgym_rl.rollout.tasks import EpochSampler
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.collect import carry_over
from agentgym_rl.training.collect.carry_over import CarryOverCollector
from agentgym_rl.training.collect.collection import Collected, StepCollector
from agentgym_rl.training.run_parts import RunEnv, RunParts
from agentgym_rl.types import Episode, Group, StopReason, Task
from engine_plays import endless_policy
from episode_groups import carried_places
from fake_engines import FakeEngine, FakeSession, KeyedEngine, ScriptedEngine, make_participants
from fakes import HANG_OVER, TroubleEnv, end_hangs

TASKS = [Task("trouble", "train", index) for index in range(40)]


class WatchedSource(LocalEnvSource):
    """Remembers its clients."""

    def __init__(self) -> None:
        super().__init__(TroubleEnv, timeout_s=60.0)
        self.clients: list[EnvClient] = []

    async def _new_client(self) -> EnvClient:
        self.clients.append(await super()._new_client())
        return self.clients[-1]


class UnevenEngine(KeyedEngine):
    """Takes its time, now and then a lot; knows how many replies are under way."""

    def __init__(self, seed: int) -> None:
        super().__init__(["add 1", "add 2", "sleep 0.002", "sleep 0.004", "bad"])
        self._rng = random.Random(seed)
        self.num_under_way = 0

    async def reply(self, session: FakeSession) -> str:
        version = self.version
        self.num_under_way += 1
        await asyncio.sleep(self._rng.choice([0.0, 0.001, 0.002, 0.02]))
        self.num_under_way -= 1
        assert self.version == version, "weights were published while a reply was under way"
        return await super().reply(session)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return endless_policy()


@pytest.fixture
def hanging() -> Iterator[None]:
    """Let calls that hang return at the end, whatever happens."""
    yield
    end_hangs()


def make_config(
    *,
    steps: int = 4,
    tasks_per_step: int = 2,
    max_staleness: int = 1,
    drop_without_spread: bool = False,
    rest_solved: int = 0,
    max_refills: int = 0,
) -> RunConfig:
    return RunConfig(
        algorithm=GRPOConfig(group_size=2),
        rollout=RolloutConfig(
            drop_without_spread=drop_without_spread,
            rest_solved=rest_solved,
            max_refills=max_refills,
            max_staleness=max_staleness,
            max_tokens=500,
            max_tokens_per_round=16,
            max_restarts=0,
        ),
        policy_loss=PolicyLossConfig(importance_cap=2.0),
        training=TrainingConfig(steps=steps, tasks_per_step=tasks_per_step),
    )


def make_parts(
    config: RunConfig, policy: Policy, participants: Participants, tasks: Sequence[Task]
) -> RunParts:
    env = RunEnv("trouble", config, participants, tasks)
    return RunParts(config, policy, RunFolder(Path("unused")), [env])


async def make_collector(
    policy: Policy, engine: FakeEngine, source: LocalEnvSource | None = None, **settings: int
) -> CarryOverCollector:
    participants = await make_participants(source or WatchedSource(), engine)
    return CarryOverCollector(make_parts(make_config(**settings), policy, participants, TASKS))


def versions_of(episode: Episode) -> list[int | None]:
    return [s.version for sample in episode.samples for s in sample.segments if s.kind.is_reply]


def has_stop(group: Group, reason: StopReason) -> bool:
    return any(episode.stop_reason is reason for episode in group.episodes)


async def test_a_straggler_holds_up_no_step_and_is_learned_from_in_the_next(
    policy: Policy, hanging: None
):
    # Session 0, the first episode of the first group, waits for its environment.
    engine = ScriptedEngine(["bad", "hang", "bad"], [0.1, "bad"])
    collector = await make_collector(policy, engine)
    planned = EpochSampler(TASKS, seed=0).take(1, 4)
    first = await collector.collect(1, {"trouble": 3})
    assert [group.task for group in first.groups] == planned[1:3], "of three begun groups"
    assert first.metrics == {
        "rollout/staleness_mean": 0.0,
        "rollout/staleness_max": 0.0,
        "rollout/groups_carried": 0.0,
    }
    assert carried_places(collector) == [(1, 0)]
    engine.publish(1)
    HANG_OVER.set()
    second = await collector.collect(2, {"trouble": 2})
    straggler, *others = second.groups
    assert straggler.task == planned[0]
    assert second.metrics["rollout/groups_carried"] == 1
    assert second.metrics["rollout/staleness_max"] == 1
    versions = versions_of(straggler.episodes[0])
    # It keeps the three rounds with which it began.
    assert versions == [0, 0, 1]
    assert straggler.episodes[0].samples[0].version == 1
    assert versions_of(straggler.episodes[1]) == [0, 0, 0]
    assert all(versions_of(e) == [1, 1] for group in others for e in group.episodes)
    tokens = Counter[int]()
    for sample in (s for group in second.groups for e in group.episodes for s in e.samples):
        for segment in sample.segments:
            tokens[segment.version or 0] += segment.kind.is_reply * (segment.end - segment.start)
    assert second.metrics["rollout/staleness_mean"] == tokens[0] / tokens.total()
    await collector.aclose()


@pytest.mark.long
async def test_a_step_waits_for_what_may_not_get_any_older(policy: Policy, hanging: None):
    engine = ScriptedEngine(["hang", "bad"], ["bad"])
    collector = await make_collector(policy, engine, max_staleness=2)
    for step in (1, 2):
        await collector.collect(step, {"trouble": 1})
        assert (1, 0) in carried_places(collector)
        engine.publish(step)
    third = asyncio.create_task(collector.collect(3, {"trouble": 1}))
    await asyncio.sleep(0.2)
    assert not third.done()
    HANG_OVER.set()
    collected = await third
    assert collected.metrics["rollout/staleness_max"] == 2
    await collector.aclose()


@pytest.mark.parametrize("max_staleness", [pytest.param(1, marks=pytest.mark.long), 2])
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
async def test_no_token_is_older_than_may_be_and_every_task_has_its_group(
    policy: Policy, max_staleness: int, seed: int
):
    engine, source, steps = UnevenEngine(seed), WatchedSource(), 6
    collector = await make_collector(
        policy, engine, source, steps=steps, tasks_per_step=3, max_staleness=max_staleness
    )
    taken: list[Collected] = []
    for step in range(1, steps + 1):
        taken.append(await collector.collect(step, {"trouble": 1 + seed + step}))
        assert engine.num_under_way == 0
        num_replies = sum(session.num_replies for session in engine.sessions)
        await asyncio.sleep(0.01)  # the learner's time: environments may answer, nobody samples
        assert engine.num_under_way == 0
        assert sum(session.num_replies for session in engine.sessions) == num_replies
        assert len(taken[-1].groups) == 3
        assert len(carried_places(collector)) == (1 if step < steps else 0)
        engine.publish(step)
    for step, collected in enumerate(taken, start=1):
        ages = [
            step - 1 - version
            for group in collected.groups
            for episode in group.episodes
            for version in versions_of(episode)
            if version is not None
        ]
        assert min(ages) >= 0 and max(ages) <= max_staleness
        assert collected.metrics["rollout/staleness_max"] == max(ages)
    planned = EpochSampler(TASKS, seed=0).take(1, 3 * steps)
    got = [group.task for collected in taken for group in collected.groups]
    assert Counter(got) == Counter(planned)
    assert sum(collected.metrics["rollout/groups_carried"] for collected in taken) > 0
    await collector.aclose()
    assert all(session.is_closed for session in engine.sessions)


@pytest.mark.parametrize("max_staleness", [0, 1])
async def test_groups_whose_rewards_are_equal_can_be_left_out(policy: Policy, max_staleness: int):
    config = make_config(
        steps=1, tasks_per_step=4, max_staleness=max_staleness, drop_without_spread=True
    )
    make = CarryOverCollector if max_staleness else StepCollector
    participants = await make_participants(
        WatchedSource(), KeyedEngine(["add 1", "add 2", "add 3"])
    )
    collector = make(make_parts(config, policy, participants, TASKS[:6]))
    collected = await collector.collect(1, {"trouble": 3})
    assert len(collected.groups) == 4
    with_spread = [group for group in collected.groups if has_spread(group)]
    assert 0 < len(with_spread) < 4
    assert [group.task for group in collected.kept] == [group.task for group in with_spread]
    await collector.aclose()


@pytest.mark.long
async def test_solved_tasks_rest_also_after_a_resumption(policy: Policy):
    config = make_config(tasks_per_step=3, max_staleness=0, rest_solved=1)
    # Task number n has goal n + 1, so that every group of the first is solved and no other.
    tasks = TASKS[:6]

    async def make() -> StepCollector:
        participants = await make_participants(WatchedSource(), KeyedEngine(["add 1"]))
        return StepCollector(make_parts(config, policy, participants, tasks))

    collector, got = await make(), list[list[str]]()
    for step in range(1, 9):
        collected = await collector.collect(step, {"trouble": 1})
        got.append([group.task.id for group in collected.groups])
        if step == 3:
            state = json.loads(json.dumps(collector.state()))
            collector = await make()
            collector.resume(3, state)
    whole = await make()
    assert got == [
        [group.task.id for group in (await whole.collect(step, {"trouble": 1})).groups]
        for step in range(1, 9)
    ]
    counts = Counter(task for ids in got for task in ids)
    assert counts[tasks[0].id] < min(counts[task.id] for task in tasks[1:])
    assert collected.metrics["rollout/tasks_resting"] in (0, 1)


@pytest.mark.long
async def test_refills_leave_tasks_that_rest_alone(policy: Policy):
    config = make_config(tasks_per_step=2, max_staleness=0, rest_solved=1, max_refills=1)
    # No group has spread, so that every step is refilled; the first task alone is solved.
    tasks = TASKS[:9]
    participants = await make_participants(WatchedSource(), KeyedEngine(["add 1"]))
    collector, taken = StepCollector(make_parts(config, policy, participants, tasks)), list[Task]()
    for step in range(1, 7):
        collected = await collector.collect(step, {"trouble": 1})
        assert collected.num_refilled == 2
        taken += [group.task for group in collected.groups]
    order = enumerate(EpochSampler(tasks, seed=config.seed).take(1, 27))
    expected = [task for place, task in order if task != tasks[0] or place // 9 != 1]
    assert taken == expected[: len(taken)]


@pytest.mark.long
async def test_without_delays_episodes_are_those_of_a_run_that_waits(policy: Policy):
    words = ["add 1", "add 2", "bad"]
    collector = await make_collector(policy, KeyedEngine(words), steps=1, tasks_per_step=4)
    carried = await collector.collect(1, {"trouble": 5})
    config = make_config(steps=1, tasks_per_step=4, max_staleness=0)
    participants = await make_participants(WatchedSource(), KeyedEngine(words))
    waiting = StepCollector(make_parts(config, policy, participants, TASKS))
    waited = await waiting.collect(1, {"trouble": 5})
    assert [group.task for group in carried.groups] == [group.task for group in waited.groups]
    assert [[e.messages for e in group.episodes] for group in carried.groups] == [
        [e.messages for e in group.episodes] for group in waited.groups
    ]
    assert waited.metrics == {}


async def test_a_resumed_run_begins_anew_what_had_begun(policy: Policy):
    first = await make_collector(policy, UnevenEngine(0), steps=4, tasks_per_step=3)
    got = list[Task]()
    for step in (1, 2):
        got += [group.task for group in (await first.collect(step, {"trouble": 4})).groups]
    state = json.loads(json.dumps(first.state()))
    assert len(state["carried"]) == 1
    await first.aclose()
    second = await make_collector(policy, UnevenEngine(1), steps=4, tasks_per_step=3)
    second.resume(2, state)
    for step in (3, 4):
        got += [group.task for group in (await second.collect(step, {"trouble": 4})).groups]
    planned = EpochSampler(TASKS, seed=0).take(1, 12)
    assert Counter(got) == Counter(planned)
    assert "carried" not in second.state()
    await second.aclose()


async def test_closing_ends_what_is_under_way_and_leaves_nothing(policy: Policy, hanging: None):
    before = asyncio.all_tasks()
    engine, source = ScriptedEngine(["hang"], ["bad"]), WatchedSource()
    collector = await make_collector(policy, engine, source)
    await collector.collect(1, {"trouble": 2})
    collecting = asyncio.create_task(collector.collect(2, {"trouble": 2}))
    await asyncio.sleep(0.1)
    collecting.cancel()
    await asyncio.gather(collecting, return_exceptions=True)
    await collector.aclose()
    await collector.aclose()
    assert asyncio.all_tasks() == before
    assert all(session.is_closed for session in engine.sessions)
    assert all(client._phase.name == "CLOSED" for client in source.clients)


async def test_failed_episodes_are_counted_and_groups_without_enough_are_not_kept(policy: Policy):
    engine = ScriptedEngine([EngineError("lost")], ["raise"], ["bad"])
    collector = await make_collector(policy, engine, steps=1)
    collected = await collector.collect(1, {"trouble": 1})
    assert len(collected.groups) == 2 and len(collected.kept) == 1
    assert has_stop(collected.groups[0], StopReason.ENGINE_ERROR)
    assert has_stop(collected.groups[0], StopReason.ENV_ERROR)


@pytest.mark.long
async def test_a_step_of_failures_is_tried_again(policy: Policy, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(carry_over, "PAUSES_S", (0.0, 0.0))
    engine = ScriptedEngine(*[["raise"]] * 4, ["bad"])
    collector = await make_collector(policy, engine, steps=1)
    planned = EpochSampler(TASKS, seed=0).take(1, 2)
    collected = await collector.collect(1, {"trouble": 1})
    assert [group.task for group in collected.kept] == planned
    collector = await make_collector(policy, ScriptedEngine(["raise"]))
    with pytest.raises(RunError, match=r"every group of step 1 failed.*the world is broken"):
        await collector.collect(1, {"trouble": 1})
    await collector.aclose()


async def test_a_mistake_of_the_program_rises_and_can_be_cleaned_up_after(policy: Policy):
    before = asyncio.all_tasks()
    engine = ScriptedEngine([ZeroDivisionError("a bug")], [0.01, "bad"])
    collector = await make_collector(policy, engine)
    with pytest.raises(ZeroDivisionError):
        await collector.collect(1, {"trouble": 50})
    await collector.aclose()
    assert asyncio.all_tasks() == before
    assert all(session.is_closed for session in engine.sessions)
