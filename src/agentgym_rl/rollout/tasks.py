"""Which tasks a step works on: a pure function of (seed, step)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agentgym_rl.config import EnvConfig
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.errors import did_you_mean
from agentgym_rl.types import Task


class TaskSampler:
    """Goes through the tasks in a new random order every epoch."""

    def __init__(self, tasks: Sequence[Task], *, seed: int) -> None:
        if not tasks:
            raise ValueError("there are no tasks to sample from")
        self._tasks = list(tasks)
        self._seed = seed

    def take(self, step: int, num_tasks: int) -> list[Task]:
        """Return the tasks of training `step` (the first is 1)."""
        first = (step - 1) * num_tasks
        return [self._at(place) for place in range(first, first + num_tasks)]

    def _at(self, place: int) -> Task:
        epoch, offset = divmod(place, len(self._tasks))
        order = list(range(len(self._tasks)))
        random.Random(f"{self._seed}/{epoch}").shuffle(order)
        return self._tasks[order[offset]]


def select_tasks(config: EnvConfig, spec: EnvSpec, tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks that the recipe's categories and levels let through."""
    levels = sorted({task.level for task in tasks if task.level})
    for key, wanted, known in (
        ("env.categories", config.categories, spec.categories),
        ("env.levels", config.levels, levels),
    ):
        for name in wanted:
            if name not in known:
                raise ValueError(
                    f"{key}: {spec.name} has no {name!r}{did_you_mean(name, known)}; "
                    f"there are: {', '.join(known)}"
                )
    return [
        task
        for task in tasks
        if (not config.categories or task.category in config.categories)
        and (not config.levels or task.level in config.levels)
    ]


def evaluation_tasks(tasks: Sequence[Task], num_tasks: int, *, seed: int) -> list[Task]:
    """Return `num_tasks` tasks drawn without replacement (all, in order, if there are no more)."""
    if num_tasks >= len(tasks):
        return list(tasks)
    chosen = random.Random(f"{seed}/eval").sample(range(len(tasks)), num_tasks)
    return [tasks[index] for index in sorted(chosen)]
