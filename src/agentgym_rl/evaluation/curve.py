"""The learning curve of a run as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from agentgym_rl.evaluation.pictures import draw_rates, new_figure, save_figure
from agentgym_rl.evaluation.report import EvalReport, by_env, with_numbers
from agentgym_rl.runs.folder import Metrics

_TRAIN, _STAGE = "#4c78a8", "#f0f0f0"
_EVAL = ("#e45756", "#54a24b", "#b279a2", "#f58518", "#9d755d")
"""Colours of held-out tasks, one per environment."""
_WINDOW = 5


def draw_learning_curve(
    path: Path, metrics: Sequence[Metrics], reports: Sequence[EvalReport], *, title: str
) -> None:
    """Write a PNG: success in training and on held-out tasks, over steps and minutes.

    The stages of the horizon are shaded.
    """
    figure, axes = new_figure(4.5)
    _draw_stages(axes, metrics)
    steps = [line["step"] for line in metrics]
    success = [line["rollout/success_rate"] for line in metrics]
    axes.plot(steps, success, color=_TRAIN, alpha=0.3, linewidth=1)
    axes.plot(
        steps,
        _smooth(success),
        color=_TRAIN,
        linewidth=2,
        label=f"training tasks (mean of {_WINDOW} steps)",
    )
    found = by_env(with_numbers(reports))
    for number, (env, of_env) in enumerate(found.items()):
        steps_evaluated = [report.step for report in of_env]
        scores = [report.overall for report in of_env]
        tasks = f"{of_env[0].split} tasks" + (f" of {env}" if len(found) > 1 else "")
        color = _EVAL[number % len(_EVAL)]
        draw_rates(axes, steps_evaluated, scores, f"{tasks} (95% interval)", color)
    axes.set(xlabel="training step", ylabel="success rate", ylim=(0, 1.08), title=title)
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    axes.legend(loc="lower right" if len(found) < 2 else "best")
    _draw_minutes(axes, metrics)
    save_figure(figure, path)


def _draw_stages(axes: Axes, metrics: Sequence[Metrics]) -> None:
    """Shade every other stage and write its limit on rounds at the top."""
    start = 0
    stages: list[tuple[float, float, float]] = []
    for place in range(1, len(metrics) + 1):
        horizon = metrics[start]["rollout/max_rounds"]
        if place == len(metrics) or metrics[place]["rollout/max_rounds"] != horizon:
            stages.append((metrics[start]["step"] - 0.5, metrics[place - 1]["step"] + 0.5, horizon))
            start = place
    for index, (left, right, horizon) in enumerate(stages):
        if index % 2 == 0:
            axes.axvspan(left, right, color=_STAGE, zorder=0)
        axes.text(
            (left + right) / 2, 1.03, f"{horizon:.0f} rounds", ha="center", va="center", fontsize=8
        )


def _draw_minutes(axes: Axes, metrics: Sequence[Metrics]) -> None:
    """Mark at the top how long the steps had taken, their evaluations included."""
    minutes = np.array([0.0, *accumulate(line.get("time/step_s", 0.0) / 60 for line in metrics)])
    steps = np.array([0.0, *(line["step"] for line in metrics)])
    if not minutes[-1]:
        return
    # Above the marks of the steps: even marks of time would lie on top of each other where a step
    # took long.
    shown = [step for step in axes.get_xticks() if 0 <= step <= steps[-1]]
    digits = 1 if minutes[-1] < 100 else 0
    top = axes.secondary_xaxis("top")
    top.set_xticks(shown, [f"{np.interp(step, steps, minutes):.{digits}f}" for step in shown])
    top.set_xlabel("minutes of training and evaluation", fontsize=8)
    top.tick_params(labelsize=8)


def _smooth(values: Sequence[float]) -> list[float]:
    """Return the mean of each value and up to `_WINDOW - 1` before it."""
    windows = (values[max(0, end - _WINDOW) : end] for end in range(1, len(values) + 1))
    return [sum(window) / len(window) for window in windows]
