"""A plain `EpisodeService` for tests of dialects, and a server thread for the routes over it."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import uvicorn
from starlette.types import ASGIApp

from agentgym_rl.envs.base import Environment, JsonValue
from agentgym_rl.envs.episode import EnvEpisode, EpisodeStateError
from agentgym_rl.envs.service.server.episode_service import EpisodeService
from agentgym_rl.errors import EnvBusyError, EnvError, EnvGoneError, EnvTimeoutError
from agentgym_rl.types import StepResult, Task

_T = TypeVar("_T")


class PlainService(EpisodeService):
    """Episodes in this process, with no leases: a test loses one by hand (`lose_all`).

    Overlapping calls for one episode are a bug of the dialect and counted in `num_overlaps`.
    """

    def __init__(
        self, cls: type[Environment], *, capacity: int = 1000, timeout_s: float = 30.0
    ) -> None:
        self.spec = cls.spec
        self._class = cls
        self._capacity = capacity
        self.timeout_s = timeout_s
        self.busy: set[str] = set()
        self.episodes: dict[str, EnvEpisode] = {}
        self.num_created = 0
        self.num_overlaps = 0

    def lose_all(self) -> None:
        """Forget every episode, as a reaper would."""
        self.episodes.clear()

    async def tasks(self, split: str) -> tuple[Task, ...]:
        return tuple(self._class.tasks(split))

    async def create(self) -> str:
        if len(self.episodes) >= self._capacity:
            raise EnvBusyError("secret words: all places are taken")
        name = secrets.token_urlsafe(8)
        self.episodes[name] = EnvEpisode(self._class)
        await self._call(name, self.episodes[name].build)
        self.num_created += 1
        return name

    async def reset(self, episode: str, task: Task) -> str:
        return await self._call(episode, lambda: self.episodes[episode].reset(task))

    async def step(self, episode: str, round_index: int, action: str) -> StepResult:
        if episode in self.episodes:
            assert round_index == self.episodes[episode].num_rounds, "rounds follow each other"
        return await self._call(episode, lambda: self.episodes[episode].step(action))

    async def observation(self, episode: str) -> str:
        return await self._call(episode, lambda: self.episodes[episode].observation())

    async def available_actions(self, episode: str) -> tuple[str, ...]:
        return await self._call(episode, lambda: self.episodes[episode].available_actions())

    async def details(self, episode: str) -> Mapping[str, JsonValue]:
        return await self._call(episode, lambda: self.episodes[episode].details())

    async def render(self, episode: str) -> bytes | None:
        return await self._call(episode, lambda: self.episodes[episode].render())

    async def close(self, episode: str) -> None:
        if (held := self.episodes.pop(episode, None)) is not None:
            await asyncio.to_thread(held.close)

    async def _call(self, episode: str, fn: Callable[[], _T]) -> _T:
        if episode not in self.episodes:
            raise EnvGoneError("secret words: no such episode")
        self.num_overlaps += episode in self.busy
        self.busy.add(episode)
        try:
            async with asyncio.timeout(self.timeout_s):
                return await asyncio.to_thread(fn)
        except TimeoutError:
            raise EnvTimeoutError("secret words: too slow") from None
        except EpisodeStateError:
            raise
        except Exception as error:  # whatever an environment raises is its failure
            self.episodes.pop(episode, None)
            raise EnvError(f"secret words: {error!r}") from error
        finally:
            self.busy.discard(episode)


@contextmanager
def app_thread(app: ASGIApp) -> Iterator[str]:
    """Serve an application from a thread of this process; give its address."""
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="test-app-server")
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started:
            assert time.monotonic() < deadline and thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server did not stop"
