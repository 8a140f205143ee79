"""The process behind `agentgym ui`: the application of app.py under uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from agentgym_rl.serving.bound import bind, is_loopback
from agentgym_rl.ui.app import make_app

_GRACE_S = 2


class UiServer(uvicorn.Server):
    """Serves the runs below a folder. `run()` blocks; `should_exit = True` stops it.

    `envs` are classes ("module:Class") that may be played beside the registered environments.
    `on_ready` gets the address once requests are answered. Raises ValueError for a folder that is
    none, and for an address that cannot be bound or that others reach, unless `is_public` says that
    this is meant.
    """

    def __init__(
        self,
        root: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        is_public: bool = False,
        envs: Sequence[str] = (),
        on_ready: Callable[[str], None] | None = None,
    ) -> None:
        if not root.is_dir():
            raise ValueError(f"{root} is no folder; give the folder that holds your runs")
        if not (is_loopback(host) or is_public):
            raise ValueError(
                f"host {host!r} can be reached from other machines, and whoever reaches it can "
                "read the runs and play: use 127.0.0.1, or say that this is meant (--public)"
            )
        self._socket = bind(host, port)
        self._on_ready = on_ready
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}"
        names = [host.lower(), socket.gethostname().lower()] if is_public else []
        super().__init__(
            uvicorn.Config(
                make_app(root, names=names, envs=envs),
                http="httptools",
                ws="none",
                log_config=None,
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run(sockets or [self._socket])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._on_ready is not None:
            self._on_ready(self.url)
