"""One episode: the agent acts, the environment answers, until one of them or a limit ends it.

A failure of the infrastructure is recorded as such and the episode is started anew, with a fresh
environment and the same sampling noise, so that it is the episode it would have been. It never
becomes a reward. All starts share the episode's time: one that has run out of it would, with the
same noise, only run out of it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import dataclass, field
from typing import Protocol

from agentgym_rl.agents.agent import Agent, playing
from agentgym_rl.agents.desk import AttemptOver
from agentgym_rl.engines.base import Engine, EngineDiedError, TextEngine
from agentgym_rl.engines.sampling import session_key
from agentgym_rl.envs.client import EnvSource
from agentgym_rl.errors import AgentError, EngineError, EnvError, PromptTooLongError
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.rollout.clock import EpisodeClock, running_clock
from agentgym_rl.rollout.desk import EpisodeDesk
from agentgym_rl.rollout.limits import Limits
from agentgym_rl.rollout.rewards import EpisodeRewards
from agentgym_rl.rollout.text_desk import TextDesk
from agentgym_rl.rollout.token_desk import TokenDesk
from agentgym_rl.types import Episode, StopReason, Task

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.2
"""Before the second attempt at an episode; four times as long before the third."""


@dataclass(frozen=True, slots=True)
class EpisodeRequest:
    """Which episode to run; `noise` tells this collection's sampling noise from any other's."""

    task: Task
    sample_index: int
    noise: tuple[str | int, ...]
    temperature: float = 1.0

    @property
    def key(self) -> int:
        return session_key(*self.noise, self.task.id, self.sample_index)


class Cast(Protocol):
    """Who takes part in every episode of a collection, whatever the policy is."""

    @property
    def source(self) -> EnvSource: ...

    @property
    def agent(self) -> Agent: ...

    @property
    def rewards(self) -> EpisodeRewards: ...

    def desk(self, request: EpisodeRequest, limits: Limits) -> EpisodeDesk:
        """Return the desk of one start of an episode; the caller closes it."""
        ...


@dataclass(frozen=True, slots=True)
class Actors:
    """A cast whose policy is an engine that tells tokens."""

    source: EnvSource
    engine: Engine
    agent: Agent
    renderer: ChatRenderer
    rewards: EpisodeRewards = field(default_factory=EpisodeRewards)

    def desk(self, request: EpisodeRequest, limits: Limits) -> EpisodeDesk:
        return TokenDesk(
            request.task,
            engine=self.engine,
            renderer=self.renderer,
            limits=limits,
            key=request.key,
            temperature=request.temperature,
        )


@dataclass(frozen=True, slots=True)
class TextActors:
    """A cast whose policy is an endpoint that tells text alone; nothing can be learned from it."""

    source: EnvSource
    engine: TextEngine
    agent: Agent
    rewards: EpisodeRewards = field(default_factory=EpisodeRewards)

    def desk(self, request: EpisodeRequest, limits: Limits) -> EpisodeDesk:
        return TextDesk(
            request.task,
            engine=self.engine,
            limits=limits,
            key=request.key,
            temperature=request.temperature,
        )


async def run_episode(request: EpisodeRequest, actors: Cast, limits: Limits) -> Episode:
    """Run one episode to its end; a failed one is started up to `limits.max_attempts` times.

    Within `limits.max_seconds`, which all starts share (the short pauses in between are on top).
    """
    attempt, seconds_left = 0, limits.max_seconds
    while True:
        attempt += 1
        run = _EpisodeRun(request, actors, limits)
        await run.to_end(seconds_left)
        seconds_left = max(0.0, seconds_left - run.seconds)
        episode = run.record(num_attempts=attempt)
        if not episode.is_failed or run.is_final or attempt == limits.max_attempts:
            return episode
        logger.warning(
            "episode %s failed (%s), attempt %d of %d: %s",
            request.task.id, episode.stop_reason, attempt, limits.max_attempts, episode.error,
        )  # fmt: skip
        # What failed may be starting anew; with jitter, so that all do not come back together.
        await asyncio.sleep(_FIRST_PAUSE_S * 4 ** (attempt - 1) * random.uniform(1.0, 1.5))


class _EpisodeRun:
    """One start of an episode."""

    def __init__(self, request: EpisodeRequest, actors: Cast, limits: Limits) -> None:
        self._request, self._actors, self._limits = request, actors, limits
        self._desk = actors.desk(request, limits)
        self._failure: StopReason | None = None
        self._error: str | None = None
        self._clock: EpisodeClock | None = None
        self.is_final = False
        """Whether another start would fail in the same way."""

    @property
    def seconds(self) -> float:
        return self._clock.seconds if self._clock is not None else 0.0

    async def to_end(self, max_seconds: float) -> None:
        """Run until the episode has a stop reason.

        Only cancellation, AgentError and EngineDiedError escape: other episodes would fare alike.
        """
        try:
            async with running_clock(max_seconds) as self._clock:
                client = await self._actors.source.open()
                try:
                    self._desk.connect(client, self._actors.rewards)
                    await self._play()
                finally:
                    await client.close()
        except TimeoutError:
            self._failure = StopReason.TIMEOUT
            self._error = f"no end within rollout.max_seconds={self._limits.max_seconds:g}"
            self.is_final = True
        except EnvError as error:
            self._failure, self._error = StopReason.ENV_ERROR, str(error)
            self.is_final = isinstance(error, PromptTooLongError)
        except EngineDiedError:
            raise
        except EngineError as error:
            self._failure, self._error = StopReason.ENGINE_ERROR, str(error)
        finally:
            self._desk.close()

    def record(self, *, num_attempts: int) -> Episode:
        desk, failure = self._desk, self._failure
        return Episode(
            task=self._request.task,
            sample_index=self._request.sample_index,
            stop_reason=failure or desk.stop_reason or StopReason.TERMINATED,
            reward=None if failure else desk.reward,
            success=desk.has_succeeded and not failure,
            rounds=tuple(desk.rounds),
            messages=tuple(desk.messages),
            samples=() if failure else desk.samples(),
            seconds=self.seconds,
            num_attempts=num_attempts,
            error=self._error,
            usage=desk.usage,
            num_replies_cut=desk.num_replies_cut,
        )

    async def _play(self) -> None:
        agent = self._actors.agent
        # AttemptOver: the agent leaves it to us, and the desk knows the reason.
        with playing(agent), contextlib.suppress(AttemptOver):
            await agent.play(self._desk)
        if not self._desk.has_replies:
            raise AgentError(f"{agent.name}.play ended without asking the policy for anything")
