"""A server process that a run starts for itself, on this machine; child.py is its program.

It ends with its standard input, so also with a run that was killed. `StartServer` is where a
cluster puts a server elsewhere: `start_here` may run on the other machine, with that one's host.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Protocol, TypeAlias

from agentgym_rl.errors import EnvError, how_it_ended

_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 15.0
_CAPACITY = 1 << 16
"""Beyond what a run opens at a time: limits on episodes are the rollout's."""


@dataclass(frozen=True, slots=True)
class ServerOrder:
    """Which server is wanted."""

    env: str
    options: Mapping[str, object] = field(default_factory=dict)
    num_workers: int = 1
    """Processes that hold its episodes."""
    call_timeout_s: float = 60.0
    host: str = "127.0.0.1"
    """Where it listens; any host will do, since it asks for a token."""
    capacity: int = _CAPACITY


class RunningServer(Protocol):
    """A server that was started for a run, wherever it is."""

    @property
    def url(self) -> str: ...

    @property
    def token(self) -> str:
        """What its clients show."""
        ...

    async def ended(self) -> str:
        """Wait until it has ended by itself or was killed, and return how, in words."""
        ...

    def kill(self) -> None:
        """End it at once; `ended` returns soon after."""
        ...

    async def stop(self) -> None:
        """Have it end in order, by force where that takes too long. Safe to repeat."""
        ...


StartServer: TypeAlias = Callable[[ServerOrder], Awaitable[RunningServer]]
"""Returns when the server answers. Raises ValueError for a wrong order, EnvError where it does not
start."""


async def start_here(order: ServerOrder) -> ServerProcess:
    """Start a server as a process of this machine."""
    token = secrets.token_urlsafe(24)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "agentgym_rl.envs.access.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # A signal from the terminal is the run's to handle: its episodes end first.
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    except OSError as error:
        raise EnvError(f"no process for a server of {order.env!r}: {error}") from error
    try:
        url = await _address(process, order, token)
    except BaseException:
        await ServerProcess(process, "", token).stop(timeout_s=1.0)
        raise
    return ServerProcess(process, url, token)


class ServerProcess:
    """A `RunningServer` of this machine."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, token: str) -> None:
        self._process = process
        self.url, self.token = url, token

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ended(self) -> str:
        status = await self._process.wait()
        return f"it {how_it_ended(status)}" + ("; see the log above" if status >= 0 else "")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def stop(self, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        assert self._process.stdin is not None, "it was asked for"
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), timeout_s)
        except TimeoutError:
            self.kill()
            await self._process.wait()


async def _address(process: asyncio.subprocess.Process, order: ServerOrder, token: str) -> str:
    """Give a new process its order; return the address that it answers with."""
    assert process.stdin is not None and process.stdout is not None, "both were asked for"
    what = f"the server process of {order.env!r}"
    process.stdin.write(json.dumps({**asdict(order), "token": token}).encode() + b"\n")
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            line = await process.stdout.readline()
    except TimeoutError:
        raise EnvError(f"{what} did not start within {_START_TIMEOUT_S:g} s") from None
    if not line:
        raise EnvError(f"{what} exited while starting; see the log above")
    answer = json.loads(line)
    if "error" in answer:
        raise (ValueError if answer["kind"] == "order" else EnvError)(answer["error"])
    return answer["url"]
