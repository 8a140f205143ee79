"""A server of the OpenEnv routes on a free port, and sessions by hand."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from agentgym_rl.envs.compat.openenv.routes import routes
from agentgym_rl.envs.service.server.episode_service import EpisodeService
from waiting import wait_for


@contextmanager
def openenv_server(
    service: EpisodeService,
    *,
    ping_s: float = 20.0,
    pong_timeout_s: float = 60.0,
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
            ws_max_size=4 * max_message_bytes,
            ws_ping_interval=ping_s,
            ws_ping_timeout=pong_timeout_s,
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
        thread.join(60)
        assert not thread.is_alive(), "the server did not stop"


class RawSocket:
    """A session by hand, to see frames as they are."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def __call__(self, kind: str, data: object = None) -> dict:
        """Send a message and return the whole frame that answers it."""
        return await self.send({"type": kind} if data is None else {"type": kind, "data": data})

    async def send(self, message: object) -> dict:
        return await self.send_raw(json.dumps(message))

    async def send_raw(self, frame: str | bytes) -> dict:
        if isinstance(frame, str):
            await self.socket.send_str(frame)
        else:
            await self.socket.send_bytes(frame)
        return json.loads(await self.socket.receive_str(timeout=60))


@asynccontextmanager
async def raw_socket(url: str) -> AsyncIterator[RawSocket]:
    """Give a session of the server at `url`."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{url}/ws", max_msg_size=0) as socket,
    ):
        yield RawSocket(socket)
