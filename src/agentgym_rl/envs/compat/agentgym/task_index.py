"""What a `data_idx` of AgentGym stands for: the tasks of all splits by their index."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import Enum, auto

from agentgym_rl.envs.compat.agentgym.numbered_episodes import NumberedEpisode, RefusedError
from agentgym_rl.envs.service.server.episode_service import EpisodeService
from agentgym_rl.types import Task

_MAX_INDEX = 2**53
"""Above it numbers in JSON are not exact."""


class IndexRule(Enum):
    """What happens to an index that no task has."""

    CYCLIC = auto()
    """Any integer is taken modulo the number of tasks, which are numbered without gaps."""
    WRAPPED = auto()
    """A negative one counts from the end; one beyond the last task, either way, is refused."""
    ENDLESS = auto()
    """A negative one is refused; beyond the last one the tasks continue, with repeating levels."""


class TaskIndex:
    """Finds tasks by `data_idx`. Reads the lists of the service on first use."""

    def __init__(
        self,
        service: EpisodeService,
        rule: IndexRule,
        *,
        num_levels: int = 1,
        max_tasks: int | None = None,
    ) -> None:
        """With ENDLESS, levels repeat after `num_levels` indices. AgentGym knows the tasks below
        index `max_tasks`, or all.
        """
        self._service = service
        self._rule = rule
        self._num_levels = num_levels
        self._max_tasks = max_tasks
        self._tasks: dict[int, Task] | None = None
        self._reading = asyncio.Lock()

    async def find(self, data_idx: int, numbered: NumberedEpisode) -> Task:
        """Return the task of an index. Raises RefusedError to `numbered` where there is none."""
        tasks = await self._read()
        size = max(tasks, default=-1) + 1
        index = data_idx
        if self._rule is IndexRule.CYCLIC and size:
            index = data_idx % size
        elif self._rule is IndexRule.WRAPPED and -size <= data_idx < 0:
            index = data_idx + size
        if index in tasks:
            return tasks[index]
        level = index % self._num_levels
        if self._rule is IndexRule.ENDLESS and 0 <= index < _MAX_INDEX and level in tasks:
            # No split has it, so it is no test task.
            return replace(tasks[level], split="train", index=index)
        message = f"There is no task {data_idx}: they are numbered 0 to {size - 1}."
        raise RefusedError(message, numbered)

    async def _read(self) -> dict[int, Task]:
        async with self._reading:
            if self._tasks is None:
                splits = [await self._service.tasks(split) for split in self._service.spec.splits]
                self._tasks = {
                    task.index: task
                    for tasks in splits
                    for task in tasks
                    if self._max_tasks is None or task.index < self._max_tasks
                }
            return self._tasks
