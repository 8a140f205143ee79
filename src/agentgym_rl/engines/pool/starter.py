"""Starts the members of a pool, also again, and lets the pool hear of their ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from agentgym_rl.engines.pool.places import Member, Places
from agentgym_rl.errors import EngineError


class Startable(Member, Protocol):
    """A member that is made at once, and ready later."""

    def ready(self) -> None:
        """Wait until it is; raises EngineError if it cannot be."""


StartableT = TypeVar("StartableT", bound=Startable)
Begin = Callable[[int, Callable[[StartableT], None]], StartableT]
"""Makes the member of a place; the function is to be told of its end."""


class Starter(Generic[StartableT]):
    """Of one pool."""

    def __init__(self, begin: Begin[StartableT]) -> None:
        self._begin = begin
        self._pool: Places[StartableT] | None = None
        self._lock = threading.Lock()
        """Guards the next two."""
        self._starting = list[StartableT]()
        self._is_over = False

    def all(self, number: int) -> list[StartableT]:
        """Return this many members, which start at the same time."""
        members = list[StartableT]()
        try:
            members += [self._begin(place, self._ended) for place in range(number)]
            for member in members:
                member.ready()
        except BaseException:
            for member in members:
                member.close()
            raise
        return members

    def one(self, place: int) -> StartableT:
        """Return the member of a place, started anew; EngineError also if the pool is closed."""
        member = self._begin(place, self._ended)
        with self._lock:
            self._starting.append(member)
            is_over = self._is_over
        try:
            if is_over:
                raise EngineError("the pool is closed")
            member.ready()
        except EngineError:
            member.close()
            raise
        finally:
            with self._lock:
                self._starting.remove(member)
        return member

    def end(self) -> None:
        """End what is being started; nothing more is.

        A rollout worker would wait for the addresses of servers that are gone.
        """
        with self._lock:
            self._is_over = True
            starting = [*self._starting]
        for member in starting:
            member.close()

    def report_to(self, pool: Places[StartableT], members: Sequence[StartableT]) -> None:
        """Let the pool hear of every member that ends, also of one that has by now, and the
        starter of the pool's end."""
        self._pool = pool
        pool.end_starts_by(self.end)
        for member in members:
            if not member.is_alive:
                pool.ended(member)

    def _ended(self, member: StartableT) -> None:
        if self._pool is not None:
            self._pool.ended(member)
