"""TextCraft episodes that are played as often as a benchmark wants, here or by rollout workers, and
an engine whose replies are there at once."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import random
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from agentgym_rl.agents.agent import Agent
from agentgym_rl.agents.limits import Limits
from agentgym_rl.config import AgentConfig, EnvConfig, RewardConfig
from agentgym_rl.engines.base import Engine, EngineSession
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import RunError
from agentgym_rl.models.loading import Policy
from agentgym_rl.rollout.collect import collect
from agentgym_rl.rollout.episode import Participants, PlayEpisode, TokenPolicy
from agentgym_rl.rollout.workers.messages import WorkerEnv
from agentgym_rl.rollout.workers.pool import WorkersOrder, open_workers
from agentgym_rl.rollout.workers.remote import start_worker_here
from agentgym_rl.types import Completion, Episode, SamplingParams

SCENARIO = "textcraft"
NEW_TOKENS = 64
"""Most of a reply of an engine that takes no time."""
_AGENT = AgentConfig(format="direct")
"""There: the reply is the action, so that every round steps the environment."""


@dataclass(frozen=True, slots=True)
class EpisodeLoad:
    """What kind of episodes are played."""

    rounds: int
    reply_tokens: int = NEW_TOKENS
    format: str = _AGENT.format
    group_size: int = 1


class _InstantSession(EngineSession):
    """Says one of the engine's replies at once, as much of it as it may."""

    def __init__(self, key: int, replies: Sequence[tuple[int, ...]]) -> None:
        self._rng, self._replies = random.Random(key), replies

    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        await asyncio.sleep(0)  # other episodes go on meanwhile, as with any engine
        ids = self._rng.choice(self._replies)[: params.max_tokens]
        return Completion(ids, (0.0,) * len(ids), is_stopped=False, version=0)

    def close(self) -> None:
        """Nothing is held."""


class InstantEngine(Engine):
    """Takes no time and computes nothing: its replies are random words, made before."""

    def __init__(self, vocab_size: int) -> None:
        rng, words = random.Random(0), range(vocab_size)
        self._replies = [tuple(rng.choices(words, k=NEW_TOKENS)) for _ in range(1024)]

    def session(self, key: int) -> EngineSession:
        return _InstantSession(key, self._replies)

    def publish(self, version: int) -> None:
        """All versions say the same."""

    def close(self) -> None:
        """Nothing is held."""


class EpisodesAtOnce:
    """TextCraft episodes of an engine, as often as they are asked for."""

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        concurrency: int,
        load: EpisodeLoad,
        *,
        elsewhere: PlayEpisode | None = None,
    ) -> None:
        """`elsewhere` plays them; None: this process."""
        self._engine, self._policy, self._concurrency = engine, policy, concurrency
        self._load, self._elsewhere = load, elsewhere
        self._limits = Limits(load.rounds, load.reply_tokens, policy.max_context, max_seconds=600.0)
        self._num_played = 0

    async def play(self) -> tuple[list[Episode], float]:
        """Return the episodes that were whole, and the seconds it took."""
        load, num = self._load, -(-self._concurrency // self._load.group_size)
        async with LocalEnvSource(SCENARIO) as source:
            spec = await source.spec()
            tasks = (await source.tasks(spec.splits[0]))[:num]
            tasks = (tasks * -(-num // len(tasks)))[:num]
            agent = Agent(AgentConfig(format=load.format), spec)
            participants = Participants(
                source,
                agent,
                TokenPolicy(self._engine, self._policy.renderer),
                play_elsewhere=self._elsewhere,
            )
            started = time.perf_counter()
            groups = await collect(
                tasks, participants, self._limits, group_size=load.group_size,
                noise=("bench", self._num_played), temperature=1.0,
                max_concurrency=self._concurrency,
            )  # fmt: skip
            seconds = time.perf_counter() - started
        self._num_played += 1
        episodes = [episode for group in groups for episode in group.completed]
        if not episodes:
            raise RunError(f"every episode failed, the first with: {groups[0].episodes[0].error}")
        return episodes, seconds


def workers_s() -> float:
    """Return the processor seconds of all rollout workers up to now."""
    children = (child.pid for child in multiprocessing.active_children())
    times = (psutil.Process(pid).cpu_times() for pid in children if pid)
    return sum(time.user + time.system for time in times)


@contextlib.asynccontextmanager
async def rollout_workers(policy: Policy, num: int) -> AsyncIterator[PlayEpisode | None]:
    """Give what plays episodes on that many rollout workers; None where there is none."""
    if not num:
        yield None
        return

    async def find_address(env: int, place: int) -> tuple[str, str]:
        raise AssertionError("the environments are in the workers")

    env = WorkerEnv(EnvConfig(name=SCENARIO), _AGENT, policy.renderer, "")
    with tempfile.TemporaryDirectory(prefix="rollout-bench-") as folder:
        order = WorkersOrder(
            num, (env,), RewardConfig(), 30.0, Path(folder), start_worker_here, find_address
        )
        with contextlib.closing(await open_workers(order)) as pool:
            yield pool.player(0)
