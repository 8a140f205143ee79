"""The wall clock of an episode, which stands still while the episode has to wait.

The limit on an episode's time is for what is slow or stuck. An episode that waits for weights, for
the learner or for an engine that is replaced is neither, so that time does not count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol


class Clock(Protocol):
    """What a wait needs of an episode's clock, which may be in another process."""

    @property
    def seconds(self) -> float: ...

    def stopped(self) -> AbstractContextManager[None]: ...


_PRESENT: ContextVar[Clock | None] = ContextVar("episode_clock", default=None)
"""The clock of the episode that the running task plays."""


class EpisodeClock:
    """Seconds since an episode began, without those in which it had to wait."""

    def __init__(self, deadline: asyncio.Timeout) -> None:
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._paused_s = 0.0

    @property
    def seconds(self) -> float:
        return self._loop.time() - self._started - self._paused_s

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stand still inside."""
        when, stopped_at = self._deadline.when(), self._loop.time()
        if when is None:  # another task of the episode has stopped it
            yield
            return
        self._deadline.reschedule(None)
        try:
            yield
        finally:
            pause_s = self._loop.time() - stopped_at
            self._paused_s += pause_s
            self._deadline.reschedule(when + pause_s)


@asynccontextmanager
async def running_clock(max_seconds: float) -> AsyncIterator[EpisodeClock]:
    """Give the running task a clock; raises TimeoutError when it shows `max_seconds`."""
    async with asyncio.timeout(max_seconds) as deadline:
        clock = EpisodeClock(deadline)
        before = _PRESENT.set(clock)
        try:
            yield clock
        finally:
            _PRESENT.reset(before)


def use_clock(clock: Clock) -> None:
    """Make it the clock of the running task, to its end."""
    _PRESENT.set(clock)


def present_clock() -> Clock | None:
    """Return the clock of the episode that the running task plays, if it plays one."""
    return _PRESENT.get()


def episode_time() -> float:
    """Return the seconds of the episode that the running task plays; without one, any clock's."""
    clock = _PRESENT.get()
    return time.monotonic() if clock is None else clock.seconds


def stopped_clock() -> AbstractContextManager[None]:
    """Let the clock of the episode that the running task plays, if any, stand still inside."""
    clock = _PRESENT.get()
    return nullcontext() if clock is None else clock.stopped()
