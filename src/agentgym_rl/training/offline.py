"""What training on fixed data shares. Which items a step learns from depends only on seed and step,
so a resumed run continues as if it had never stopped.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from agentgym_rl.rollout.tasks import EpochSampler
from agentgym_rl.runs.folder import Metrics
from agentgym_rl.training.learner.group import LearnerGroup
from agentgym_rl.training.run_parts import RunParts
from agentgym_rl.training.stopping import unbroken
from agentgym_rl.training.trainer import Trainer

_Item = TypeVar("_Item")


class OfflineTrainer(Trainer, Generic[_Item]):
    """Goes through items in a new random order every epoch, one update per step."""

    def __init__(
        self, parts: RunParts, items: Sequence[_Item], *, learner: LearnerGroup, batch_size: int
    ) -> None:
        super().__init__(parts, learner=learner)
        self._items = EpochSampler(items, seed=parts.config.seed)
        self._batch_size = min(batch_size, len(items))

    @abstractmethod
    def update(self, batch: Sequence[_Item]) -> Metrics:
        """Make one update; return its metrics."""

    async def _step(self, step: int) -> None:
        await unbroken(self._whole_step(step))

    async def _whole_step(self, step: int) -> None:
        started = time.monotonic()
        self._last_step.leave()
        batch = self._items.take(step, self._batch_size)
        metrics: Metrics = {"step": step, **self.update(batch)}
        metrics |= self._learner.take_rates()
        metrics["time/update_s"] = time.monotonic() - started
        metrics |= await self._evaluate_when_due(step)
        metrics["time/step_s"] = time.monotonic() - started
        self._complete(step, metrics | self._setbacks.take())
        if self._is_due(step, self._config.checkpoint.every):
            self._save_last_step()
        self._tell(metrics)
