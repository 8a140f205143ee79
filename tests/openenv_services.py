"""Episodes for the tests of the OpenEnv routes, and a server of these routes on a free port."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from agentgym_rl.envs.base import Environment, JsonValue
from agentgym_rl.envs.client.local import LocalEnvClient, LocalEnvSource
from agentgym_rl.envs.protocol import ErrorKind, ProtocolError
from agentgym_rl.envs.server.openenv import routes
from agentgym_rl.envs.server.service import EpisodeService
from agentgym_rl.errors import EnvBusyError, EnvError, EnvGoneError
from agentgym_rl.types import StepResult, Task


class LocalService(EpisodeService):
    """Episodes in this process, each on a thread of its own."""

    def __init__(
        self, env: type[Environment], *, capacity: int = 256, timeout_s: float = 10.0
    ) -> None:
        self.spec = env.spec
        self._source = LocalEnvSource(env, timeout_s=timeout_s)
        self._capacity = capacity
        self.episodes: dict[str, LocalEnvClient] = {}
        self.num_created = 0
        self.create_delay_s = 0.0
        """How long a create takes, for tests of what happens meanwhile."""

    async def tasks(self, split: str) -> tuple[Task, ...]:
        return await self._source.tasks(split)

    async def create(self) -> str:
        if len(self.episodes) >= self._capacity:
            raise EnvBusyError(f"all {self._capacity} places are taken")
        client = self._source.new_client()
        episode = secrets.token_urlsafe(8)
        self.episodes[episode] = client
        try:
            await client.create()
            await asyncio.sleep(self.create_delay_s)
        except EnvError:
            await self.close(episode)
            raise
        self.num_created += 1
        return episode

    async def reset(self, episode: str, task: Task) -> str:
        return await self._find(episode).reset(task)

    async def step(self, episode: str, round_index: int, action: str) -> StepResult:
        client = self._find(episode)
        if round_index != client.num_rounds:
            message = f"got round {round_index}, expected round {client.num_rounds}"
            raise ProtocolError(ErrorKind.WRONG_ROUND, message)
        return await client.step(action)

    async def observation(self, episode: str) -> str:
        return await self._find(episode).observation()

    async def available_actions(self, episode: str) -> tuple[str, ...]:
        return await self._find(episode).available_actions()

    async def details(self, episode: str) -> Mapping[str, JsonValue]:
        return await self._find(episode).details()

    async def render(self, episode: str) -> bytes | None:
        return None

    async def close(self, episode: str) -> None:
        client = self.episodes.pop(episode, None)
        if client is not None:
            await client.close()

    def _find(self, episode: str) -> LocalEnvClient:
        if episode not in self.episodes:
            raise EnvGoneError("the episode is gone: it is unknown here")
        return self.episodes[episode]


@contextmanager
def openenv_server(
    service: EpisodeService,
    *,
    ping_interval_s: float = 20.0,
    ping_timeout_s: float = 20.0,
    max_message_bytes: int = 4 * 1024 * 1024,
) -> Iterator[str]:
    """Serve the routes under /openenv from a thread; give the address with that prefix."""
    mounted = routes(service, max_message_bytes=max_message_bytes)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            Starlette(routes=[Mount("/openenv", routes=mounted)]),
            log_config=None,
            log_level="warning",
            ws_ping_interval=ping_interval_s,
            ws_ping_timeout=ping_timeout_s,
            timeout_graceful_shutdown=5,
        )
    )
    thread = threading.Thread(target=server.run, args=([listener],), name="test-openenv-server")
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/openenv"
    finally:
        server.should_exit = True
        thread.join(15)
        assert not thread.is_alive(), "the server did not stop"


def wait_for(is_true: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
    """Wait in a thread of the test until something holds."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
