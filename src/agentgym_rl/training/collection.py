"""The groups that a training step learns from: collected, retried, kept, refilled.

Which tasks and which sampling noise a step uses is a pure function of (seed, step).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentgym_rl.config import OnlineConfig, RunConfig
from agentgym_rl.errors import RunError
from agentgym_rl.models.loading import Policy
from agentgym_rl.rollout.collect import collect, keep_groups
from agentgym_rl.rollout.episode import Actors
from agentgym_rl.rollout.limits import episode_limits
from agentgym_rl.rollout.statistics import has_spread
from agentgym_rl.rollout.tasks import EpochSampler
from agentgym_rl.types import Episode, Group, Task

logger = logging.getLogger(__name__)

_PAUSES_S = (3.0, 15.0)
"""Waits before a step whose episodes all failed is tried again."""


@dataclass(frozen=True, slots=True)
class Collected:
    """The groups of a step."""

    groups: list[Group]
    """All of them, failed episodes included."""
    kept: list[Group]
    """Those to learn from, without their failed episodes."""
    num_refilled: int = 0
    """How many were collected in place of groups without spread."""


class StepCollector:
    """Collects the groups of one step after another."""

    def __init__(
        self,
        config: RunConfig,
        policy: Policy,
        actors: Actors,
        tasks: Sequence[Task],
        *,
        on_episode: Callable[[Episode], None] | None = None,
    ) -> None:
        assert isinstance(config.algorithm, OnlineConfig), "an online algorithm"
        self._config, self._policy, self._actors = config, policy, actors
        self._group_size = config.algorithm.group_size
        self._tasks = EpochSampler(tasks, seed=config.seed)
        # An order of its own: what refills take must not shift what later steps work on.
        self._refill_tasks = EpochSampler(tasks, seed=-1 - config.seed)
        self._on_episode = on_episode

    async def collect(self, step: int, *, max_rounds: int) -> Collected:
        """Return the groups of a step; with `rollout.max_refills` only those with spread are kept.

        A step in which everything fails is tried again after a while, because a server may be
        starting anew; then the run stops, since going on would only hide it.
        """
        rollout, number = self._config.rollout, self._config.training.tasks_per_step
        first = await self._collect_enough(step, max_rounds)
        if not rollout.max_refills:
            return first
        groups, kept = first.groups, [group for group in first.kept if has_spread(group)]
        for refill in range(1, rollout.max_refills + 1):
            missing = number - len(kept)
            if missing <= 0:
                break
            place = (step - 1) * rollout.max_refills + refill
            tasks = self._refill_tasks.take(place, number)[:missing]
            more = await self._collect(tasks, ("refill", step, refill), max_rounds)
            fresh = keep_groups(more, min_size=rollout.min_group_size)
            groups, kept = groups + more, kept + [group for group in fresh if has_spread(group)]
        return Collected(groups, kept, num_refilled=len(groups) - len(first.groups))

    async def _collect_enough(self, step: int, max_rounds: int) -> Collected:
        tasks = self._tasks.take(step, self._config.training.tasks_per_step)
        groups: list[Group] = []
        for pause_s in (*_PAUSES_S, None):
            groups = await self._collect(tasks, ("train", step), max_rounds)
            kept = keep_groups(groups, min_size=self._config.rollout.min_group_size)
            if kept:
                return Collected(groups, kept)
            if pause_s is not None:
                logger.warning("every group of step %d failed; again in %g s", step, pause_s)
                await asyncio.sleep(pause_s)
        errors = [episode.error for group in groups for episode in group.episodes if episode.error]
        raise RunError(
            f"every group of step {step} failed, {len(_PAUSES_S) + 1} times; the first failure: "
            f"{errors[0] if errors else 'none recorded'}. Mend it and go on with --resume"
        )

    async def _collect(
        self, tasks: Sequence[Task], noise: tuple[str | int, ...], max_rounds: int
    ) -> list[Group]:
        config = self._config
        return await collect(
            tasks,
            self._actors,
            episode_limits(config, self._policy, max_rounds=max_rounds),
            group_size=self._group_size,
            noise=(config.seed, *noise),
            temperature=config.rollout.temperature,
            max_concurrency=config.rollout.max_concurrency,
            on_episode=self._on_episode,
        )
