"""RoundScheduler: the limit on rounds at each training step (ScalingInter-RL).

A pure function of the step and of the metrics that the run has logged, so a resumed run needs no
saved schedule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from statistics import fmean

from agentgym_rl.config import (
    AdaptiveRoundsConfig,
    FixedRoundsConfig,
    LinearRoundsConfig,
    RoundsConfig,
    StepRoundsConfig,
)
from agentgym_rl.runs.folder import Metrics

_MAX_TRUNCATED = 0.8
"""Truncation dominates when more than this share of a window's episodes is cut by a limit."""


class RoundScheduler(ABC):
    """Tells how many rounds an episode may have."""

    @abstractmethod
    def max_rounds(self, step: int, history: Sequence[Metrics] = ()) -> int:
        """Return the limit on rounds at training `step` (the first step is 1).

        `history` are the metrics of the steps before it, in order.
        """


class FixedRoundsScheduler(RoundScheduler):
    """The same limit throughout."""

    def __init__(self, config: FixedRoundsConfig) -> None:
        self._config = config

    def max_rounds(self, step: int, history: Sequence[Metrics] = ()) -> int:
        return self._config.rounds


class StepRoundsScheduler(RoundScheduler):
    """A limit that grows in stages of equal length; the last stage never ends."""

    def __init__(self, config: StepRoundsConfig) -> None:
        self._config = config

    def max_rounds(self, step: int, history: Sequence[Metrics] = ()) -> int:
        stage = min((step - 1) // self._config.steps_per_stage, len(self._config.rounds) - 1)
        return self._config.rounds[stage]


class LinearRoundsScheduler(RoundScheduler):
    """A limit that grows evenly: the first at step 1, the last from step `steps` on."""

    def __init__(self, config: LinearRoundsConfig) -> None:
        self._config = config

    def max_rounds(self, step: int, history: Sequence[Metrics] = ()) -> int:
        first, last = self._config.rounds
        if step >= self._config.steps:
            return last
        return first + (last - first) * (step - 1) // (self._config.steps - 1)


class AdaptiveRoundsScheduler(RoundScheduler):
    """A limit that grows when the present one has no more to teach.

    A stage ends when success has stopped rising over two windows of steps, or when a limit cuts
    most episodes of a window, so that hardly any shows how a task ends.
    """

    def __init__(self, config: AdaptiveRoundsConfig) -> None:
        self._config = config

    def max_rounds(self, step: int, history: Sequence[Metrics] = ()) -> int:
        rounds = self._config.rounds
        stage, begin = 0, 0
        for end in range(1, min(step, len(history) + 1)):
            if stage + 1 < len(rounds) and self._is_over(history[begin:end]):
                stage, begin = stage + 1, end
        return rounds[stage]

    def _is_over(self, steps: Sequence[Metrics]) -> bool:
        """Return whether a stage ends after these steps of it."""
        window = self._config.window
        if len(steps) < window:
            return False
        cut = fmean(line["rollout/truncated_rate"] for line in steps[-window:])
        if cut > _MAX_TRUNCATED:
            return True
        if len(steps) < 2 * window:
            return False
        success = [line["rollout/success_rate"] for line in steps[-2 * window :]]
        return fmean(success[window:]) - fmean(success[:window]) < self._config.min_gain


def make_scheduler(config: RoundsConfig) -> RoundScheduler:
    """Return the scheduler that the recipe's `[rounds]` describes."""
    match config:
        case StepRoundsConfig():
            return StepRoundsScheduler(config)
        case LinearRoundsConfig():
            return LinearRoundsScheduler(config)
        case AdaptiveRoundsConfig():
            return AdaptiveRoundsScheduler(config)
        case _:
            return FixedRoundsScheduler(config)
