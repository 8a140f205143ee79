"""An event loop whose clock jumps to the next timer whenever nothing else is to be done.

Whoever only sleeps takes no time, and what a run of sleepers takes is the same on any machine. Work
on threads counts as instantaneous: the clock stands still until it has ended or sleeps itself.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

_T = TypeVar("_T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps instead of waiting."""

    def __init__(self) -> None:
        self._now, self._num_busy, self._lock = 0.0, 0, threading.Lock()
        self._owner = threading.get_ident()
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float | None, is_idle: bool) -> bool:
        """Move the clock instead of waiting; return whether the caller has to wait after all."""
        with self._lock:
            if seconds and is_idle and not self._num_busy:
                self._now += seconds
            return seconds is None or self._num_busy > 0

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., _T], *args: Any
    ) -> asyncio.Future[_T]:  # Any: as the base class has it
        self._count_busy(1)
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(lambda _: self._count_busy(-1))
        return future

    def sleep(self, seconds: float) -> None:
        """What `time.sleep` is for work of this loop or on its threads."""
        if threading.get_ident() == self._owner:
            self._now += seconds
            return
        over = threading.Event()

        def wake() -> None:
            self._count_busy(1)
            over.set()

        def begin() -> None:
            self.call_later(seconds, wake)
            self._count_busy(-1)

        self.call_soon_threadsafe(begin)
        assert over.wait(60)

    def _count_busy(self, change: int) -> None:
        with self._lock:
            self._num_busy += change


class _Selector(selectors.DefaultSelector):  # pyrefly: ignore - a class chosen by the platform
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        return super().select(60) if self._loop.jump(timeout, not found) else []


def virtual_seconds(work: Callable[[VirtualLoop], Coroutine[Any, Any, _T]]) -> tuple[_T, float]:
    """Run something to its end; return its result and what the clock shows."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work(loop)), loop.time()
    finally:
        loop.close()
