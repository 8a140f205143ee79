"""A server process: the application of app.py under uvicorn, on an address that is safe."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping
from types import FrameType

import uvicorn

from agentgym_rl.envs.server.app import create_app
from agentgym_rl.envs.server.sessions import ServerLimits

_KEEP_ALIVE_S = 75
"""Longer than a client keeps an idle connection (client/http.py), so that only it closes one."""
_GRACE_S = 10
"""How long requests that are running may take to finish after SIGTERM."""


def serve(
    env: str,
    *,
    options: Mapping[str, object] | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    limits: ServerLimits | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve `env` until SIGTERM or SIGINT; see `EnvServer` for the arguments."""
    server = EnvServer(
        env,
        options=options,
        host=host,
        port=port,
        token=token,
        limits=limits,
        on_ready=on_ready,
    )
    server.run()


class EnvServer(uvicorn.Server):
    """The server of one environment. `run()` blocks; `should_exit = True` stops it gracefully.

    Port 0 takes a free port. `on_ready` gets the address ("http://127.0.0.1:41001") once requests
    are answered. Raises ValueError for a host that others can reach without a token, an address
    that cannot be bound, an unknown environment or option.
    """

    def __init__(
        self,
        env: str,
        *,
        options: Mapping[str, object] | None = None,
        host: str = "127.0.0.1",
        port: int = 8000,
        token: str | None = None,
        limits: ServerLimits | None = None,
        on_ready: Callable[[str], None] | None = None,
    ) -> None:
        if not is_loopback(host) and not token:
            raise ValueError(
                f"host {host!r} can be reached from other machines: set a token, or use 127.0.0.1"
            )
        app = create_app(env, options, limits, token=token)
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                log_config=None,  # whoever runs the server decides about logging
                log_level="warning",
                access_log=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        self._socket = _bind(host, port)
        self._on_ready = on_ready
        address = f"[{host}]" if ":" in host else host
        self.url = f"http://{address}:{self._socket.getsockname()[1]}"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run(sockets or [self._socket])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._on_ready is not None:
            self._on_ready(self.url)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn raises the signal again after its shutdown; an end that was asked for is status 0.
        self.force_exit = self.should_exit
        self.should_exit = True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ValueError(f"cannot listen on {host}:{port}: {error}; try another port") from error
