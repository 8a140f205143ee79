"""What every adapted environment has in common: texts, and tasks that are seeds.

The library behind an adapter has no list of problems, only a seed. Task `i` is seed `i`: the first
`num_test` are for testing, the next `num_train` for training, so that neither moves when the other
grows at its end.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from agentgym_rl.envs.base import Environment
from agentgym_rl.types import Task

SPLITS = ("train", "test")
_MAX_SEED = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What an adapted environment says of itself. Whatever is empty, the adapter fills in."""

    name: str = ""
    """Name in the spec and in tasks; default: the adapter's prefix and the id."""
    goal: str = ""
    """What is to be achieved, the head of the first observation."""
    instructions: str = ""
    example_action: str = ""
    max_rounds: int = 0
    """Default: the limit of the environment itself, where it has one."""
    num_train: int = 1000
    num_test: int = 100
    shares_thread: bool = True
    """See `Environment.shares_thread`; False where a call waits for something else."""

    def __post_init__(self) -> None:
        if self.num_train < 1 or self.num_test < 1:
            raise ValueError(
                f"num_train and num_test must be at least 1, got {self.num_train} and "
                f"{self.num_test}"
            )
        if self.max_rounds < 0:
            raise ValueError(f"max_rounds must be 0 (the default) or more, got {self.max_rounds}")


class SeededEnvironment(Environment):
    """An environment whose tasks are seeds; adapters derive from it."""

    outline: ClassVar[Outline]

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        cls.require_split(split)
        first = 0 if split == "test" else cls.outline.num_test
        number = cls.outline.num_test if split == "test" else cls.outline.num_train
        return _tasks(cls.spec.name, split, cls.spec.categories[0], first, number)

    def _check_task(self, task: Task) -> None:
        self.require_split(task.split)
        total = self.outline.num_test + self.outline.num_train
        if not 0 <= task.index < total:
            raise ValueError(f"{self.spec.name} has tasks 0 to {total - 1}, not {task.index}")


def seed_of(task: Task) -> int:
    """Return the seed for the library: the index or, for a task with a seed of its own, a mix."""
    if not task.seed:
        return task.index
    # Only `random()` is promised to stay the same over versions of Python.
    return int(random.Random(f"{task.index} {task.seed}").random() * _MAX_SEED)


@cache
def _tasks(name: str, split: str, category: str, first: int, number: int) -> tuple[Task, ...]:
    return tuple(
        Task(name, split, index, category=category) for index in range(first, first + number)
    )
