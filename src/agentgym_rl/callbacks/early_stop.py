"""Ends a run that has stopped improving."""

from __future__ import annotations

from agentgym_rl.callbacks.base import Callback
from agentgym_rl.callbacks.judged import Judged, Mode
from agentgym_rl.config.callbacks import SUCCESS
from agentgym_rl.results import Run
from agentgym_rl.runs.folder import Metrics


class EarlyStop(Callback):
    """Stops when a metric has not improved by more than `min_change` `patience` times in a row.

    What it has seen is read from metrics.jsonl, so a resumed run stops where one that never stopped
    would.
    """

    def __init__(
        self,
        metric: str = SUCCESS,
        *,
        patience: int,
        min_change: float = 0.0,
        mode: Mode = "max",
    ) -> None:
        if patience < 1:
            raise ValueError(f"patience={patience} must be at least 1")
        self._name, self._mode = metric, mode
        self._patience, self._min_change = patience, min_change

    def on_run_start(self, run: Run) -> None:
        self._judged = Judged.of(run, self._name, self._mode)
        self._best, self._best_step, self._num_worse = self._judged.worst, 0, 0
        history = self._judged.history(run)
        for step, value in history:
            self._see(step, value)
        self._run, self._is_begun = run, bool(history)
        self._stop_when_due()  # a kill may have come between the step and the end

    def on_step(self, metrics: Metrics) -> None:
        if not self._is_begun:  # the evaluation before the first step is in no line
            self._is_begun = True
            for step, value in self._judged.history(self._run)[:1]:
                if step == 0:
                    self._see(step, value)
        self._judged.refuse_unknown(metrics)
        if self._judged.metric not in metrics:
            return
        self._see(int(metrics["step"]), metrics[self._judged.metric])
        self._stop_when_due()

    def _stop_when_due(self) -> None:
        if self._num_worse >= self._patience:
            self.stop_run(
                f"{self._judged.metric} has not improved {self._num_worse} times in a row; the best"
                f" was {self._best:.4g} in step {self._best_step}"
            )

    def _see(self, step: int, value: float) -> None:
        if self._judged.is_better(value, self._best, by=self._min_change):
            self._best, self._best_step, self._num_worse = value, step, 0
        else:
            self._num_worse += 1
