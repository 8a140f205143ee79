"""An ASGI application under uvicorn on a safe address: the base of all our servers."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

_KEEP_ALIVE_S = 75
"""Longer than a client keeps an idle connection, so that only the client closes one."""
_GRACE_S = 10
"""How long running requests may take to finish once the server stops."""
_WEBSOCKET_PING_S = 20.0
"""A peer that does not answer two of these in time is gone, and its episode with it."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, and who may use it. Port 0 takes a free port.

    Raises ValueError for a host that others can reach without a token, unless `is_open`.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    is_open: bool = False

    def __post_init__(self) -> None:
        if self.token == "":
            raise ValueError("the token is empty: set one, or leave it out")
        if not (is_loopback(self.host) or self.token or self.is_open):
            raise ValueError(
                f"host {self.host!r} can be reached from other machines, and anyone who reaches it "
                "can use it: set a token (--token), use 127.0.0.1, or allow it (--open)"
            )


class BoundServer(uvicorn.Server):
    """A server that binds its port when it is created. `run()` blocks until SIGTERM or SIGINT.

    `on_ready` gets the address ("http://127.0.0.1:41001") once requests are answered. Raises
    ValueError if the address cannot be bound.
    """

    def __init__(
        self,
        app: ASGIApp,
        address: Address,
        *,
        max_message_bytes: int | None,
        on_ready: Callable[[str], None] | None = None,
        grace_s: int = _GRACE_S,
    ) -> None:
        """Without `max_message_bytes` the server takes no WebSockets."""
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none" if max_message_bytes is None else "auto",
                # Above our own limit, which refuses a large message with a reason.
                ws_max_size=4 * (max_message_bytes or 0),
                ws_ping_interval=_WEBSOCKET_PING_S,
                ws_ping_timeout=_WEBSOCKET_PING_S,
                log_config=None,  # the caller configures logging
                log_level="warning",
                access_log=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=grace_s,
            )
        )
        self._socket = bind(address.host, address.port)
        self._on_ready = on_ready
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.url = f"http://{host}:{self._socket.getsockname()[1]}"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run(sockets or [self._socket])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._on_ready is not None:
            self._on_ready(self.url)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn would raise the signal again after its shutdown; we end with status 0.
        self.force_exit = self.should_exit
        self.should_exit = True


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ValueError if the address cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ValueError(f"cannot listen on {host}:{port}: {error}; try another port") from error
