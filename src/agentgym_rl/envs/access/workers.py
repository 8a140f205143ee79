"""Episodes in private worker processes: a server that starts and ends with the source.

For environments that compute much: one process steps one episode at a time, and threads do not
help, because Python's lock lets only one of them run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import sys
from collections.abc import Mapping
from typing import Self

from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.client import EnvClient, EnvSource
from agentgym_rl.envs.service.client.http import HttpEnvSource
from agentgym_rl.errors import EnvError
from agentgym_rl.types import Task

_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 15.0
_OUTAGE_S = 5.0
"""Nobody starts this server again, so there is nothing to wait for."""
_CAPACITY = 1 << 16
"""Beyond what a run opens at a time: limits on episodes are the rollout's."""


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
        self._env, self._num_workers = env, num_workers
        self._options, self._timeout_s = dict(options or {}), timeout_s
        self._server: asyncio.subprocess.Process | None = None
        self._source: HttpEnvSource | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def spec(self) -> EnvSpec:
        return await self._remote.spec()

    async def aclose(self) -> None:
        if self._source is not None:
            await self._source.aclose()
            self._source = None
        if self._server is None:
            return
        server, self._server = self._server, None
        assert server.stdin is not None, "it was asked for"
        server.stdin.close()
        try:
            await asyncio.wait_for(server.wait(), _STOP_TIMEOUT_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                server.kill()
            await server.wait()

    async def _new_client(self) -> EnvClient:
        return await self._remote._new_client()  # the same work, one layer down

    async def _do_tasks(self, split: str) -> tuple[Task, ...]:
        return await self._remote.tasks(split)

    @property
    def _remote(self) -> HttpEnvSource:
        if self._source is None:
            raise EnvError(f"the workers of {self._env!r} are not running: enter the source first")
        return self._source

    async def _start(self) -> None:
        token = secrets.token_urlsafe(24)
        order = {
            "env": self._env,
            "token": token,
            "options": self._options,
            "num_workers": self._num_workers,
            "capacity": _CAPACITY,
            "call_timeout_s": self._timeout_s,
        }
        self._server = server = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "agentgym_rl.envs.access.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # A signal from the terminal is the run's to handle: its episodes end first.
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert server.stdin is not None and server.stdout is not None, "both were asked for"
        server.stdin.write(json.dumps(order).encode() + b"\n")
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                line = await server.stdout.readline()
        except TimeoutError:
            raise EnvError(
                f"the workers of {self._env!r} did not start within {_START_TIMEOUT_S:g} s"
            ) from None
        if not line:
            raise EnvError(f"the workers of {self._env!r} exited while starting; see the log above")
        answer = json.loads(line)
        if "error" in answer:
            raise EnvError(answer["error"])
        self._source = HttpEnvSource(
            answer["url"], token=token, timeout_s=self._timeout_s, outage_s=_OUTAGE_S
        )
