"""What decides the rewards of a run's episodes: weights of named parts, and a reward function.

Without a function, weights apply in every round to the parts that the environment reports. With
one, they apply to its parts, and it sees the environment's reward unchanged. It is called once per
finished episode, and may be as slow as a judge over the network without holding up other episodes.
An episode whose function fails is a failed episode: counted, dropped, never scored 0.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Mapping
from dataclasses import replace

from agentgym_rl.config import RewardConfig, RunConfig
from agentgym_rl.envs.execution.thread_calls import (
    CallExpiredError,
    CallFailedError,
    CallThread,
    ThreadCaller,
)
from agentgym_rl.frozen import NOTHING
from agentgym_rl.rewards import RewardFunction, Rewarding, load_function, weighted, with_rewards
from agentgym_rl.types import Episode, StepResult, StopReason

logger = logging.getLogger(__name__)

_MAX_UNSEEN_EPISODES = 64
"""After this many episodes we warn of a weight whose part none of them had."""


def reward_timeout_s(config: RunConfig) -> float:
    """Return how long the reward function may take for an episode."""
    return max(of_env.env.timeout_s for of_env in config.environments.values())


class EpisodeRewards:
    """Rewards of rounds and of episodes. One for a run; used from its event loop."""

    def __init__(
        self,
        function: RewardFunction | None = None,
        *,
        weights: Mapping[str, float] = NOTHING,
        timeout_s: float = 30.0,
    ) -> None:
        self._function, self._weights, self._timeout_s = function, weights, timeout_s
        self._idle: list[ThreadCaller] = []
        self._has_failed = False
        self._unseen, self._num_episodes = set(weights), 0

    @classmethod
    def of(cls, config: RunConfig, function: RewardFunction | None = None) -> EpisodeRewards:
        """Return what a recipe asks for; `function` replaces the recipe's.

        Raises ConfigError for a function that does not exist.
        """
        return cls.of_section(config.reward, function, timeout_s=reward_timeout_s(config))

    @classmethod
    def of_section(
        cls, config: RewardConfig, function: RewardFunction | None = None, *, timeout_s: float
    ) -> EpisodeRewards:
        """Return what `[reward]` asks for, as `of` does."""
        if function is None and config.function:
            function = load_function(config.function, setting="reward.function")
        return cls(function, weights=config.weights, timeout_s=timeout_s)

    def of_round(self, result: StepResult) -> StepResult:
        """Return the result with its parts weighted, unless a function decides."""
        if self._function is not None or not self._weights or not result.reward_parts:
            return result
        return replace(result, reward=weighted(result.reward_parts, self._weights))

    async def of_episode(self, episode: Episode) -> Episode:
        """Return an episode that has just ended, with its final reward."""
        if episode.is_failed:
            return episode
        if self._function is not None:
            episode = await self._scored(self._function, episode)
        self._look_for_weighed_parts(episode)
        return episode

    async def _scored(self, function: RewardFunction, episode: Episode) -> Episode:
        deadline = asyncio.timeout(self._timeout_s)
        try:
            async with deadline:
                given = await self._ask(function, episode)
            return with_rewards(episode, given, weights=self._weights)
        except Exception as error:  # whatever a user's function raises
            if deadline.expired() or isinstance(error, CallExpiredError):
                reason = f"no reward within {self._timeout_s:g} s (env.timeout_s)"
            else:
                cause = error.cause if isinstance(error, CallFailedError) else error
                reason = f"{type(cause).__name__}: {cause}"
                if not self._has_failed:  # where it failed, once: the other errors are in episodes
                    self._has_failed = True
                    logger.warning("the reward function failed", exc_info=cause)
        return replace(
            episode,
            stop_reason=StopReason.REWARD_ERROR,
            reward=None,
            success=False,
            samples=(),
            error=f"the reward function failed for {episode.task.id}: {reason}",
        )

    async def _ask(self, function: RewardFunction, episode: Episode) -> Rewarding:
        """Call the function: on the event loop if it is async, else on a thread."""
        if inspect.iscoroutinefunction(function):
            given: object = function(episode)
        else:
            given = await self._on_thread(function, episode)
        if inspect.isawaitable(given):
            given = await given
        return given  # pyrefly: ignore[bad-return] - `with_rewards` looks at what it is

    async def _on_thread(self, function: RewardFunction, episode: Episode) -> object:
        """Return what a blocking function returns; a hanging one keeps its thread."""
        thread = self._idle.pop() if self._idle else ThreadCaller(CallThread("reward"))
        try:
            return await thread.call(function, episode, timeout_s=self._timeout_s)
        finally:
            if thread.is_busy:
                thread.stop()
            else:
                self._idle.append(thread)

    def _look_for_weighed_parts(self, episode: Episode) -> None:
        """Warn of weights without effect: a name is probably misspelt."""
        if not self._unseen:
            return
        self._num_episodes += 1
        self._unseen -= episode.reward_parts.keys()
        if self._unseen and self._num_episodes == _MAX_UNSEEN_EPISODES:
            known = ", ".join(sorted(episode.reward_parts)) or "none"
            logger.warning(
                "reward.weights of %s had no effect in %d episodes; parts of the last: %s",
                ", ".join(sorted(self._unseen)), self._num_episodes, known,
            )  # fmt: skip
            self._unseen.clear()
