"""RLTrainer: collect, compare, update, publish; and log, evaluate and checkpoint when due.

It knows neither the environment, nor the model, nor the algorithm. Everything that decides a step
derives from (config, seed, step) or is in the checkpoint, so a run that is killed and resumed
writes the metrics of one that never stopped.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from agentgym_rl.config import GRPOConfig, RunConfig
from agentgym_rl.errors import RunError
from agentgym_rl.models.loading import Policy
from agentgym_rl.rollout.collect import collect, keep_groups
from agentgym_rl.rollout.episode import Actors
from agentgym_rl.rollout.limits import episode_limits
from agentgym_rl.rollout.statistics import rollout_metrics
from agentgym_rl.rollout.tasks import EpochSampler
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.runs.folder import Metrics, RunFolder
from agentgym_rl.training.algorithms.base import TrainingSample
from agentgym_rl.training.algorithms.grpo import GRPO
from agentgym_rl.training.checkpoint import restore_learner, save_checkpoint
from agentgym_rl.training.learner import Learner
from agentgym_rl.training.rounds import make_scheduler
from agentgym_rl.types import Episode, Group, Task

logger = logging.getLogger(__name__)

_PAUSES_S = (3.0, 15.0)
"""Waits before a step whose episodes all failed is tried again."""

Evaluate = Callable[[int], Awaitable[Metrics]]


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who hears of progress; both are called from the trainer's own thread."""

    on_episode: Callable[[Episode], None] | None = None
    on_step: Callable[[Metrics], None] | None = None


class RLTrainer:
    """Online reinforcement learning over steps."""

    def __init__(
        self,
        config: RunConfig,
        policy: Policy,
        run: RunFolder,
        *,
        actors: Actors,
        tasks: Sequence[Task],
        evaluate: Evaluate | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        assert isinstance(config.algorithm, GRPOConfig), "an online algorithm"
        self._config, self._policy, self._run, self._actors = config, policy, run, actors
        self._tasks = EpochSampler(tasks, seed=config.seed)
        self._rounds = make_scheduler(config.rounds)
        self._algorithm = GRPO(config.algorithm)
        self._group_size = config.algorithm.group_size
        self._learner = Learner(policy, config.training, temperature=config.rollout.temperature)
        self._evaluate = evaluate
        self._listeners = listeners or Listeners()

    def restore(self) -> int:
        """Restore the optimiser from the newest checkpoint; return its step (0 without one)."""
        return restore_learner(self._run, self._learner)

    async def train(self, *, after: int = 0) -> None:
        """Run the steps after step `after`, then save the model."""
        for step in range(after + 1, self._config.training.steps + 1):
            await self._step(step)
        self._policy.save(self._run.model)

    async def _step(self, step: int) -> None:
        started, last = time.monotonic(), self._config.training.steps
        groups, kept = await self._collect_enough(step)
        collected = time.monotonic()
        max_rounds = self._rounds.max_rounds(step)
        metrics: Metrics = {"step": step, **rollout_metrics(groups, max_rounds=max_rounds)}
        metrics["rollout/groups_dropped"] = float(len(groups) - len(kept))
        metrics |= self._update(kept)
        updated = time.monotonic()
        self._actors.engine.publish(step)
        write_episodes(
            self._run.episodes, [group.episodes for group in groups], phase="train", step=step
        )
        if self._evaluate is not None and is_due(step, self._config.eval.every, last=last):
            metrics |= await self._evaluate(step)
        metrics["rollout/tokens_per_s"] = metrics["rollout/tokens"] / (collected - started)
        metrics["time/rollout_s"] = collected - started
        metrics["time/update_s"] = updated - collected
        metrics["time/step_s"] = time.monotonic() - started
        self._run.append_metrics(metrics)
        if is_due(step, self._config.checkpoint.every, last=last):
            keep = self._config.checkpoint.keep
            save_checkpoint(self._run, self._policy, self._learner, step=step, keep=keep)
        if self._listeners.on_step is not None:
            self._listeners.on_step(metrics)

    async def _collect_enough(self, step: int) -> tuple[list[Group], list[Group]]:
        """Return all groups of a step and those to learn from.

        A step in which everything fails is tried again after a while, because a server may be
        starting anew; then the run stops, since going on would only hide it.
        """
        for pause_s in (*_PAUSES_S, None):
            groups = await self._collect(step)
            kept = keep_groups(groups, min_size=self._config.rollout.min_group_size)
            if kept:
                return groups, kept
            if pause_s is not None:
                logger.warning("every group of step %d failed; again in %g s", step, pause_s)
                await asyncio.sleep(pause_s)
        errors = [episode.error for group in groups for episode in group.episodes if episode.error]
        raise RunError(
            f"every group of step {step} failed, {len(_PAUSES_S) + 1} times; the first failure: "
            f"{errors[0] if errors else 'none recorded'}. Mend it and go on with --resume"
        )

    async def _collect(self, step: int) -> list[Group]:
        config = self._config
        return await collect(
            self._tasks.take(step, config.training.tasks_per_step),
            self._actors,
            episode_limits(config, self._policy, max_rounds=self._rounds.max_rounds(step)),
            group_size=self._group_size,
            noise=(config.seed, "train", step),
            temperature=config.rollout.temperature,
            max_concurrency=config.rollout.max_concurrency,
            on_episode=self._listeners.on_episode,
        )

    def _update(self, groups: Sequence[Group]) -> Metrics:
        """Make the step's updates; return the means of their metrics."""
        samples = self._algorithm.advantages(groups)
        parts = split_evenly(samples, self._config.training.updates_per_step)
        reports = [
            self._learner.update([item for group in part for item in group], self._algorithm.loss)
            for part in parts
        ]
        metrics = {
            name: sum(report[name] for report in reports) / len(reports) for name in reports[0]
        }
        metrics["train/updates_skipped"] *= len(reports)
        # Before the first update engine and learner have the same weights: only rounding differs.
        metrics["train/logprob_diff"] = reports[0]["train/logprob_diff"]
        return metrics


def is_due(step: int, every: int, *, last: int) -> bool:
    """Return whether something that happens every `every` steps, and at the last, happens now."""
    return step == last or (every > 0 and step % every == 0)


def split_evenly(
    groups: Sequence[list[TrainingSample]], num_parts: int
) -> list[Sequence[list[TrainingSample]]]:
    """Return the groups in order in `num_parts` parts whose sizes differ by at most one."""
    num_parts = min(num_parts, len(groups))
    borders = [len(groups) * part // num_parts for part in range(num_parts + 1)]
    return [groups[start:end] for start, end in itertools.pairwise(borders)]
