"""Callbacks: how a program follows a run while it trains, and ends one early."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ParamSpec

from agentgym_rl.evaluation.report import EvalReport
from agentgym_rl.results import Run
from agentgym_rl.runs.folder import Metrics
from agentgym_rl.types import Episode

_P = ParamSpec("_P")


class Callback:
    """Override the methods you need; each is called on the thread of the run.

    An exception in a callback ends the run and reaches the caller, with a note that names the
    callback. A callback is not part of a checkpoint: whoever resumes a run passes it again.

        class StopWhenSolved(Callback):
            def on_evaluation(self, report: EvalReport) -> None:
                if report.overall.success_rate > 0.95:
                    self.stop_run("solved")
    """

    _stop_reason: str | None = None

    def on_run_start(self, run: Run) -> None:
        """Training begins or resumes; a warm start is over by now.

        It resumes also in the middle of a run, when the learner has lost a process.
        """

    def on_episode(self, episode: Episode) -> None:
        """An episode to learn from ended (`evaluate` and `rollout`: any episode)."""

    def on_step(self, metrics: Metrics) -> None:
        """A training step ended; `metrics` is its line of metrics.jsonl."""

    def on_evaluation(self, report: EvalReport) -> None:
        """An evaluation ended: one before the first step, others before `on_step` of theirs."""

    def on_checkpoint(self, path: Path, step: int) -> None:
        """A checkpoint of the step is complete, after its `on_step`; `path / "model"` is the model.

        It is deleted when `checkpoint.keep` newer ones exist.
        """

    def on_run_end(self, run: Run) -> None:
        """The last step is done, and the model is saved."""

    def stop_run(self, reason: str = "") -> None:
        """End the run after the present step, with a checkpoint and its model saved.

        `reason` is logged; without one, the name of the callback's class is.
        """
        self._stop_reason = reason or type(self).__name__


class Callbacks:
    """The callbacks of one run, called in order."""

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        if not isinstance(callbacks, Iterable):
            raise ValueError(f"callbacks: pass a list of callbacks, not {callbacks!r}")
        self._callbacks = tuple(callbacks)
        for callback in self._callbacks:
            if isinstance(callback, type):
                raise ValueError(f"callbacks: pass an object, {callback.__name__}(), not the class")
            if not isinstance(callback, Callback):
                raise ValueError(
                    f"callbacks: {callback!r} is not a Callback; subclass agentgym_rl.Callback"
                )

    def __iter__(self) -> Iterator[Callback]:
        return iter(self._callbacks)

    def stop_reason(self) -> str | None:
        """Return why the run shall end after the present step; None while it shall not."""
        reasons = (callback._stop_reason for callback in self._callbacks)
        return next((reason for reason in reasons if reason is not None), None)

    def on_run_start(self, run: Run) -> None:
        for callback in self._callbacks:
            callback._stop_reason = None  # which an earlier run may have left
            _call(callback.on_run_start, run)

    def on_episode(self, episode: Episode) -> None:
        for callback in self._callbacks:
            _call(callback.on_episode, episode)

    def on_step(self, metrics: Metrics) -> None:
        for callback in self._callbacks:
            _call(callback.on_step, dict(metrics))  # a copy: the run keeps using its own

    def on_evaluation(self, report: EvalReport) -> None:
        for callback in self._callbacks:
            _call(callback.on_evaluation, report)

    def on_checkpoint(self, path: Path, step: int) -> None:
        for callback in self._callbacks:
            _call(callback.on_checkpoint, path, step)

    def on_run_end(self, run: Run) -> None:
        for callback in self._callbacks:
            _call(callback.on_run_end, run)


def _call(method: Callable[_P, None], *args: _P.args, **kwargs: _P.kwargs) -> None:
    try:
        method(*args, **kwargs)
    except Exception as error:
        error.add_note(
            f"raised by the callback {method.__qualname__}; the run ended there, and its last "
            "checkpoint can be resumed"
        )
        raise
