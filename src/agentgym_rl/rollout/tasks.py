"""Which tasks a step works on: a pure function of (seed, step)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Generic, TypeVar

from agentgym_rl.config import EnvConfig
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.errors import did_you_mean
from agentgym_rl.types import Task

_Item = TypeVar("_Item")


class EpochSampler(Generic[_Item]):
    """Goes through items (tasks, demonstrations) in a new random order every epoch."""

    def __init__(self, items: Sequence[_Item], *, seed: int) -> None:
        if not items:
            raise ValueError("there is nothing to sample from")
        self._items = list(items)
        self._seed = seed

    def take(self, step: int, number: int) -> list[_Item]:
        """Return the items of training `step` (the first is 1) when each step takes `number`."""
        first, end = (step - 1) * number, step * number
        epochs = range(first // len(self._items), (end - 1) // len(self._items) + 1)
        orders = {epoch: self._order(epoch) for epoch in epochs}
        places = (divmod(place, len(self._items)) for place in range(first, end))
        return [self._items[orders[epoch][offset]] for epoch, offset in places]

    def _order(self, epoch: int) -> list[int]:
        order = list(range(len(self._items)))
        random.Random(f"{self._seed}/{epoch}").shuffle(order)
        return order


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
    selected = [
        task
        for task in tasks
        if (not config.categories or task.category in config.categories)
        and (not config.levels or task.level in config.levels)
    ]
    if not selected:
        raise ValueError(
            f"no task of {spec.name} is both in env.categories={list(config.categories)} and in "
            f"env.levels={list(config.levels)}; leave one of them empty"
        )
    return selected


def evaluation_tasks(tasks: Sequence[Task], num_tasks: int, *, seed: int) -> list[Task]:
    """Return `num_tasks` tasks drawn without replacement (all, in order, if there are no more)."""
    if num_tasks >= len(tasks):
        return list(tasks)
    chosen = random.Random(f"{seed}/eval").sample(range(len(tasks)), num_tasks)
    return [tasks[index] for index in sorted(chosen)]


def tasks_per_category(tasks: Sequence[Task], number: int, *, seed: int) -> list[Task]:
    """Return `number` tasks of every category, drawn as `evaluation_tasks` draws, in order."""
    drawn = [
        task
        for category in dict.fromkeys(task.category for task in tasks)
        for task in evaluation_tasks(
            [task for task in tasks if task.category == category], number, seed=seed
        )
    ]
    chosen = {task.id for task in drawn}
    return [task for task in tasks if task.id in chosen]
