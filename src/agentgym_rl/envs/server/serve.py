"""A server process: the application of app.py under uvicorn, on an address that is safe."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType

import uvicorn

from agentgym_rl.envs.server.app import EnvApp
from agentgym_rl.envs.server.backend import ServerLimits

logger = logging.getLogger(__name__)

_KEEP_ALIVE_S = 75
"""Longer than a client keeps an idle connection (client/http.py), so that only it closes one."""
_GRACE_S = 10
"""How long requests that are running may take to finish once the server stops."""
_WEBSOCKET_PING_S = 20.0
"""A peer that does not answer two of these in time has gone, and its episode with it."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, and who may use it. Port 0 takes a free port.

    Raises ValueError for a host that others can reach without a token, unless `is_open` says that
    this is meant.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    is_open: bool = False

    def __post_init__(self) -> None:
        if self.token == "":
            raise ValueError("the token is empty: give one, or none at all")
        if not (is_loopback(self.host) or self.token or self.is_open):
            raise ValueError(
                f"host {self.host!r} can be reached from other machines, and whoever reaches it "
                "can use it: set a token (--token), use 127.0.0.1, or say that this is meant "
                "(--open)"
            )


class EnvServer(uvicorn.Server):
    """The server of one environment. `run()` blocks; `should_exit = True` stops it gracefully.

    `num_workers` processes hold the episodes; 0 uses this one. `on_ready` gets the address
    ("http://127.0.0.1:41001") once requests are answered. Raises ValueError for an address that
    cannot be bound, an unknown environment or option; `run` raises EnvError when a worker process
    does not start.

    SIGTERM lets open episodes go on for `limits.drain_s`, refusing new ones, before it stops; a
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
        self._app = EnvApp(env, options, self._limits, token=address.token, num_workers=num_workers)
        super().__init__(
            uvicorn.Config(
                self._app,
                http="httptools",
                # Above the limit on messages, so that a large one is refused in words.
                ws_max_size=4 * self._limits.max_body_bytes,
                ws_ping_interval=_WEBSOCKET_PING_S,
                ws_ping_timeout=_WEBSOCKET_PING_S,
                log_config=None,  # whoever runs the server decides about logging
                log_level="warning",
                access_log=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        self._socket = bind(address.host, address.port)
        self._on_ready = on_ready
        self._draining: asyncio.Task[None] | None = None
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.url = f"http://{host}:{self._socket.getsockname()[1]}"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run(sockets or [self._socket])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:  # how uvicorn ends when the application does not start
            if self._app.start_failure is not None:
                raise self._app.start_failure from None
            raise
        if self.started and self._on_ready is not None:
            self._on_ready(self.url)

    async def on_tick(self, counter: int) -> bool:
        if self._app.is_draining and self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn raises the signal again after its shutdown; an end that was asked for is status 0.
        if sig == signal.SIGTERM and not self._app.is_draining:
            self._app.drain()
            return
        self.force_exit = self.should_exit
        self.should_exit = True

    async def _drain(self) -> None:
        """Stop when the last episode has ended, or time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.drain_s
        while (num_open := await self._app.num_episodes()) and loop.time() < deadline:
            await asyncio.sleep(0.1)
        if num_open:
            logger.warning("stopping with %d open episodes", num_open)
        self.should_exit = True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ValueError where there is none to have."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ValueError(f"cannot listen on {host}:{port}: {error}; try another port") from error
