"""Trainers: one step after another. Those of online methods collect, learn, publish and store.

They know neither the environment, nor the model, nor the algorithm: learner, collector and
algorithm are handed to them (training/make.py makes the usual ones). Everything that decides a step
derives from (config, seed, step) or is in the checkpoint, so a run that is killed and resumed
writes the metrics of one that never stopped. One whose task is cancelled saves its last step first.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

from agentgym_rl.garbage import collect_garbage, rare_collections
from agentgym_rl.rollout.statistics import metrics_by_env
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.runs.folder import Metrics
from agentgym_rl.training.algorithms.base import Algorithm, TrainingSample
from agentgym_rl.training.checkpoint import CheckpointWriter, restore_checkpoint
from agentgym_rl.training.collect.collection import Collected, Collector, Horizons
from agentgym_rl.training.learner.group import LearnerGroup
from agentgym_rl.training.learner.score_recorder import ScoreRecorder
from agentgym_rl.training.learner.update_report import NOTHING_LEARNED, mean_report
from agentgym_rl.training.rounds import RunRounds
from agentgym_rl.training.run_parts import RunParts
from agentgym_rl.training.stopping import LastStep, unbroken
from agentgym_rl.types import Group

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_CHECK_EVERY_S = 1.0
"""How often a run that collects or evaluates looks whether its learner lives."""


class Trainer(ABC):
    """Runs the steps of a run, evaluates and writes checkpoints; a subclass says what a step is."""

    def __init__(self, parts: RunParts, *, learner: LearnerGroup) -> None:
        self._config, self._policy, self._run = parts.config, parts.policy, parts.folder
        self._evaluate, self._listeners = parts.evaluate, parts.listeners
        self._learner, self._setbacks = learner, parts.setbacks
        self._evaluated = parts.engine if parts.envs else None
        self._last_step = LastStep(self._write_checkpoint)
        self._checkpoints = CheckpointWriter(parts.folder, keep=parts.config.checkpoint.keep)
        self._collector_state: Mapping[str, object] = {}
        """After the last complete step; an abandoned step may have modified the live one since."""

    @abstractmethod
    async def _step(self, step: int) -> None:
        """Make a step, from its data to its line of metrics."""

    def restore(self) -> int:
        """Restore the newest checkpoint; return its step (0 without one)."""
        return restore_checkpoint(self._run, self._learner)

    async def train(self, *, after: int = 0) -> None:
        """Run the steps after step `after`, then save the model."""
        self._last_step.begin(after)
        self._setbacks.stands_at(after)
        try:
            with self._checkpoints:
                await self._run_steps(after)
        finally:
            self._tell_of_checkpoints()
        self._learner.fetch_weights()
        self._policy.save(self._run.model)

    def close(self) -> None:
        """End the learner's processes, where it has any."""
        self._learner.close()

    async def _run_steps(self, after: int) -> None:
        if self._is_stopped(after):
            return
        try:
            for step in range(after + 1, self._config.training.steps + 1):
                await self._step(step)
                if self._is_stopped(step):
                    self._save_last_step()
                    break
        except asyncio.CancelledError:
            self._save_last_step()
            raise

    def _is_stopped(self, step: int) -> bool:
        reason = self._listeners.stop_reason()
        if reason is not None:
            logger.warning("the run ends after step %d: %s", step, reason)
        return reason is not None

    def _save_last_step(self) -> None:
        self._checkpoints.wait()
        self._tell_of_checkpoints()
        self._last_step.save()

    def _tell(self, metrics: Metrics) -> None:
        """Tell listeners of a step, and of checkpoints that are complete by now."""
        self._listeners.on_step(metrics)
        self._tell_of_checkpoints()

    def _tell_of_checkpoints(self) -> None:
        """Tell listeners of each checkpoint once: before the next begins, which may remove it."""
        for path, step in self._checkpoints.take_complete():
            self._listeners.on_checkpoint(path, step)

    async def _evaluate_when_due(self, step: int) -> Metrics:
        if self._evaluate is None or not self._is_due(step, self._config.eval.every):
            return {}
        if self._evaluated is None or self._evaluated.reads_policy:
            self._learner.fetch_weights()
        return await self._while_learner_lives(self._evaluate(step))

    async def _while_learner_lives(self, work: Awaitable[_Result]) -> _Result:
        """Return what `work` returns; it is given up if a process of the learner dies meanwhile."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=_CHECK_EVERY_S))[0]:
                self._learner.check()
        except BaseException:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise
        return task.result()

    def _is_due(self, step: int, every: int) -> bool:
        """Return whether what happens every `every` steps, and at the last, happens now."""
        return step == self._config.training.steps or (every > 0 and step % every == 0)

    def _complete(self, step: int, metrics: Metrics) -> None:
        """Write the line of a step, whose weights the learner has."""
        self._run.append_metrics(metrics)
        self._last_step.complete(step)
        self._setbacks.stands_at(step)

    def _write_checkpoint(self, step: int) -> None:
        self._checkpoints.save(
            self._policy, self._learner, step=step, collector=self._collector_state
        )


class OnlineTrainer(Trainer):
    """Learns from its own episodes; a subclass says how."""

    def __init__(self, parts: RunParts, *, learner: LearnerGroup, collector: Collector) -> None:
        super().__init__(parts, learner=learner)
        self._engine, self._collector = parts.engine, collector
        self._take_env_metrics = parts.take_env_metrics
        self._thread: ThreadPoolExecutor | None = None
        self._rounds = RunRounds({env.label: env.config.rounds for env in parts.envs})
        self._history: list[Metrics] = []
        self._scores = ScoreRecorder()
        """Of the present step: what `learn` computed of tokens, for the episode store."""
        self._collected_at = 0.0
        """When the last step had its episodes, or the first began."""
        self._checkpoint_s = 0.0
        """What the run has waited for a checkpoint since the last line of metrics."""

    @abstractmethod
    def learn(self, step: int, collected: Collected) -> Metrics:
        """Update the policy; return metrics."""

    def restore(self) -> int:
        return restore_checkpoint(self._run, self._learner, self._collector)

    async def _run_steps(self, after: int) -> None:
        self._history = [line for line in self._run.read_metrics() if line["step"] <= after]
        self._rounds.follow(self._history)
        self._collected_at = time.monotonic()
        with (
            ThreadPoolExecutor(max_workers=1, thread_name_prefix="learner") as self._thread,
            rare_collections(),
        ):
            try:
                await super()._run_steps(after)
            finally:
                await self._collector.aclose()

    async def _step(self, step: int) -> None:
        started = time.monotonic()
        max_rounds = self._rounds.max_rounds(step)
        collected = await self._while_learner_lives(self._collector.collect(step, max_rounds))
        work = self._finish(step, collected, max_rounds=max_rounds, started=started)
        await unbroken(work)

    async def _finish(
        self, step: int, collected: Collected, *, max_rounds: Horizons, started: float
    ) -> None:
        """Do all of a step that comes after its episodes."""
        self._last_step.leave()
        groups, collected_at = collected.groups, time.monotonic()
        metrics: Metrics = {"step": step}
        metrics |= metrics_by_env(
            groups, max_rounds=max_rounds, discount=self._config.credit.discount
        )
        metrics["rollout/groups_dropped"] = float(len(groups) - len(collected.kept))
        metrics["rollout/groups_refilled"] = float(collected.num_refilled)
        metrics |= collected.metrics
        self._scores = ScoreRecorder()
        is_overlapped = self._collector.overlaps
        await self._apart(self._engine.begin_update if is_overlapped else self._engine.rest)
        metrics |= await self._apart(partial(self.learn, step, collected))
        updated = time.monotonic()
        if self._engine.reads_policy:
            await self._apart(self._learner.fetch_weights)
        await self._apart(partial(self._engine.publish, step))
        published = time.monotonic()
        metrics |= self._setbacks.hold(self._engine.take_metrics())
        await self._apart(partial(self._store, step, groups))
        stored = time.monotonic()
        metrics |= await self._evaluate_when_due(step)
        evaluated = time.monotonic()
        metrics["time/garbage_s"] = collect_garbage()
        metrics |= self._learner.take_rates() | self._setbacks.hold(self._take_env_metrics())
        metrics |= self._setbacks.take()
        # Replies that overlap have been sampled since the step before was collected.
        since = self._collected_at if is_overlapped else started
        self._collected_at = collected_at
        metrics["rollout/tokens_per_s"] = metrics["rollout/tokens"] / (collected_at - since)
        metrics["time/rollout_s"] = collected_at - started
        metrics["time/update_s"] = updated - collected_at
        metrics["time/publish_s"] = published - updated
        metrics["time/store_s"] = stored - published
        metrics["time/eval_s"] = evaluated - stored
        metrics["time/checkpoint_s"] = self._checkpoint_s
        metrics["time/step_s"] = time.monotonic() - started
        self._complete(step, metrics)
        self._history.append(metrics)
        self._rounds.follow([metrics])
        self._collector_state = self._collector.state()
        started = time.monotonic()
        if self._is_due(step, self._config.checkpoint.every):
            await self._apart(self._checkpoints.wait)
            self._tell_of_checkpoints()
            await self._apart(self._last_step.save)
        self._checkpoint_s = time.monotonic() - started
        self._tell(metrics)

    async def _apart(self, work: Callable[[], _Result]) -> _Result:
        """Do slow work, on a thread if episodes carry over: their environments answer meanwhile,
        and the event loop must listen before deadlines pass."""
        if not self._collector.carries_over:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _store(self, step: int, groups: Sequence[Group]) -> None:
        write_episodes(
            self._run.episodes,
            [group.episodes for group in groups],
            phase="train",
            step=step,
            scores_of=self._scores.scores_of,
        )
        self._scores = ScoreRecorder()


class RLTrainer(OnlineTrainer):
    """Online reinforcement learning: compares episodes."""

    def __init__(
        self, parts: RunParts, *, algorithm: Algorithm, learner: LearnerGroup, collector: Collector
    ) -> None:
        super().__init__(parts, learner=learner, collector=collector)
        self._algorithm = algorithm

    def learn(self, step: int, collected: Collected) -> Metrics:
        """Make the step's updates."""
        return self._update(step, collected) if collected.kept else NOTHING_LEARNED.metrics()

    def _update(self, step: int, collected: Collected) -> Metrics:
        """Make the step's updates; return the means of their metrics."""
        config, started = self._config, time.monotonic()
        self._algorithm.prepare(self._history)
        self._learner.schedule_after(config.num_updates_before(step))
        batch = self._algorithm.advantages(self._learner.score(collected.kept))
        scored_s = {"time/score_s": time.monotonic() - started}
        self._scores.add_advantages(item for group in batch.groups for item in group)
        parts = [
            [item for group in part for item in group]
            for part in split_evenly(batch.groups, config.training.updates_per_step)
        ]
        reports = [
            self._learner.update(
                part,
                self._algorithm.loss,
                updates_policy=self._algorithm.updates_policy(step),
                kept_share=collected.kept_share,
                observe=self._scores.record_pass,
            )
            for _ in range(config.training.epochs_per_step)
            for part in parts
            if any(item.num_tokens for item in part)
        ]
        if not reports:
            return batch.metrics | NOTHING_LEARNED.metrics() | scored_s
        # Before the first update, tokens that are not stale differ only by rounding.
        report = replace(mean_report(reports), logprob_diff=reports[0].logprob_diff)
        return report.metrics() | batch.metrics | scored_s


def split_evenly(
    groups: Sequence[list[TrainingSample]], num_parts: int
) -> list[Sequence[list[TrainingSample]]]:
    """Return the groups in order in `num_parts` parts whose sizes differ by at most one."""
    num_parts = max(1, min(num_parts, len(groups)))
    borders = [len(groups) * part // num_parts for part in range(num_parts + 1)]
    return [groups[start:end] for start, end in itertools.pairwise(borders)]
