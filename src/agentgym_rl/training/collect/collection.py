"""The groups that a training step learns from: collected, repeated on failure, kept, refilled.

`task_mix.py` chooses their tasks. The sampling noise of a step is a pure function of (seed, step).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym_rl.config import OnlineConfig
from agentgym_rl.errors import RunError
from agentgym_rl.garbage import rare_collections
from agentgym_rl.rollout.collect import all_of, collect_group, keep_groups
from agentgym_rl.rollout.episode import Participants
from agentgym_rl.rollout.limits import episode_limits
from agentgym_rl.rollout.statistics import has_spread
from agentgym_rl.training.collect.task_mix import TaskMix
from agentgym_rl.training.run_parts import RunEnv, RunParts
from agentgym_rl.types import Group, Task

logger = logging.getLogger(__name__)

PAUSES_S = (3.0, 15.0)
"""Waits before the groups of an environment that all failed are repeated."""

Horizons = Mapping[str, int]
"""The limit on rounds in each environment at a step, by label."""


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
    overlaps = False
    """Whether their replies may be, too."""

    def __init__(self, parts: RunParts) -> None:
        config = parts.config
        assert isinstance(config.algorithm, OnlineConfig), "an online algorithm"
        self._config, self._policy = config, parts.policy
        self._envs = {env.label: env for env in parts.envs}
        self._group_size = config.algorithm.group_size
        self._min_group_size = config.algorithm.min_group_size
        self._num_groups = config.training.tasks_per_step
        self._tasks = TaskMix(parts.envs, config)
        self._places = {label: self._places_of(env) for label, env in self._envs.items()}
        self._shared_places = asyncio.Semaphore(config.rollout.max_concurrency)
        self._on_episode = parts.listeners.on_episode

    @abstractmethod
    async def collect(self, step: int, max_rounds: Horizons) -> Collected:
        """Return the groups of a step; unless it overlaps no reply is under way when it returns.

        Where every group of an environment fails, these are repeated after a while, because a
        server may be restarting; then the run stops, since continuing would only hide the failure.
        """

    def state(self) -> dict[str, object]:
        """Return what a checkpoint keeps of the collector, in JSON types."""
        return self._tasks.state()

    def resume(self, step: int, state: Mapping[str, Any]) -> None:
        """Resume after `step`, at whose end `state` was this."""
        self._tasks.resume(state, num_taken=step * self._num_groups)

    async def aclose(self) -> None:  # noqa: B027 - a step that waits for all leaves nothing
        """End what is under way. Safe to repeat."""

    def _group(
        self, task: Task, noise: tuple[str | int, ...], max_rounds: Horizons
    ) -> Coroutine[object, object, Group]:
        """Return the work that collects the group of a task."""
        config, env = self._config, self._envs[task.env]
        limits = episode_limits(
            env.config,
            max_context=self._policy.max_context,
            max_rounds=max_rounds[env.label],
            picture_share=config.rollout.picture_share,
        )
        return collect_group(
            task,
            self._participants_of(env),
            limits,
            group_size=self._group_size,
            noise=(config.seed, *noise),
            temperature=config.rollout.temperature,
            places=[*self._places[env.label], self._shared_places],
            on_episode=self._on_episode,
        )

    def _participants_of(self, env: RunEnv) -> Participants:
        return env.participants

    def _places_of(self, env: RunEnv) -> list[asyncio.Semaphore]:
        """Return where the episodes of an environment wait, beyond where all wait."""
        own = env.config.rollout.max_concurrency
        return [asyncio.Semaphore(own)] if own < self._config.rollout.max_concurrency else []

    def _keep(self, groups: Sequence[Group]) -> list[Group]:
        return keep_groups(groups, min_size=self._min_group_size)

    def _failed_envs(self, groups: Sequence[Group]) -> set[str]:
        """Return the environments all of whose groups failed."""
        return {group.task.env for group in groups} - {g.task.env for g in self._keep(groups)}

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

    async def collect(self, step: int, max_rounds: Horizons) -> Collected:
        rollout, number = self._config.rollout, self._num_groups
        groups = await self._collect_enough(step, max_rounds)
        complete = self._keep(groups)
        num_first, num_complete, kept = len(groups), len(complete), self._to_learn_from(complete)
        for refill in range(1, rollout.max_refills + 1):
            missing = number - len(kept)
            if missing <= 0:
                break
            tasks = self._tasks.take_refill(step, refill, missing)
            more = await self._collect(dict(enumerate(tasks)), ("refill", step, refill), max_rounds)
            complete = self._keep(list(more.values()))
            num_complete += len(complete)
            groups, kept = groups + list(more.values()), kept + self._to_learn_from(complete)
        return Collected(
            groups,
            kept,
            num_refilled=len(groups) - num_first,
            metrics=self._tasks.metrics(),
            kept_share=self._kept_share(num_complete, len(kept)),
        )

    async def _collect_enough(self, step: int, max_rounds: Horizons) -> list[Group]:
        """Return the step's groups, of which in every environment at least one did not fail."""
        tasks = dict(enumerate(self._tasks.take(self._num_groups)))
        groups: dict[int, Group] = {}
        for pause_s in (*PAUSES_S, None):
            groups |= await self._collect(tasks, ("train", step), max_rounds)
            failed = self._failed_envs(list(groups.values()))
            if not failed:
                break
            tasks = {place: task for place, task in tasks.items() if task.env in failed}
            if pause_s is None:
                raise all_failed(step, [groups[place] for place in tasks])
            warn_of_failure(step, failed, pause_s)
            await asyncio.sleep(pause_s)
        return [groups[place] for place in sorted(groups)]

    async def _collect(
        self, tasks: Mapping[int, Task], noise: tuple[str | int, ...], max_rounds: Horizons
    ) -> dict[int, Group]:
        """Return the groups of tasks by their places, which are part of the noise."""
        works = [self._group(task, (*noise, place), max_rounds) for place, task in tasks.items()]
        with rare_collections():
            groups = await all_of(works)
        self._tasks.learn_from(groups, min_size=self._min_group_size)
        return dict(zip(tasks, groups, strict=True))


def warn_of_failure(step: int, envs: Iterable[str], pause_s: float) -> None:
    logger.warning(
        "every group of step %d failed (%s); again in %g s",
        step, ", ".join(sorted(envs)), pause_s,
    )  # fmt: skip


def all_failed(step: int, groups: Sequence[Group]) -> RunError:
    """Return the error of groups that failed every time."""
    errors = [episode.error for group in groups for episode in group.episodes if episode.error]
    envs = sorted({group.task.env for group in groups})
    return RunError(
        f"every group of step {step} failed, {len(PAUSES_S) + 1} times ({', '.join(envs)}); the "
        f"first failure: {errors[0] if errors else 'none recorded'}. Fix it and resume with "
        "--resume"
    )
