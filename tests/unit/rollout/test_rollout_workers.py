"""Rollout workers: the episodes of one process, and what becomes of them where a worker ends."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

import commands  # noqa: F401 - chooses what the server of forks imports
from agentgym_rl.agents.agent import make_agent
from agentgym_rl.agents.limits import Limits
from agentgym_rl.config import AgentConfig, EnvConfig, RewardConfig
from agentgym_rl.engines.base import Engine, EngineDiedError
from agentgym_rl.engines.clock import stopped_clock
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import AgentError
from agentgym_rl.rollout.episode import EpisodeSpec, Participants, TokenPolicy, play_episode
from agentgym_rl.rollout.rewards import EpisodeRewards
from agentgym_rl.rollout.workers import pool as pool_module
from agentgym_rl.rollout.workers.messages import WorkerEnv
from agentgym_rl.rollout.workers.pool import WorkerPool, WorkersOrder, open_workers
from agentgym_rl.rollout.workers.remote import start_worker_here
from agentgym_rl.types import Episode, StopReason, Task
from fake_engines import (
    FakeEngine,
    FakeSession,
    KeyedEngine,
    ScriptedEngine,
    fake_renderer,
    make_limits,
)

pytestmark = pytest.mark.slow  # workers are processes

PLAIN = {"format": "direct", "include_instructions": False}
REFLECTING = PLAIN | {
    "planning": {"enabled": True},
    "reflection": {"tries": 2},
    "memory": {"type": "summary", "rounds": 2},
}
WORDS = ["add 1", "add 2", "add 3", "subtract"]


class Players:
    """The same participants, played by workers or here."""

    def __init__(self, env: str, agent: dict[str, Any], reward: str = "") -> None:
        self._env, self._agent = EnvConfig(name=env), AgentConfig(**agent)
        self.reward = RewardConfig(function=reward)

    @property
    def of_worker(self) -> WorkerEnv:
        return WorkerEnv(self._env, self._agent, fake_renderer(), "")

    def here(self, engine: Engine) -> Participants:
        source = LocalEnvSource(self._env.name)
        agent = make_agent(self._agent, source.env_class.spec)
        rewards = EpisodeRewards.of_section(self.reward, timeout_s=30.0)
        return Participants(source, agent, TokenPolicy(engine, fake_renderer()), rewards)


COUNTING = Players("fakes:CountingEnv", PLAIN)
TROUBLE = Players("fakes:TroubleEnv", PLAIN)


@contextlib.asynccontextmanager
async def workers(folder: Path, *players: Players, num: int = 1) -> AsyncIterator[WorkerPool]:
    """Give workers that are closed at the end, and leave no process."""
    forkserver.ensure_running()

    async def find_address(env: int, place: int) -> tuple[str, str]:
        raise AssertionError("the environments are in the workers")

    envs, reward = tuple(one.of_worker for one in players), players[0].reward
    order = WorkersOrder(num, envs, reward, 30.0, folder, start_worker_here, find_address)
    pool = await open_workers(order)
    try:
        yield pool
    finally:
        pool.close()
        assert pids() == []


def pids() -> list[int]:
    children = multiprocessing.active_children()
    found = sorted((c.name, c.pid or 0) for c in children if c.name.startswith("rollout-"))
    return [pid for _, pid in found]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.01)


def there(pool: WorkerPool, players: Players, engine: Engine, env: int = 0) -> Participants:
    """Return participants whose episodes the workers play."""
    return replace(players.here(engine), play_elsewhere=pool.player(env))


def specs(players: Players, engine: Engine, num: int) -> list[EpisodeSpec]:
    env = players.here(engine).agent.spec.name
    return [EpisodeSpec(Task(env, "train", 2 + 2 * n), n, ("test", 7)) for n in range(num)]


async def play(
    participants: Participants, played: Sequence[EpisodeSpec], limits: Limits
) -> list[Episode]:
    """Return the episodes without how long they took."""
    works = (play_episode(spec, participants, limits) for spec in played)
    return [replace(episode, seconds=0.0) for episode in await asyncio.gather(*works)]


async def test_episodes_of_workers_are_those_of_one_process(tmp_path: Path):
    reward = "reward_functions:by_length"
    kinds = [Players("fakes:CountingEnv", agent, reward) for agent in (PLAIN, REFLECTING)]
    kinds.append(Players("fakes:CountingEnv", PLAIN | {"format": "react"}, reward))
    async with workers(tmp_path, *kinds, num=2) as pool:
        for number, players in enumerate(kinds):
            engine = KeyedEngine(WORDS)
            played = specs(players, engine, 8)
            ours = await play(there(pool, players, engine, number), played, make_limits())
            theirs = await play(players.here(KeyedEngine(WORDS)), played, make_limits())
            assert ours == theirs
            assert all(session.is_closed for session in engine.sessions)
            assert all(e.samples and not e.is_failed and e.env_reward is not None for e in ours)
        assert [place.num_sessions for place in pool._places] == [0, 0]


async def test_a_killed_worker_loses_only_its_episodes(tmp_path: Path):
    go_on = asyncio.Event()
    engine = ScriptedEngine(["add 1", go_on, "add 3"])
    async with workers(tmp_path, COUNTING, num=2) as pool:
        played = specs(COUNTING, engine, 6)
        playing = asyncio.create_task(
            play(there(pool, COUNTING, engine), played, make_limits(max_restarts=1))
        )
        await until(lambda: sum(session.num_replies == 1 for session in engine.sessions) == 6)
        before = pids()
        os.kill(before[0], signal.SIGKILL)
        await until(lambda: len(engine.sessions) == 9)
        go_on.set()
        episodes = await playing
        assert [episode.num_restarts for episode in episodes] == [1, 0] * 3
        assert not any(episode.is_failed for episode in episodes)
        await until(lambda: pool._places[0].is_serving)
        metrics = pool.take_metrics()
        assert metrics.pop("cluster/time_lost_s") > 0
        assert sum(metrics.pop(f"cluster/episodes_worker_{number}") for number in range(2)) == 6
        assert metrics == {
            "cluster/rollout_workers": 2.0,
            "cluster/restarts_rollout": 1.0,
            "cluster/episodes_lost": 3.0,
        }
        assert pids()[0] != before[0] and pids()[1] == before[1]
        # The one that took the place plays as well.
        assert all(
            e.num_restarts == 0
            for e in await play(there(pool, COUNTING, engine), played, make_limits())
        )
        assert not pool.take_metrics()["cluster/episodes_lost"]


async def test_a_worker_that_hangs_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pool_module, "_CHECK_EVERY_S", 0.1)
    monkeypatch.setattr(pool_module, "_HANGS_S", 3.0)
    engine = KeyedEngine(WORDS)
    async with workers(tmp_path, COUNTING) as pool:
        os.kill(pids()[0], signal.SIGSTOP)
        (episode,) = await play(
            there(pool, COUNTING, engine), specs(COUNTING, engine, 1), make_limits(max_restarts=1)
        )
        assert not episode.is_failed and episode.num_restarts == 1


async def test_an_episode_that_ends_its_workers_fails_and_is_not_scored(tmp_path: Path):
    engine = ScriptedEngine(["die"])
    async with workers(tmp_path, TROUBLE) as pool:
        participants = there(pool, TROUBLE, engine)
        (episode,) = await play(
            participants, specs(TROUBLE, engine, 1), make_limits(max_restarts=1)
        )
        assert episode.stop_reason is StopReason.ENV_ERROR and episode.reward is None
        assert "rollout-0 ended: it was killed by signal 9" in str(episode.error)
        assert episode.num_restarts == 1 and not episode.samples
        with pytest.raises(EngineDiedError, match="all 1 rollout workers have died"):
            await play(participants, specs(TROUBLE, engine, 1), make_limits(max_restarts=9))


class Refusing(FakeEngine):
    """Raises what it is told to."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def reply(self, session: FakeSession) -> str:
        raise self._error


@pytest.mark.parametrize(
    ("agent", "error", "raised"),
    [
        (PLAIN, EngineDiedError("no engine is left"), EngineDiedError),
        (PLAIN, KeyError("a bug of ours"), KeyError),
        (PLAIN | {"type": "own_classes:SilentAgent"}, KeyError("never asked"), AgentError),
    ],
)
async def test_what_ends_a_run_ends_it_from_a_worker_too(
    tmp_path: Path, agent: dict[str, Any], error: Exception, raised: type[Exception]
):
    players = Players("fakes:CountingEnv", agent)
    engine = Refusing(error)
    async with workers(tmp_path, players) as pool:
        with pytest.raises(raised):
            await play(there(pool, players, engine), specs(players, engine, 1), make_limits())


class Slow(FakeEngine):
    """Replies after a second, in which the clocks of episodes stand still or not."""

    def __init__(self, wait: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        super().__init__()
        self._wait = wait

    async def reply(self, session: FakeSession) -> str:
        with self._wait():
            await asyncio.sleep(1.0)
        return "add 3"


async def test_what_an_episode_waits_for_is_not_its_time_and_a_slow_engine_is(tmp_path: Path):
    limits = make_limits(max_seconds=0.7)
    async with workers(tmp_path, COUNTING) as pool:
        for wait, reason in (
            (stopped_clock, StopReason.SUCCESS),
            (contextlib.nullcontext, StopReason.TIMEOUT),
        ):
            engine = Slow(wait)
            (episode,) = await play(
                there(pool, COUNTING, engine), specs(COUNTING, engine, 1), limits
            )
            assert episode.stop_reason is reason
            assert all(session.is_closed for session in engine.sessions)


async def test_an_episode_that_nobody_waits_for_is_given_up(tmp_path: Path):
    engine = ScriptedEngine([asyncio.Event(), "add 3"])
    async with workers(tmp_path, COUNTING) as pool:
        playing = asyncio.create_task(
            play(there(pool, COUNTING, engine), specs(COUNTING, engine, 1), make_limits())
        )
        await until(lambda: bool(engine.sessions))
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        assert engine.sessions[0].is_closed and pool._places[0].num_sessions == 0
        free = KeyedEngine(WORDS)
        assert await play(there(pool, COUNTING, free), specs(COUNTING, free, 1), make_limits())
