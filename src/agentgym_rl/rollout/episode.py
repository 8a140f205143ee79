"""One episode: the agent acts, the environment answers, until one of them or a limit ends it.

A failure of the infrastructure is recorded as such and the episode is started anew, with a fresh
environment and the same sampling noise. It never becomes a reward.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass

from agentgym_rl.agents.agent import Agent
from agentgym_rl.engines.base import Engine, EngineSession
from agentgym_rl.engines.sampling import session_key
from agentgym_rl.envs.client.base import EnvClient, EnvSource
from agentgym_rl.errors import EngineError, EnvError
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.rollout.handler import RolloutHandler
from agentgym_rl.types import Episode, Round, SamplingParams, StepResult, StopReason, Task

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.2
"""Before the second attempt at an episode; four times as long before the third."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an episode may use."""

    max_rounds: int
    max_tokens_per_round: int
    max_tokens: int
    max_seconds: float
    max_invalid_actions: int = 0
    """Invalid actions in a row that end the episode; 0 for no limit."""
    max_attempts: int = 1


@dataclass(frozen=True, slots=True)
class Actors:
    """Who takes part in every episode of a collection."""

    source: EnvSource
    engine: Engine
    agent: Agent
    renderer: ChatRenderer


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


async def run_episode(request: EpisodeRequest, actors: Actors, limits: Limits) -> Episode:
    """Run one episode to its end; a failed one is started up to `limits.max_attempts` times."""
    attempt = 0
    while True:
        attempt += 1
        run = _EpisodeRun(request, actors, limits)
        await run.to_end()
        episode = run.record(num_attempts=attempt)
        if not episode.is_failed or attempt == limits.max_attempts:
            return episode
        logger.warning(
            "episode %s failed (%s), attempt %d of %d: %s",
            request.task.id, episode.stop_reason, attempt, limits.max_attempts, episode.error,
        )  # fmt: skip
        # What failed may be starting anew; with jitter, so that all do not come back together.
        await asyncio.sleep(_FIRST_PAUSE_S * 4 ** (attempt - 1) * random.uniform(1.0, 1.5))


class _EpisodeRun:
    """The state of one attempt."""

    def __init__(self, request: EpisodeRequest, actors: Actors, limits: Limits) -> None:
        self._request, self._actors, self._limits = request, actors, limits
        self._handler = RolloutHandler()
        self._rounds: list[Round] = []
        self._error: str | None = None
        self._success = False
        self._started = time.monotonic()

    async def to_end(self) -> None:
        """Run until the episode has a stop reason; only cancellation escapes."""
        session = self._actors.engine.session(self._request.key)
        try:
            async with asyncio.timeout(self._limits.max_seconds):
                client = await self._actors.source.open()
                try:
                    reason = await self._play(client, session)
                finally:
                    await client.close()
        except TimeoutError:
            reason, self._error = StopReason.TIMEOUT, f"no end within {self._limits.max_seconds} s"
        except EnvError as error:
            reason, self._error = StopReason.ENV_ERROR, str(error)
        except EngineError as error:
            reason, self._error = StopReason.ENGINE_ERROR, str(error)
        finally:
            session.close()
        self._handler.finish(reason)

    def record(self, *, num_attempts: int) -> Episode:
        reason = self._handler.status
        assert reason is not None, "only an ended episode is recorded"
        return Episode(
            task=self._request.task,
            sample_index=self._request.sample_index,
            stop_reason=reason,
            reward=None if reason.is_failure else self._handler.reward,
            success=self._success and not reason.is_failure,
            rounds=tuple(self._rounds),
            messages=tuple(self._handler.messages),
            samples=() if reason.is_failure else (self._handler.sample(),),
            seconds=time.monotonic() - self._started,
            num_attempts=num_attempts,
            error=self._error,
        )

    async def _play(self, client: EnvClient, session: EngineSession) -> StopReason:
        handler, renderer = self._handler, self._actors.renderer
        text = self._actors.agent.first_prompt(await client.reset(self._request.task))
        new_ids = renderer.prompt(text)
        if len(new_ids) >= self._limits.max_tokens:
            raise EnvError(
                f"the prompt of {self._request.task.id} has {len(new_ids)} tokens, which leaves no "
                f"room for a reply within {self._limits.max_tokens}; raise rollout.max_tokens, or "
                "use a model with a longer context"
            )
        handler.append_prompt(new_ids, text)
        while True:
            result = await self._play_round(new_ids, client, session)
            reason = self._stop_reason(result)
            if reason is not None:
                return reason
            new_ids = renderer.turn(result.observation, reply_ids=handler.token_ids)
            if len(handler) + len(new_ids) >= self._limits.max_tokens:
                return StopReason.MAX_TOKENS
            handler.append_observation(new_ids, result.observation)

    async def _play_round(
        self, new_ids: list[int], client: EnvClient, session: EngineSession
    ) -> StepResult:
        """Sample a reply, act on it, and record the round."""
        room = self._limits.max_tokens - len(self._handler)
        params = SamplingParams(
            self._request.temperature, min(self._limits.max_tokens_per_round, room)
        )
        completion = await session.generate(new_ids, params)
        reply = self._actors.renderer.decode_reply(completion.token_ids)
        self._handler.append_reply(completion, reply)
        parsed = self._actors.agent.parse(reply)
        if parsed.action is None:
            result = StepResult(parsed.complaint, valid_action=False)
        else:
            result = await client.step(parsed.action)
        self._handler.add_reward(result.reward)
        self._rounds.append(
            Round(reply, parsed.action, result.observation, result.reward, result.valid_action)
        )
        return result

    def _stop_reason(self, result: StepResult) -> StopReason | None:
        """Return why the episode ends after this round, or None if it goes on."""
        limits = self._limits
        if result.success:
            self._success = True
            return StopReason.SUCCESS
        if result.terminated:
            return StopReason.TERMINATED
        if result.truncated or len(self._rounds) >= limits.max_rounds:
            return StopReason.MAX_ROUNDS
        if (
            limits.max_invalid_actions
            and self._num_invalid_in_a_row() >= limits.max_invalid_actions
        ):
            return StopReason.INVALID_ACTIONS
        return StopReason.MAX_TOKENS if len(self._handler) >= limits.max_tokens else None

    def _num_invalid_in_a_row(self) -> int:
        count = 0
        for round_ in reversed(self._rounds):
            if round_.valid_action:
                break
            count += 1
        return count
