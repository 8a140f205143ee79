"""What an environment or a reward function reports of its own, in an evaluation.

A metric counts in the episodes that report it, as it was reported last. A part of a reward is 0
where an episode lacks it. Intervals are 95%, from drawing tasks anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentgym_rl.evaluation.metrics import mean_interval
from agentgym_rl.types import Group


@dataclass(frozen=True, slots=True)
class Figure:
    """The mean of a named number over episodes."""

    mean: float
    low: float | None
    """Lower end of the interval; None with fewer than two tasks."""
    high: float | None
    episodes: int
    """Episodes that it is a mean over."""


def metric_figures(groups: Sequence[Group]) -> dict[str, Figure]:
    """Return what the environment reported, by name."""
    tasks = [[episode.metrics for episode in group.completed] for group in groups]
    return {
        name: _figure([[own[name] for own in task if name in own] for task in tasks])
        for name in _names(tasks)
    }


def reward_part_figures(groups: Sequence[Group]) -> dict[str, Figure]:
    """Return the parts of the reward, before `reward.weights`, by name."""
    tasks = [[episode.reward_parts for episode in group.completed] for group in groups]
    return {
        name: _figure([[own.get(name, 0.0) for own in task] for task in tasks])
        for name in _names(tasks)
    }


def figures_markdown(title: str, figures: Mapping[str, Figure]) -> list[str]:
    """Return the lines of a section with a table; none where there are no figures."""
    if not figures:
        return []
    lines = [f"## {title}", "", "| name | mean | interval | episodes |", "|---|---|---|---|"]
    for name, item in figures.items():
        interval = "-" if item.low is None else f"{item.low:.4g} - {item.high:.4g}"
        lines.append(f"| {name} | {item.mean:.4g} | {interval} | {item.episodes} |")
    return [*lines, ""]


def _names(tasks: Iterable[Iterable[Mapping[str, float]]]) -> list[str]:
    return sorted({name for task in tasks for own in task for name in own})


def _figure(tasks: Sequence[Sequence[float]]) -> Figure:
    """Return the mean over all episodes of tasks that have any."""
    known = [values for values in tasks if values]
    counts = [len(values) for values in known]
    interval = mean_interval([math.fsum(values) for values in known], counts)
    low, high = interval or (None, None)
    total = math.fsum(value for values in known for value in values)
    return Figure(total / sum(counts), low, high, sum(counts))
