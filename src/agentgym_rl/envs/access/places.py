"""The places of a pool of environment servers (pool.py), and the servers that fill them.

A place is an address, where somebody else keeps a server alive, or one for which the run starts a
server itself, and another where that dies. A server that died never serves again: what answers at
its address later is another, which is asked anew what it serves.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from agentgym_rl.envs.access.server_process import RunningServer, ServerOrder, StartServer
from agentgym_rl.envs.client import EnvSource
from agentgym_rl.envs.service.client.http import HttpEnvSource
from agentgym_rl.errors import EnvAwayError, EnvBusyError, EnvError, EnvTimeoutError

logger = logging.getLogger(__name__)

HasOthers: TypeAlias = Callable[[], bool]
"""Whether an episode may find a place on another server now."""

REST_S = 1.0
"""How long a server without a free place gets no new episode."""
_CHECK_EVERY_S = 5.0
_CHECK_TIMEOUT_S = 10.0
_MAX_PAUSE_S = 60.0
_MAX_MISSED = 3
"""Checks without an answer before a silent server is away: the event loop of a run that updates
hears nothing, and may then take an answer for a late one."""


class PooledServer:
    """One server while it serves in a pool."""

    def __init__(
        self, name: str, source: EnvSource, *, running: RunningServer | None, is_checked: bool
    ) -> None:
        """`running` is one that the run has started; `is_checked`: asking how it is costs it
        nothing, so it is asked all the time."""
        self.name, self.source = name, source
        self._running, self._is_checked = running, is_checked
        self.num_open = 0
        """Episodes of this pool."""
        self.rests_until = 0.0
        """When a server that was full is asked again, by the clock of the event loop."""
        self._num_failed = 0
        """Tries to begin an episode with it that failed in a row."""
        self._avoided_until = 0.0
        """By the same clock."""
        self.is_serving = False
        self.reason = ""
        """Why it does not serve."""
        self.has_ended = False
        """Whether it is known never to answer again."""
        self._is_doubted = asyncio.Event()

    @property
    def is_resting(self) -> bool:
        return self.rests_until > asyncio.get_running_loop().time()

    def rest(self) -> None:
        """Note that it has no free place now."""
        self.rests_until = asyncio.get_running_loop().time() + REST_S

    @property
    def is_avoided(self) -> bool:
        """Whether episodes fail to begin on it, so that others get the new ones."""
        return self._avoided_until > asyncio.get_running_loop().time()

    def note_begun(self) -> None:
        """Note that an episode has begun on it."""
        self._num_failed, self._avoided_until = 0, 0.0

    def note_not_begun(self, error: EnvError) -> None:
        """Note that an episode could not begin; many that began together count once."""
        if not self.is_avoided:
            logger.warning("%s gets fewer new episodes, since one failed: %s", self.name, error)
            self._avoid()

    def try_again(self) -> None:
        """Note a new episode: after failures it is a trial, and the only one until it has begun."""
        if self._num_failed and not self.is_avoided:
            self._avoid()

    def _avoid(self) -> None:
        pause_s = min(REST_S * 2**self._num_failed, _MAX_PAUSE_S)
        self._num_failed += 1
        self._avoided_until = asyncio.get_running_loop().time() + pause_s

    def note_away(self, reason: str) -> None:
        """Note that it did not answer a call: it gets no new episodes until it is looked after."""
        if self.is_serving:
            self.is_serving, self.reason = False, reason
            self._is_doubted.set()

    async def until_away(self) -> None:
        """Return when it serves no more, with the reason noted."""
        ended = asyncio.create_task(self._ended())
        try:
            while await self._may_serve(ended):
                pass
        finally:
            self.is_serving = False
            ended.cancel()

    async def check(self) -> EnvError | None:
        """Ask it how it is; return why it does not answer."""
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT_S):
                await self.source.check()
        except EnvBusyError:
            self.rest()
        except EnvError as error:
            return error
        except TimeoutError:
            return EnvTimeoutError(f"no answer within {_CHECK_TIMEOUT_S:g} s")
        return None

    @property
    def address(self) -> tuple[str, str] | None:
        """Address and token of one that the run has started."""
        return None if self._running is None else (self._running.url, self._running.token)

    async def aclose(self) -> None:
        try:
            await self.source.aclose()
        finally:
            if self._running is not None:
                await self._running.stop()

    async def _may_serve(self, ended: asyncio.Task[str]) -> bool:
        """Wait until something happens or a check is due; return whether it may still serve."""
        doubted = asyncio.create_task(self._is_doubted.wait())
        try:
            waits = {ended, doubted}
            await asyncio.wait(waits, timeout=_CHECK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            doubted.cancel()
        if ended.done():
            self.has_ended, self.reason = True, ended.result()
            return False
        is_doubted = self._is_doubted.is_set()
        self._is_doubted.clear()
        if is_doubted and self._running is None:
            return False  # whoever answers there next is asked what it serves
        if not is_doubted and not self._is_checked:
            return True
        for _ in range(_MAX_MISSED):
            failure = await self.check()
            if failure is None:
                self.is_serving = True
                return True
            self.reason = str(failure)
            if isinstance(failure, EnvAwayError) and self._running is None:
                return False
            await asyncio.wait({ended}, timeout=REST_S)
            if ended.done():
                self.has_ended, self.reason = True, ended.result()
                return False
        if self._running is not None:
            self._running.kill()
            self.has_ended = True
        return False

    async def _ended(self) -> str:
        if self._running is None:
            await asyncio.Event().wait()  # nobody says so
            raise AssertionError("it waits until it is cancelled")
        return await self._running.ended()


class Place(ABC):
    """Where one server after another serves."""

    starts_servers: bool

    def __init__(self, name: str) -> None:
        self.name = name
        self.server: PooledServer | None = None
        self.reason = ""
        """Why there is none."""
        self.lost_at: float | None = None
        """When it lost a server in whose place none serves yet."""

    @property
    def is_serving(self) -> bool:
        return self.server is not None and self.server.is_serving

    @property
    def has_room(self) -> bool:
        """Whether a new episode may find a place there."""
        server = self.server
        return server is not None and server.is_serving and not server.is_resting

    @abstractmethod
    async def find(self, has_others: HasOthers) -> PooledServer:
        """Return a server that may serve, not asked yet. Raises EnvError where it cannot be
        started."""


class AddressPlace(Place):
    """An address; `connect` makes a source of what is there."""

    starts_servers = False

    def __init__(
        self, url: str, connect: Callable[[str, HasOthers], EnvSource], *, is_checked: bool
    ) -> None:
        super().__init__(f"the environment server at {url}")
        self._url, self._connect, self._is_checked = url, connect, is_checked

    async def find(self, has_others: HasOthers) -> PooledServer:
        source = self._connect(self._url, has_others)
        return PooledServer(self.name, source, running=None, is_checked=self._is_checked)


class NamedPlace(Place):
    """A place that another process of the run keeps filled; `find_address` asks it where."""

    starts_servers = False

    def __init__(
        self, name: str, find_address: Callable[[], Awaitable[tuple[str, str]]], *, timeout_s: float
    ) -> None:
        super().__init__(name)
        self._find_address, self._timeout_s = find_address, timeout_s

    async def find(self, has_others: HasOthers) -> PooledServer:
        url, token = await self._find_address()
        source = HttpEnvSource(url, token=token, timeout_s=self._timeout_s, has_others=has_others)
        return PooledServer(self.name, source, running=None, is_checked=True)


class StartedPlace(Place):
    """A place for which the run starts servers."""

    starts_servers = True

    def __init__(self, number: int, order: ServerOrder, start: StartServer) -> None:
        super().__init__(f"environment server {number} of {order.env}")
        self._order, self._start = order, start

    async def find(self, has_others: HasOthers) -> PooledServer:
        running = await self._start(self._order)
        source = HttpEnvSource(
            running.url,
            token=running.token,
            timeout_s=self._order.call_timeout_s,
            has_others=has_others,
        )
        return PooledServer(self.name, source, running=running, is_checked=True)
