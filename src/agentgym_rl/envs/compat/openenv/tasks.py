"""Which task an OpenEnv client means: by position in a split, by id, by seed, or in full."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace

from agentgym_rl.envs.service.protocol import decode_task, task_fields, wrong_type
from agentgym_rl.envs.service.server.episode_service import EpisodeService
from agentgym_rl.types import Task


class TaskBook:
    """The tasks of a service, read once. Raises ProtocolError for a task that cannot be meant."""

    def __init__(self, service: EpisodeService) -> None:
        self._service = service
        self._splits: dict[str, tuple[Task, ...]] = {}
        self._by_index: dict[int, Task] = {}
        self._lock = asyncio.Lock()

    async def split(self, name: str) -> tuple[Task, ...]:
        async with self._lock:
            return await self._read(name)

    async def at(self, split: str, position: int) -> Task:
        """Return the task at a position of a split, from 0."""
        tasks = await self.split(split)
        if not 0 <= position < len(tasks):
            raise wrong_type(
                f"'index' must be 0 to {len(tasks) - 1} in split {split!r}, not {position}"
            )
        return tasks[position]

    async def choose(self, selectors: Mapping[str, object]) -> Task:
        """Return the task that the data of a reset selects.

        `task` is an id or a whole `Task`; otherwise `split` (by default the first) and `index`
        select, and `seed` becomes the seed of the task. Without an index the seed picks one, and
        without both any task may come.
        """
        task = selectors.get("task")
        if isinstance(task, str):
            return await self._with_id(task)
        if task is not None:
            return self._own(decode_task(task))
        split = selectors.get("split")
        if split is not None and not isinstance(split, str):
            raise wrong_type(f"'split' must be str, not {type(split).__name__}")
        name = split or self._service.spec.splits[0]
        index, seed = natural(selectors, "index"), natural(selectors, "seed")
        if index is not None:
            chosen = await self.at(name, index)
            return chosen if seed is None else replace(chosen, seed=seed)
        tasks = await self.split(name)
        if not tasks:
            raise wrong_type(f"split {name!r} has no tasks")
        return random.choice(tasks) if seed is None else tasks[seed % len(tasks)]

    async def _read(self, name: str) -> tuple[Task, ...]:
        if name not in self._service.spec.splits:
            known = ", ".join(self._service.spec.splits)
            raise wrong_type(f"no split {name!r}; there is {known}")
        if name not in self._splits:
            self._splits[name] = await self._service.tasks(name)
        return self._splits[name]

    async def _with_id(self, task_id: str) -> Task:
        async with self._lock:
            if not self._by_index:
                for split in self._service.spec.splits:
                    self._by_index.update({task.index: task for task in await self._read(split)})
        env, _, numbers = task_id.rpartition(f"{self._service.spec.name}/")
        index, _, seed = numbers.partition("/")
        task = self._by_index.get(int(index)) if index.isdecimal() and not env else None
        if task is None or not (seed.isdecimal() or not seed):
            raise wrong_type(f"no task {task_id[:100]!r}")
        return replace(task, seed=int(seed)) if seed else task

    def _own(self, task: Task) -> Task:
        if task.env != self._service.spec.name:
            raise wrong_type(
                f"task {task.id} belongs to {task.env!r}, "
                f"this server has {self._service.spec.name!r}"
            )
        return task


def describe(task: Task, position: int) -> dict[str, object]:
    """Return a task as the task API shows it; `index` is its position, `task` all of it."""
    return {
        "id": task.id,
        "split": task.split,
        "index": position,
        "category": task.category,
        "task": task_fields(task),
    }


def natural(fields: Mapping[str, object], name: str) -> int | None:
    """Return a whole number from 0, or None where there is none."""
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise wrong_type(f"{name!r} must be a whole number from 0, not {str(value)[:50]!r}")
    return value
