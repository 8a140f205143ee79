"""Episodes in private worker processes: a server that starts and ends with the source.

For environments that compute much: one process steps one episode at a time, and threads do not
help, because Python's lock lets only one of them run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from agentgym_rl.envs.access.server_process import ServerOrder, ServerProcess, start_here
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.client import EnvClient, EnvSource
from agentgym_rl.envs.service.client.http import HttpEnvSource
from agentgym_rl.errors import EnvError
from agentgym_rl.types import Task

_OUTAGE_S = 5.0
"""Nobody starts this server again, so there is nothing to wait for."""


class WorkersEnvSource(EnvSource):
    """Clients of an environment in `num_workers` processes; they start on entering the source.

    Raises ValueError for an unknown environment or option, EnvError when a worker does not start.
    """

    def __init__(
        self,
        env: str,
        *,
        num_workers: int,
        options: Mapping[str, object] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self._order = ServerOrder(env, dict(options or {}), num_workers, timeout_s)
        self._server: ServerProcess | None = None
        self._source: HttpEnvSource | None = None

    async def __aenter__(self) -> Self:
        self._server = server = await start_here(self._order)
        self._source = HttpEnvSource(
            server.url,
            token=server.token,
            timeout_s=self._order.call_timeout_s,
            outage_s=_OUTAGE_S,
        )
        return self

    async def spec(self) -> EnvSpec:
        return await self._remote.spec()

    async def aclose(self) -> None:
        if self._source is not None:
            await self._source.aclose()
            self._source = None
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()

    async def _new_client(self) -> EnvClient:
        return await self._remote._new_client()  # the same work, one layer down

    async def _do_tasks(self, split: str) -> tuple[Task, ...]:
        return await self._remote.tasks(split)

    @property
    def _remote(self) -> HttpEnvSource:
        if self._source is None:
            raise EnvError(
                f"the workers of {self._order.env!r} are not running: enter the source first"
            )
        return self._source
