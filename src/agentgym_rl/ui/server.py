"""The process behind `agentgym ui`: the application of app.py under uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from agentgym_rl.serving.bound import Address, BoundServer, is_loopback
from agentgym_rl.ui.app import make_app

_GRACE_S = 2


class UiServer(BoundServer):
    """Serves the runs below a folder. `run()` blocks; `should_exit = True` stops it.

    `envs` are classes ("module:Class") that may be played beside the registered environments.
    Raises ValueError for a path that is not a folder, and for an address that cannot be bound or
    that others reach, unless `is_public` says that this is meant.
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
            raise ValueError(f"{root} is not a folder; give the folder that holds your runs")
        if not (is_loopback(host) or is_public):
            raise ValueError(
                f"host {host!r} can be reached from other machines, and anyone who reaches it can "
                "read the runs and play: use 127.0.0.1, or allow it (--public)"
            )
        names = [host.lower(), socket.gethostname().lower()] if is_public else []
        super().__init__(
            make_app(root, names=names, envs=envs),
            Address(host, port, is_open=is_public),
            max_message_bytes=None,
            on_ready=on_ready,
            grace_s=_GRACE_S,
        )
