"""The groups that a training step learns from: collected, repeated on failure, kept, refilled.

The tasks and the sampling noise of a step are a pure function of (seed, step); with
`rollout.rest_solved` also of what earlier steps have solved.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym_rl.agents.limits import Limits
from agentgym_rl.config import OnlineConfig
from agentgym_rl.errors import RunError
from agentgym_rl.rollout.collect import collect, keep_groups
from agentgym_rl.rollout.limits import episode_limits
from agentgym_rl.rollout.statistics import has_spread
from agentgym_rl.rollout.tasks import EpochSampler, RestingSampler
from agentgym_rl.training.run_parts import RunParts
from agentgym_rl.types import Group, Task

logger = logging.getLogger(__name__)

PAUSES_S = (3.0, 15.0)
"""Waits before a step whose episodes all failed is repeated."""


@dataclass(frozen=True, slots=True)
class Collected:
    """The groups of a step."""

    groups: list[Group]
    """All of them, failed episodes included."""
    kept: list[Group]
    """The groups to learn from, without their failed episodes."""
    num_refilled: int = 0
    """How many were collected in place of groups without spread."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics of how they were collected."""
    kept_share: float = 1.0
    """The share of the planned groups that was kept. Failed groups do not count as planned: failing
    does not depend on what they would have earned."""


class Collector(ABC):
    """Collects the groups of one step after another."""

    carries_over = False
    """Whether episodes may be under way while a step is learned from."""

    def __init__(self, parts: RunParts) -> None:
        config = parts.config
        assert isinstance(config.algorithm, OnlineConfig), "an online algorithm"
        assert parts.participants is not None, "an online run has participants"
        self._config, self._policy, self._participants = config, parts.policy, parts.participants
        self._group_size = config.algorithm.group_size
        self._min_group_size = config.algorithm.min_group_size
        self._num_groups = config.training.tasks_per_step
        self._tasks = EpochSampler(parts.tasks, seed=config.seed)
        self._on_episode = parts.listeners.on_episode

    @abstractmethod
    async def collect(self, step: int, *, max_rounds: int) -> Collected:
        """Return the groups of a step; no reply is under way when it returns.

        A step in which everything fails is repeated after a while, because a server may be
        restarting; then the run stops, since continuing would only hide the failure.
        """

    def state(self) -> dict[str, object]:
        """Return what a checkpoint keeps of the collector, in JSON types."""
        return {}

    def resume(self, step: int, state: Mapping[str, Any]) -> None:  # noqa: B027 - most keep nothing
        """Resume after `step`, at whose end `state` was this."""

    async def aclose(self) -> None:  # noqa: B027 - a step that waits for all leaves nothing
        """End what is under way. Safe to repeat."""

    def _limits(self, max_rounds: int) -> Limits:
        return episode_limits(
            self._config,
            max_context=self._policy.max_context,
            max_rounds=max_rounds,
            picture_share=self._config.rollout.picture_share,
        )

    def _keep(self, groups: Sequence[Group]) -> list[Group]:
        return keep_groups(groups, min_size=self._min_group_size)

    def _to_learn_from(self, kept: Sequence[Group]) -> list[Group]:
        """Return the groups to learn from, out of the groups with enough episodes."""
        rollout = self._config.rollout
        if not rollout.drop_without_spread and not rollout.max_refills:
            return list(kept)
        discount = self._config.credit.discount
        return [group for group in kept if has_spread(group, discount=discount)]

    def _kept_share(self, num_complete: int, num_kept: int) -> float:
        """Return the share of the planned groups that did not fail that is kept."""
        planned = min(self._num_groups, num_complete)
        return min(1.0, num_kept / planned) if num_kept else 1.0


class StepCollector(Collector):
    """A step waits for all of its groups, and with `rollout.max_refills` for groups that replace
    the ones without spread."""

    def __init__(self, parts: RunParts) -> None:
        super().__init__(parts)
        seed, rest = parts.config.seed, parts.config.rollout.rest_solved
        # A separate order: what refills take must not shift what later steps work on.
        self._refill_tasks = EpochSampler(parts.tasks, seed=-1 - seed)
        self._resting = RestingSampler(parts.tasks, seed=seed, rest=rest) if rest else None

    def state(self) -> dict[str, object]:
        return {"tasks": self._resting.state()} if self._resting else {}

    def resume(self, step: int, state: Mapping[str, Any]) -> None:
        if self._resting:
            self._resting.load_state(state["tasks"])

    async def collect(self, step: int, *, max_rounds: int) -> Collected:
        rollout, number = self._config.rollout, self._num_groups
        groups = await self._collect_enough(step, max_rounds)
        complete = self._keep(groups)
        num_first, num_complete, kept = len(groups), len(complete), self._to_learn_from(complete)
        for refill in range(1, rollout.max_refills + 1):
            missing = number - len(kept)
            if missing <= 0:
                break
            tasks = self._tasks_of_refill(step, refill, missing)
            more = await self._collect(tasks, ("refill", step, refill), max_rounds)
            complete = self._keep(more)
            num_complete += len(complete)
            groups, kept = groups + more, kept + self._to_learn_from(complete)
        metrics = dict[str, float]()
        if self._resting:
            metrics["rollout/tasks_resting"] = float(self._resting.num_resting)
        return Collected(
            groups,
            kept,
            num_refilled=len(groups) - num_first,
            metrics=metrics,
            kept_share=self._kept_share(num_complete, len(kept)),
        )

    async def _collect_enough(self, step: int, max_rounds: int) -> list[Group]:
        """Return the step's groups, at least one of which did not fail."""
        number = self._num_groups
        tasks = self._resting.take(number) if self._resting else self._tasks.take(step, number)
        groups: list[Group] = []
        for pause_s in (*PAUSES_S, None):
            groups = await self._collect(tasks, ("train", step), max_rounds)
            if self._keep(groups):
                return groups
            if pause_s is not None:
                logger.warning("every group of step %d failed; again in %g s", step, pause_s)
                await asyncio.sleep(pause_s)
        raise all_failed(step, groups)

    def _tasks_of_refill(self, step: int, refill: int, missing: int) -> list[Task]:
        if self._resting:
            return self._resting.take(missing)
        place = (step - 1) * self._config.rollout.max_refills + refill
        return self._refill_tasks.take(place, self._num_groups)[:missing]

    async def _collect(
        self, tasks: Sequence[Task], noise: tuple[str | int, ...], max_rounds: int
    ) -> list[Group]:
        config = self._config
        groups = await collect(
            tasks,
            self._participants,
            self._limits(max_rounds),
            group_size=self._group_size,
            noise=(config.seed, *noise),
            temperature=config.rollout.temperature,
            max_concurrency=config.rollout.max_concurrency,
            on_episode=self._on_episode,
        )
        if self._resting:
            self._resting.let_rest(group.task for group in groups if group.is_solved)
        return groups


def all_failed(step: int, groups: Sequence[Group]) -> RunError:
    """Return the error of a step that failed every time."""
    errors = [episode.error for group in groups for episode in group.episodes if episode.error]
    return RunError(
        f"every group of step {step} failed, {len(PAUSES_S) + 1} times; the first failure: "
        f"{errors[0] if errors else 'none recorded'}. Fix it and resume with --resume"
    )
