"""Which tasks a step works on: a pure function of (seed, step), unless solved ones rest."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import inf
from typing import Any, Generic, TypeVar

from agentgym_rl.config import EnvConfig
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.errors import did_you_mean, some_of
from agentgym_rl.types import Task

_Item = TypeVar("_Item")


class EpochSampler(Generic[_Item]):
    """Goes through items (tasks, demonstrations) in a new random order every epoch."""

    def __init__(self, items: Sequence[_Item], *, seed: int) -> None:
        if not items:
            raise ValueError("there is nothing to sample from")
        self._items = list(items)
        self._seed = seed
        self._epoch, self._order = -1, list[int]()

    def take(self, step: int, number: int) -> list[_Item]:
        """Return the items of training `step` (the first is 1) when each step takes `number`."""
        return [self.at(place) for place in range((step - 1) * number, step * number)]

    def at(self, place: int) -> _Item:
        """Return the item at a place, from 0, of all epochs one after another."""
        epoch, offset = divmod(place, len(self._items))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, list(range(len(self._items)))
            random.Random(f"{self._seed}/{epoch}").shuffle(self._order)
        return self._items[self._order[offset]]


class RestingSampler:
    """Goes through tasks as an EpochSampler does, but passes over what has been solved.

    A solved task rests for `rest` epochs, and if there are several levels, this many of the next
    tasks of its level are skipped. A step that does not find enough tasks within the length of an
    epoch takes resting ones as they come. With `rest` 0 nothing is passed over.
    """

    def __init__(self, tasks: Sequence[Task], *, seed: int, rest: int) -> None:
        self._order = EpochSampler(range(len(tasks)), seed=seed)
        self._tasks, self._rest = list(tasks), rest
        self._numbers = {task.id: number for number, task in enumerate(tasks)}
        self._place = 0
        """How many places of the endless order have been passed."""
        self._taken_in: dict[int, int] = {}
        """The epoch in which a task was last taken, by its number."""
        self._wakes: dict[int, int] = {}
        """The epoch in which a task comes again, by its number."""
        self._level_sizes = Counter(_level(task) for task in tasks)
        self._to_pass = Counter[str]()
        """How many of the next tasks of a level are passed over."""

    @property
    def num_resting(self) -> int:
        return sum(epoch > self._epoch for epoch in self._wakes.values())

    def take(self, number: int) -> list[Task]:
        """Return the next tasks; the places that they take are passed for good."""
        taken, first = list[Task](), self._place
        while len(taken) < number:
            task = self._order.at(self._place)
            is_urgent = self._place - first >= len(self._tasks)
            if not self._passes_over(task) or is_urgent:
                taken.append(self._tasks[task])
                self._taken_in[task] = self._epoch
            self._place += 1
        return taken

    def _passes_over(self, task: int) -> bool:
        level = _level(self._tasks[task])
        level_rests = self._to_pass[level] > 0
        self._to_pass[level] -= level_rests
        return level_rests or self._wakes.get(task, 0) > self._epoch

    def skip_to(self, place: int) -> None:
        """Pass all places before this one."""
        self._place = place

    def at(self, place: int) -> Task:
        """Return the task at a place of the endless order, resting or not."""
        return self._tasks[self._order.at(place)]

    def find(self, task_id: str) -> Task | None:
        """Return the task of an id; None where there is none."""
        number = self._numbers.get(task_id)
        return None if number is None else self._tasks[number]

    def let_rest(self, tasks: Iterable[Task]) -> None:
        """Leave solved tasks out of the next epochs, and skip other tasks of their levels."""
        for task in tasks if self._rest else ():
            number = self._numbers[task.id]
            self._wakes[number] = self._taken_in[number] + 1 + self._rest
            if self._level_sizes[level := _level(task)] < len(self._tasks):
                # No level rests for more epochs than a task does.
                most = self._rest * self._level_sizes[level]
                self._to_pass[level] = min(self._to_pass[level] + self._rest, most)

    def state(self) -> dict[str, object]:
        """Return what `load_state` needs to resume, in JSON types."""
        resting = {task: epoch for task, epoch in self._wakes.items() if epoch > self._epoch}
        levels = sorted((+self._to_pass).items())
        return {"place": self._place, "wakes": sorted(resting.items()), "to_pass": levels}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Resume from what `state` returned."""
        self._place = int(state["place"])
        self._wakes = {int(task): int(epoch) for task, epoch in state["wakes"]}
        self._to_pass = Counter({level: int(number) for level, number in state.get("to_pass", ())})

    @property
    def _epoch(self) -> int:
        return self._place // len(self._tasks)


def _level(task: Task) -> str:
    return f"{task.env}/{task.level}"


def select_tasks(config: EnvConfig, spec: EnvSpec, tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks that the recipe's categories and levels let through."""
    levels = sorted({task.level for task in tasks if task.level})
    for key, wanted, known in (
        ("env.categories", config.categories, spec.categories),
        ("env.levels", config.levels, levels),
    ):
        if unknown := [name for name in wanted if name not in known]:
            raise ValueError(f"{key}: {_unknown(key, unknown, spec.name, known)}")
    selected = [
        task
        for task in tasks
        if (not config.categories or task.category in config.categories)
        and (not config.levels or task.level in config.levels)
    ]
    if not selected:
        filters = (("env.categories", config.categories), ("env.levels", config.levels))
        asked = " and ".join(f"{key}={list(names)}" for key, names in filters if names)
        split = tasks[0].split if tasks else ""
        elsewhere = "; other splits may have some" if len(spec.splits) > 1 else ""
        raise ValueError(f"no task of {spec.name}'s split {split!r} is in {asked}{elsewhere}")
    return selected


def _unknown(key: str, unknown: Sequence[str], env: str, known: Sequence[str]) -> str:
    """Return what to say of categories or levels that an environment does not have."""
    said, leave_out = some_of(map(repr, unknown), most=3), f"'{key}=[]'"
    if not known:
        what = key.partition(".")[2]
        return (
            f"{env} has no {said}: this environment has no {what}; leave them out with {leave_out}"
        )
    hint = did_you_mean(unknown[0], known) if len(unknown) == 1 else ""
    return f"{env} has no {said}{hint}; available: {some_of(known, most=12)}; {leave_out} keeps all"


def spread_tasks(tasks: Sequence[Task], like: Sequence[Task], *, seed: int) -> list[Task]:
    """Return the tasks in an order whose every beginning has kinds as `like` has them.

    Kinds are categories, and within a category levels. Tasks of one kind come as an EpochSampler
    takes them; those of a kind that `like` does not have come last. Where the tasks have kinds as
    `like` has them, their order is all random.
    """
    taken = EpochSampler(tasks, seed=seed).take(1, len(tasks))
    if _shares(tasks) == _shares(like):
        return taken
    return _interleaved(_interleaved(taken, like, _kind), like, lambda task: task.category)


def _shares(tasks: Sequence[Task]) -> dict[object, Fraction]:
    return {kind: Fraction(n, len(tasks)) for kind, n in Counter(map(_kind, tasks)).items()}


def _interleaved(
    tasks: Sequence[Task], like: Sequence[Task], kind_of: Callable[[Task], object]
) -> list[Task]:
    """Return tasks so that the share of each kind among the first is as in `like`."""
    wanted, passed = Counter(map(kind_of, like)), Counter[object]()
    places = list[float]()
    for task in tasks:
        kind = kind_of(task)
        # The tasks of a kind stand in the middle of as many equal parts as `like` has of it.
        places.append((passed[kind] + 0.5) / wanted[kind] if wanted[kind] else inf)
        passed[kind] += 1
    order = sorted(range(len(tasks)), key=places.__getitem__)
    return [tasks[number] for number in order]


def _kind(task: Task) -> object:
    return task.category, task.level


def evaluation_tasks(tasks: Sequence[Task], num_tasks: int, *, seed: int) -> list[Task]:
    """Return `num_tasks` tasks drawn without replacement, in order; all if there are fewer."""
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
