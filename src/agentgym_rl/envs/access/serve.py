"""A server process of one environment, in every dialect; it drains before it stops."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Mapping
from types import FrameType

from starlette.routing import BaseRoute, Mount

from agentgym_rl.envs.compat.agentgym import dialect as agentgym
from agentgym_rl.envs.compat.openenv import routes as openenv
from agentgym_rl.envs.service.server.app import EnvApp
from agentgym_rl.envs.service.server.backend import ServerLimits
from agentgym_rl.envs.service.server.episode_service import EpisodeService
from agentgym_rl.serving.bound import Address, BoundServer

logger = logging.getLogger(__name__)


def other_dialects(service: EpisodeService, limits: ServerLimits) -> list[BaseRoute]:
    """Return AgentGym's routes, and OpenEnv's below /openenv."""
    below = openenv.routes(service, max_message_bytes=limits.max_body_bytes)
    return [*agentgym.routes(service), Mount("/openenv", routes=below)]


class EnvServer(BoundServer):
    """The server of one environment. `run()` blocks; `should_exit = True` stops it gracefully.

    `num_workers` processes hold the episodes; 0 uses this one. `on_ready` gets the address
    ("http://127.0.0.1:41001") once requests are answered. Raises ValueError for an address that
    cannot be bound, an unknown environment or option; `run` raises EnvError when a worker process
    does not start.

    SIGTERM lets open episodes continue for `limits.drain_s`, refusing new ones, before it stops; a
    second one, or SIGINT, stops at once.
    """

    def __init__(
        self,
        env: str,
        address: Address,
        *,
        options: Mapping[str, object] | None = None,
        num_workers: int = 0,
        limits: ServerLimits | None = None,
        on_ready: Callable[[str], None] | None = None,
    ) -> None:
        self._limits = limits or ServerLimits()
        self._app = EnvApp(
            env,
            options,
            self._limits,
            token=address.token,
            num_workers=num_workers,
            dialects=[other_dialects],
        )
        super().__init__(
            self._app,
            address,
            max_message_bytes=self._limits.max_body_bytes,
            on_ready=on_ready,
        )
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:  # how uvicorn ends when the application does not start
            if self._app.start_failure is not None:
                raise self._app.start_failure from None
            raise

    async def on_tick(self, counter: int) -> bool:
        if self._app.is_draining and self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGTERM and not self._app.is_draining:
            self._app.drain()
            return
        super().handle_exit(sig, frame)

    async def _drain(self) -> None:
        """Stop when the last episode has ended, or time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.drain_s
        while (num_open := await self._app.num_episodes()) and loop.time() < deadline:
            await asyncio.sleep(0.1)
        if num_open:
            logger.warning("stopping with %d open episodes", num_open)
        self.should_exit = True
