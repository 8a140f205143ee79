"""A metric that a callback judges by: its values so far, and which is better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from agentgym_rl.config import judged_metric
from agentgym_rl.config.callbacks import check_of_evaluations
from agentgym_rl.errors import ConfigError, did_you_mean
from agentgym_rl.evaluation.report import eval_metrics
from agentgym_rl.results import Run
from agentgym_rl.runs.folder import Metrics

Mode = Literal["max", "min"]


@dataclass(frozen=True, slots=True)
class Judged:
    """A metric of one run."""

    metric: str
    mode: Mode

    @classmethod
    def of(cls, run: Run, metric: str, mode: Mode) -> Judged:
        if mode not in ("max", "min"):
            raise ValueError(f"mode={mode!r} is neither 'max' nor 'min'")
        labels = list(run.config.environments)
        judged = judged_metric(metric, labels)
        if judged.startswith("eval/"):
            try:
                check_of_evaluations(judged, labels, given=f"metric={metric!r}")
            except ValueError as error:
                raise ConfigError(str(error)) from error
        return cls(judged, mode)

    def is_better(self, value: float, best: float, *, by: float = 0.0) -> bool:
        """Whether a value is better by more than `by`; NaN never is."""
        return value > best + by if self.mode == "max" else value < best - by

    @property
    def worst(self) -> float:
        return -math.inf if self.mode == "max" else math.inf

    def history(self, run: Run) -> list[tuple[int, float]]:
        """Return the steps that have the metric with its values; evaluations begin at step 0."""
        first = eval_metrics([report for report in run.evaluations if report.step == 0])
        lines: list[Mapping[str, float]] = [{"step": 0, **first}, *run.metrics]
        return [(int(line["step"]), line[self.metric]) for line in lines if self.metric in line]

    def refuse_unknown(self, metrics: Metrics) -> None:
        """Raise ConfigError where a step has not this metric.

        What environments and rewards report of their own may come later, and an evaluation in which
        no episode completed has no numbers.
        """
        if "/env/" in self.metric or "/reward/" in self.metric or self.metric.startswith("eval/"):
            return
        if self.metric not in metrics:
            raise ConfigError(
                f"there is no metric {self.metric}{did_you_mean(self.metric, metrics)}: set "
                f"callbacks.metric (in Python metric=...) to a name in metrics.jsonl"
            )
