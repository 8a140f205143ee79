"""What training from a fixed set of data shares: batches, metrics, evaluation, checkpoints.

Which items a step learns from is a pure function of (seed, step), so a resumed run continues as if
it had never stopped.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from agentgym_rl.rollout.tasks import EpochSampler
from agentgym_rl.runs.folder import Metrics
from agentgym_rl.training.checkpoint import restore_learner, save_checkpoint
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.run_parts import RunParts
from agentgym_rl.training.stopping import LastStep, unbroken
from agentgym_rl.training.trainer import is_due

_Item = TypeVar("_Item")


class OfflineTrainer(ABC, Generic[_Item]):
    """Goes through items in a new random order every epoch, one update per step."""

    def __init__(
        self, parts: RunParts, items: Sequence[_Item], *, learner: Learner, batch_size: int
    ) -> None:
        self._config, self._policy, self._run = parts.config, parts.policy, parts.folder
        self._items = EpochSampler(items, seed=parts.config.seed)
        self._batch_size = min(batch_size, len(items))
        self._learner = learner
        self._evaluate, self._listeners = parts.evaluate, parts.listeners
        self._last_step = LastStep(self._write_checkpoint)

    @abstractmethod
    def update(self, batch: Sequence[_Item]) -> Metrics:
        """Make one update; return its metrics."""

    def restore(self) -> int:
        """Restore the learner from the newest checkpoint; return its step (0 without one)."""
        return restore_learner(self._run, self._learner)

    async def train(self, *, after: int = 0) -> None:
        """Run the steps after step `after`, then save the model."""
        self._last_step.begin(after)
        try:
            for step in range(after + 1, self._config.training.steps + 1):
                await unbroken(self._step(step))
                if self._listeners.should_stop():
                    self._last_step.save()
                    break
        except asyncio.CancelledError:
            self._last_step.save()
            raise
        self._policy.save(self._run.model)

    async def _step(self, step: int) -> None:
        started, config, last = time.monotonic(), self._config, self._config.training.steps
        self._last_step.leave()
        batch = self._items.take(step, self._batch_size)
        metrics: Metrics = {"step": step, **self.update(batch)}
        metrics |= self._learner.take_rates()
        metrics["time/update_s"] = time.monotonic() - started
        if self._evaluate is not None and is_due(step, config.eval.every, last=last):
            metrics |= await self._evaluate(step)
        metrics["time/step_s"] = time.monotonic() - started
        self._run.append_metrics(metrics)
        self._last_step.complete(step)
        if is_due(step, config.checkpoint.every, last=last):
            self._last_step.save()
        if self._listeners.on_step is not None:
            self._listeners.on_step(metrics)

    def _write_checkpoint(self, step: int) -> None:
        keep = self._config.checkpoint.keep
        save_checkpoint(self._run, self._policy, self._learner, step=step, keep=keep)
