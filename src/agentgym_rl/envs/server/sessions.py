"""The episodes of a server: places, leases, idempotent steps, and what happens when one fails.

Each session holds a `LocalEnvClient`, which runs the environment on its own thread with a deadline
and guards the order of calls. HTTP is in app.py.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agentgym_rl.envs.client.local import LocalEnvClient, LocalEnvSource
from agentgym_rl.envs.protocol import ErrorKind, ProtocolError
from agentgym_rl.errors import EnvBusyError, EnvError, EnvGoneError
from agentgym_rl.types import StepResult, Task

logger = logging.getLogger(__name__)

_NUM_REMEMBERED = 1024
"""How many ended sessions are remembered, to say why they are gone."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What a server allows."""

    capacity: int = 256
    """Episodes that can be open at a time."""
    call_timeout_s: float = 60.0
    """Deadline of one call to an environment."""
    lease_s: float = 600.0
    """An episode without a call for so long is closed."""
    max_body_bytes: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("capacity", "call_timeout_s", "lease_s", "max_body_bytes"):
            value = getattr(self, name)  # one rule for all four
            if value <= 0:
                raise ValueError(f"{name} must be above 0, got {value}")


@dataclass(frozen=True, slots=True)
class _Answer:
    """The latest step, kept so that a repeat of it is answered without doing it again."""

    round_index: int
    action: str
    result: StepResult


class Session:
    """One place of a server. Its calls are made one at a time, inside `SessionStore.use`."""

    def __init__(self, client: LocalEnvClient) -> None:
        self.id = secrets.token_urlsafe(16)
        self.client = client
        self.lock = asyncio.Lock()
        self.num_users = 0
        """Requests that are running or waiting; a session in use is never idle."""
        self.last_used = time.monotonic()
        self._latest: _Answer | None = None

    async def reset(self, task: Task) -> str:
        self._latest = None
        return await self.client.reset(task)

    async def step(self, round_index: int, action: str) -> StepResult:
        """Do the next round, or answer the latest one again. Refuses every other round."""
        latest = self._latest
        if latest is not None and round_index == latest.round_index:
            if action != latest.action:
                raise ProtocolError(
                    ErrorKind.WRONG_ROUND,
                    f"round {round_index} was played with another action; "
                    f"the next is round {self.client.num_rounds}",
                )
            return latest.result
        if round_index != self.client.num_rounds:
            raise ProtocolError(
                ErrorKind.WRONG_ROUND,
                f"got round {round_index}, expected round {self.client.num_rounds}",
            )
        result = await self.client.step(action)
        self._latest = _Answer(round_index, action, result)
        return result


class SessionStore:
    """Every session of a server."""

    def __init__(self, source: LocalEnvSource, limits: ServerLimits) -> None:
        self._source = source
        self._limits = limits
        self._sessions: dict[str, Session] = {}
        self._gone: OrderedDict[str, str] = OrderedDict()
        self._left_behind: list[LocalEnvClient] = []
        self._num_opening = 0
        self.num_opened = 0
        self.num_failed = 0
        self.num_reaped = 0

    @property
    def num_episodes(self) -> int:
        """How many episodes have a place."""
        return len(self._sessions) + self._num_opening

    @property
    def num_abandoned(self) -> int:
        """How many threads are inside a call that nobody waits for any more."""
        self._left_behind = [client for client in self._left_behind if client.is_left_behind]
        return len(self._left_behind)

    async def create(self) -> Session:
        """Open an episode. Raises EnvBusyError when no place is free.

        An abandoned call keeps its place, so that hanging environments cannot pile up threads
        beyond the capacity.
        """
        if self.num_episodes + self.num_abandoned >= self._limits.capacity:
            raise EnvBusyError(
                f"all {self._limits.capacity} places are taken ({self.num_abandoned} of them by "
                "calls that passed their deadline)"
            )
        client = self._source.new_client()
        self._num_opening += 1
        try:
            await client.create()
        except EnvError:
            self.num_failed += 1
            await self._retire(client)
            raise
        finally:
            self._num_opening -= 1
        session = Session(client)
        self._sessions[session.id] = session
        self.num_opened += 1
        return session

    @asynccontextmanager
    async def use(self, session_id: str) -> AsyncIterator[Session]:
        """Give one request the session to itself and renew its lease.

        Raises EnvGoneError when there is none. A failure of the environment ends the session.
        """
        session = self._find(session_id)
        session.num_users += 1
        try:
            async with session.lock:
                self._find(session_id)  # it may have ended while this request waited
                try:
                    yield session
                except EnvError as error:
                    self.num_failed += session_id in self._sessions
                    await self._end(session, f"the environment failed: {error}")
                    raise
        finally:
            session.num_users -= 1
            session.last_used = time.monotonic()

    async def close(self, session_id: str) -> None:
        """End a session, also in the middle of a call; does nothing for an unknown one."""
        session = self._sessions.get(session_id)
        if session is not None:
            await self._end(session, "it was closed")

    async def reap(self) -> None:
        """End every session whose lease has run out."""
        oldest = time.monotonic() - self._limits.lease_s
        idle = [s for s in self._sessions.values() if s.num_users == 0 and s.last_used < oldest]
        if idle:
            logger.info(
                "closing %d episodes without a call for %g s", len(idle), self._limits.lease_s
            )
            self.num_reaped += len(idle)
            reason = f"it had no call for {self._limits.lease_s:g} s"
            await asyncio.gather(*(self._end(session, reason) for session in idle))

    async def reap_forever(self) -> None:
        """Reap until cancelled."""
        while True:
            await asyncio.sleep(min(self._limits.lease_s / 4, 30.0))
            try:
                await self.reap()
            except Exception:  # a reaper that died would let lost episodes fill the server
                logger.exception("reaping failed; trying again later")

    async def aclose(self) -> None:
        """End every session."""
        ends = [self._end(session, "the server stopped") for session in self._sessions.values()]
        await asyncio.gather(*ends)

    def _find(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            reason = self._gone.get(
                session_id, "it is unknown here (the server may have restarted)"
            )
            raise EnvGoneError(f"the episode is gone: {reason}")
        return session

    async def _end(self, session: Session, reason: str) -> None:
        if self._sessions.pop(session.id, None) is None:
            return
        self._gone[session.id] = reason
        if len(self._gone) > _NUM_REMEMBERED:
            self._gone.popitem(last=False)
        await self._retire(session.client)

    async def _retire(self, client: LocalEnvClient) -> None:
        await client.close()
        if client.is_left_behind:
            self._left_behind.append(client)
