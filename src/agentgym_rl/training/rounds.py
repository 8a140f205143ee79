"""RoundScheduler: the limit on rounds as a pure function of the training step (ScalingInter-RL)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from agentgym_rl.config import FixedRoundsConfig, StepRoundsConfig


class RoundScheduler(ABC):
    """Tells how many rounds an episode may have."""

    @abstractmethod
    def max_rounds(self, step: int) -> int:
        """Return the limit on rounds at training `step` (the first step is 1)."""


class FixedRoundsScheduler(RoundScheduler):
    """The same limit throughout."""

    def __init__(self, config: FixedRoundsConfig) -> None:
        self._config = config

    def max_rounds(self, step: int) -> int:
        return self._config.rounds


class StepRoundsScheduler(RoundScheduler):
    """A limit that grows in stages of equal length; the last stage never ends."""

    def __init__(self, config: StepRoundsConfig) -> None:
        self._config = config

    def max_rounds(self, step: int) -> int:
        stage = min((step - 1) // self._config.steps_per_stage, len(self._config.rounds) - 1)
        return self._config.rounds[stage]


def make_scheduler(config: FixedRoundsConfig | StepRoundsConfig) -> RoundScheduler:
    """Return the scheduler that the recipe's `[rounds]` describes."""
    if isinstance(config, StepRoundsConfig):
        return StepRoundsScheduler(config)
    return FixedRoundsScheduler(config)
