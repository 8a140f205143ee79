"""RoundScheduler: the limit on rounds at each training step (ScalingInter-RL).

A pure function of the step and of the metrics that the run has logged, so a resumed run needs no
saved schedule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType
from typing import ClassVar

from agentgym_rl.config import (
    AdaptiveRoundsConfig,
    FixedRoundsConfig,
    RoundsBaseConfig,
    StepRoundsConfig,
)
from agentgym_rl.lookup import load_class
from agentgym_rl.rollout.statistics import metrics_of_env
from agentgym_rl.runs.folder import Metrics

_MAX_TRUNCATED = 0.8
"""The horizon is too short when it ends more than this share of a window's episodes."""
_MIN_GAIN = 0.01
"""Success is saturated when a window gains less than this on the window before."""


class RoundScheduler(ABC):
    """Chooses the horizon of a step; `Interaction` (agents/interaction.py) enforces it.

    `rounds.type = "module:Class"` names a user's subclass.
    """

    config_class: ClassVar[type[RoundsBaseConfig]] = RoundsBaseConfig
    """The settings of the class, which validate `[rounds]` of a recipe."""

    def __init__(self, config: RoundsBaseConfig) -> None:  # noqa: B027 - some have no settings
        """`config` is an instance of the class's `config_class`."""

    @abstractmethod
    def max_rounds(self, step: int, history: Sequence[Metrics] = ()) -> int:
        """Return the limit on rounds at training `step` (the first step is 1).

        `history` are the metrics of the steps before it, in order.
        """


class FixedRoundsScheduler(RoundScheduler):
    """The same limit throughout."""

    config_class = FixedRoundsConfig

    def __init__(self, config: FixedRoundsConfig) -> None:
        super().__init__(config)
        self._config = config

    def max_rounds(self, step: int, history: Sequence[Metrics] = ()) -> int:
        return self._config.rounds


class StepRoundsScheduler(RoundScheduler):
    """A limit that grows in stages of equal length; the last stage never ends."""

    config_class = StepRoundsConfig

    def __init__(self, config: StepRoundsConfig) -> None:
        super().__init__(config)
        self._config = config

    def max_rounds(self, step: int, history: Sequence[Metrics] = ()) -> int:
        stage = min((step - 1) // self._config.steps_per_stage, len(self._config.rounds) - 1)
        return self._config.rounds[stage]


class AdaptiveRoundsScheduler(RoundScheduler):
    """A limit that grows when the present one has nothing more to teach.

    A stage ends when success stops rising from one window of steps to the next, or when the horizon
    ends most episodes of a window, so that few show how a task ends. Episodes that a full context
    or invalid actions end do not count: more rounds would not help them.
    """

    config_class = AdaptiveRoundsConfig

    def __init__(self, config: AdaptiveRoundsConfig) -> None:
        super().__init__(config)
        self._config = config
        self._stage, self._begin, self._num_read = 0, 0, 0
        """The state after the first `_num_read` lines of the history, which are read only once."""

    def max_rounds(self, step: int, history: Sequence[Metrics] = ()) -> int:
        rounds, num_lines = self._config.rounds, min(step - 1, len(history))
        if num_lines < self._num_read:
            self._stage, self._begin, self._num_read = 0, 0, 0
        for end in range(self._num_read + 1, num_lines + 1):
            if self._stage + 1 < len(rounds) and self._is_over(history, end):
                self._stage, self._begin = self._stage + 1, end
        self._num_read = num_lines
        return rounds[self._stage]

    def _is_over(self, history: Sequence[Metrics], end: int) -> bool:
        """Return whether the present stage ends after the first `end` lines of the history."""
        window, length = self._config.window, end - self._begin
        if length < window:
            return False
        if fmean(map(_horizon_rate, history[end - window : end])) > _MAX_TRUNCATED:
            return True
        if length < 2 * window:
            return False
        success = [line["rollout/success_rate"] for line in history[end - 2 * window : end]]
        return fmean(success[window:]) - fmean(success[:window]) < _MIN_GAIN


def _horizon_rate(line: Metrics) -> float:
    """Return the share of a step's episodes that the limit on rounds ended."""
    return line["rollout/truncated_rate"] - line["rollout/max_tokens_rate"]


_SCHEDULERS: Mapping[str, type[RoundScheduler]] = MappingProxyType(
    {
        "fixed": FixedRoundsScheduler,
        "scaling_inter_stepwise": StepRoundsScheduler,
        "adaptive": AdaptiveRoundsScheduler,
    }
)
"""`rounds.type` -> class."""


class RunRounds:
    """The limits on rounds of a run, one schedule for each of its environments.

    A schedule knows the metrics of its environment as if the run had no other; a step without its
    episodes does not exist for it. The step itself is the run's.
    """

    def __init__(self, configs: Mapping[str, RoundsBaseConfig]) -> None:
        """`configs` are by the environments' labels."""
        self._schedulers = {label: make_scheduler(config) for label, config in configs.items()}
        self._histories: dict[str, list[Metrics]] = {label: [] for label in configs}

    def follow(self, lines: Iterable[Metrics]) -> None:
        """Take note of the metrics of the next steps."""
        is_only = len(self._histories) == 1
        for line in lines:
            for label, history in self._histories.items():
                own = line if is_only else metrics_of_env(line, label)
                if own is not None:
                    history.append(own)

    def max_rounds(self, step: int) -> dict[str, int]:
        """Return the limit on rounds of each environment at training `step`, by label."""
        return {
            label: scheduler.max_rounds(step, self._histories[label])
            for label, scheduler in self._schedulers.items()
        }


def make_scheduler(config: RoundsBaseConfig) -> RoundScheduler:
    """Return the scheduler that the recipe's `[rounds]` describes, built-in or a user's."""
    found = _SCHEDULERS.get(config.type) or load_class(
        config.type, RoundScheduler, setting="rounds.type"
    )
    return found(config)
