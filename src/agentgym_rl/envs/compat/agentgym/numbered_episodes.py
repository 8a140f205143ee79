"""AgentGym's integer ids over the opaque episodes of a service, and what each one last said.

Ids are random numbers, so that nobody can guess one, and an id from before a restart of the server
cannot meet another client's episode. An id is dropped when its client closes it. When its episode
is lost (reaped, failed, crowded out) only the number is kept for a while, so that a later
call learns of the loss instead of hearing that the id is unknown.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from agentgym_rl.envs.base import JsonValue
from agentgym_rl.envs.service.server.episode_service import EpisodeService
from agentgym_rl.errors import EnvBusyError, EnvError, EnvGoneError
from agentgym_rl.types import StepResult, Task

logger = logging.getLogger(__name__)

MAX_NUMBERS = 16384
"""Far above the places of any server: what is beyond it belongs to clients that never closed."""

_NUM_IDS = 2**53
"""Integers below it are exact in every JSON implementation; two equal ones are beyond chance."""

NO_FACTS: Mapping[str, JsonValue] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class NumberedEpisode:
    """One AgentGym id. Reward and score are as they travel, in the scenario's own scale."""

    id: int
    episode: str
    task: Task | None = None
    """None before the first reset and after a refused one."""
    next_round: int = 0
    observation: str = ""
    reward: float = 0
    """Of the last step."""
    score: float = 0
    """Since the reset."""
    is_done: bool = False
    facts: Mapping[str, JsonValue] = field(default_factory=lambda: NO_FACTS)
    """What the scenario keeps from the reset."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class RefusedError(Exception):
    """A mistake of the caller, which AgentGym answers with status 200 and an `error`."""

    def __init__(self, message: str, numbered: NumberedEpisode | None = None) -> None:
        """`numbered` is None where the id is unknown."""
        super().__init__(message)
        self.numbered = numbered


class NumberedEpisodes:
    """The ids of one server. Lives on one event loop."""

    def __init__(self, service: EpisodeService) -> None:
        self._service = service
        self._by_number: OrderedDict[int, NumberedEpisode] = OrderedDict()
        """By last use, the oldest first."""
        self._lost: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_number)

    async def create(self) -> NumberedEpisode:
        episode = await self._service.create()
        numbered = NumberedEpisode(secrets.randbelow(_NUM_IDS), episode)
        self._by_number[numbered.id] = numbered
        while len(self._by_number) > MAX_NUMBERS:
            oldest = next(iter(self._by_number.values()))
            logger.warning("more than %d AgentGym ids: %d is lost", MAX_NUMBERS, oldest.id)
            await self._lose(oldest)
        return numbered

    @asynccontextmanager
    async def use(self, id_: int) -> AsyncGenerator[NumberedEpisode]:
        """Give the episode of an id to one request at a time; a failure inside loses it."""
        numbered = self._find(id_)
        async with numbered.lock:
            self._find(id_)  # it may have been closed or lost while this request waited
            self._by_number.move_to_end(id_)
            try:
                yield numbered
            except EnvBusyError:
                raise
            except EnvError:
                await self._lose(numbered)
                raise

    async def start(self, numbered: NumberedEpisode, task: Task) -> None:
        observation = await self._service.reset(numbered.episode, task)
        numbered.task, numbered.next_round, numbered.observation = task, 0, observation
        numbered.reward, numbered.score, numbered.is_done, numbered.facts = 0, 0, False, NO_FACTS

    async def step(self, numbered: NumberedEpisode, action: str) -> StepResult:
        """Do the next round and keep what it answered; reward and score are the caller's."""
        result = await self._service.step(numbered.episode, numbered.next_round, action)
        numbered.next_round += 1
        numbered.observation, numbered.is_done = result.observation, result.is_last
        return result

    async def close(self, id_: int) -> bool:
        """Give the place back, without waiting for a call that runs; False for an unknown id."""
        numbered = self._by_number.pop(id_, None)
        if numbered is None:
            return self._lost.pop(id_, id_) is None
        await self._service.close(numbered.episode)
        return True

    def _find(self, id_: int) -> NumberedEpisode:
        if id_ in self._lost:
            raise EnvGoneError(f"the episode of environment {id_} is gone")
        if id_ not in self._by_number:
            raise RefusedError(f"There is no environment {id_}: create one first.")
        return self._by_number[id_]

    async def _lose(self, numbered: NumberedEpisode) -> None:
        if self._by_number.pop(numbered.id, None) is not None:  # else its client has closed it
            self._lost[numbered.id] = None
            if len(self._lost) > MAX_NUMBERS:
                self._lost.popitem(last=False)
        await self._service.close(numbered.episode)
