"""GRPO that learns less from what did worse than its group than from what did better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

import agentgym_rl as ag
from agentgym_rl.config import GRPOConfig


class MyAlgorithmConfig(GRPOConfig):
    """GRPO's settings, and one more."""

    failure_weight: float = Field(default=0.5, ge=0)
    """What negative advantages are multiplied by; 1 is GRPO."""


class MyAlgorithm(ag.GRPO):
    """Weighs what did worse than its group. Settings, loss and the rest are GRPO's."""

    config_class = MyAlgorithmConfig

    def advantages(self, groups: Sequence[Sequence[ag.ScoredEpisode]]) -> ag.Batch:
        assert isinstance(self.config, MyAlgorithmConfig), "validated by config_class"
        weight = self.config.failure_weight
        batch = super().advantages(groups)
        samples = [
            [replace(sample, advantages=weighed(sample.advantages, weight)) for sample in group]
            for group in batch.groups
        ]
        return ag.Batch(samples, batch.metrics | {"train/failure_weight": weight})


def weighed(advantages: Sequence[float], weight: float) -> tuple[float, ...]:
    """Return advantages with the negative ones multiplied by `weight`."""
    return tuple(value if value > 0 else weight * value for value in advantages)
