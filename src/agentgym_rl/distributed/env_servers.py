"""Environment servers as actors: each holds the server process that a run starts on its machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError

from agentgym_rl.envs.access.server_process import ServerOrder, ServerProcess, start_here
from agentgym_rl.errors import EnvError

_PLACE_TIMEOUT_S = 180.0
"""For Ray to find a place, and for the server to start."""
_STOP_TIMEOUT_S = 20.0


class ServerHost:
    """The actor; the server ends with it."""

    def __init__(self) -> None:
        self._server: ServerProcess | None = None

    async def start(self, order: ServerOrder) -> tuple[str, str]:
        """Start a server that other nodes reach; return its address and its token."""
        order = replace(order, host=ray.util.get_node_ip_address())
        self._server = await start_here(order)
        return self._server.url, self._server.token

    async def ended(self) -> str:
        assert self._server is not None, "it was started"
        return await self._server.ended()

    async def stop(self) -> None:
        assert self._server is not None, "it was started"
        await self._server.stop()


class ActorServer:
    """A `RunningServer` on some node; `actor` is a handle, whose methods Ray makes."""

    def __init__(self, actor: Any, url: str, token: str) -> None:
        self._actor, self.url, self.token = actor, url, token

    async def ended(self) -> str:
        try:
            return await self._actor.ended.remote()
        except RayError as error:
            return f"its actor ended ({type(error).__name__})"

    def kill(self) -> None:
        with contextlib.suppress(RayError, ValueError):
            ray.kill(self._actor)

    async def stop(self) -> None:
        with contextlib.suppress(RayError, TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self._actor.stop.remote()
        self.kill()


async def start_server(order: ServerOrder, options: Mapping[str, object]) -> ActorServer:
    """Start a server where `options` place its actor. Raises EnvError where it does not start."""
    actor: Any = (
        ray.remote(ServerHost).options(max_restarts=0, max_task_retries=0, **options).remote()
    )
    try:
        async with asyncio.timeout(_PLACE_TIMEOUT_S):
            url, token = await actor.start.remote(order)
    except BaseException as error:
        ray.kill(actor)
        if isinstance(error, TimeoutError):
            raise EnvError(
                f"no node had room for a server of {order.env!r} within {_PLACE_TIMEOUT_S:g} s"
            ) from None
        if isinstance(error, RayError):
            cause = getattr(error, "cause", None)  # what the actor itself raised
            raise EnvError(str(cause or error)) from error
        raise
    return ActorServer(actor, url, token)
