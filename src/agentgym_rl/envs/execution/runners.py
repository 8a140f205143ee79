"""Where blocking calls run, one after another: on a thread, or in turns on the event loop.

A `ThreadRunner` can be left behind when a call hangs:

    event loop                      daemon thread
    put([a, b, c])        ------>   a.run()  b.run()  c.run()
    a.finish() b.finish() <------   several at a time, so that a thousand short calls do not
                                    wake the loop a thousand times

A call on a thread that passes its deadline cannot be stopped. Its runner is left behind with it
(`leave_behind`): the calls that waited go to another runner, and the thread ends when the call
returns, if ever.

A `LoopRunner` needs a process whose main thread runs the event loop, and environments whose calls
only compute. There it takes half the time of a thread, which would fight with the event loop for
the interpreter. A call that passes its deadline is interrupted by an alarm.

What the calls are belongs to whoever queues them: thread_calls.py for calls that a coroutine
awaits, guarded.py for blocking callers, service/server/session.py for those of a server.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from types import FrameType
from typing import TypeAlias

logger = logging.getLogger(__name__)

_MAX_DELAY_S = 0.005
"""How long a finished call may wait for others before its answer is sent."""
_MAX_HELD_S = 0.05
"""How long a finished call may be held up by a slow one that runs after it."""


class QueuedCall(ABC):
    """One call on its way through a runner."""

    __slots__ = ()

    @abstractmethod
    def run(self) -> None:
        """Do it; on the runner's thread. Must not raise."""

    def interrupt(self, timeout_s: float) -> None:  # noqa: B027 - only a LoopRunner interrupts
        """Take note that it passed its deadline and was stopped."""

    def finish(self) -> None:  # noqa: B027 - nobody may be waiting for it
        """Deliver the answer; on the event loop, after `run`."""

    def clean_up(self) -> None:  # noqa: B027 - it may hold nothing
        """Give back what it holds; on the thread, when it returns after it was left behind."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The calls that a runner had in hand when it was left behind."""

    running: QueuedCall | None
    waiting: Sequence[QueuedCall]


class OverdueInterrupt(BaseException):
    """Raised inside a call that has passed its deadline; no `except Exception` stops it."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"the call passed its deadline of {timeout_s:g} s")
        self.timeout_s = timeout_s


class LoopRunner:
    """Runs calls on the event loop, in turns of a few milliseconds; otherwise a `ThreadRunner`.

    Its alarm takes SIGALRM and the process's timer, so there is one in a process.
    """

    def __init__(self, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._waiting: deque[QueuedCall] = deque()
        self._running_since: float | None = None
        self._is_scheduled = False
        tick_s = min(timeout_s / 4, 1.0)
        signal.signal(signal.SIGALRM, self._interrupt_overdue)
        signal.setitimer(signal.ITIMER_REAL, tick_s, tick_s)

    @property
    def is_alive(self) -> bool:
        return False

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def put(self, calls: Sequence[QueuedCall]) -> None:
        self._waiting.extend(calls)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run_turn)

    def leave_behind(self, *, after_s: float = 0.0) -> Unfinished | None:
        if after_s:
            return None  # the alarm sees to deadlines
        waiting = tuple(self._waiting)
        self._waiting.clear()
        return Unfinished(None, waiting)

    def deliver(self) -> None:
        """Nothing to do: a call is finished as soon as it has run."""

    def stop(self) -> None:
        """Nothing to do: there is no thread."""

    def _run_turn(self) -> None:
        """Run calls for a while, then let the event loop read and write."""
        now = time.monotonic()
        end = now + _MAX_DELAY_S
        while self._waiting and now < end:
            call = self._waiting.popleft()
            self._running_since = now
            try:
                call.run()
                self._running_since = None
            except OverdueInterrupt as interrupt:
                call.interrupt(interrupt.timeout_s)
            call.finish()
            now = time.monotonic()
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            self._loop.call_soon(self._run_turn)

    def _interrupt_overdue(self, signal_number: int, frame: FrameType | None) -> None:
        """The alarm: runs on the main thread, inside the call that is running, if one is."""
        since = self._running_since
        if since is not None and time.monotonic() - since > self._timeout_s:
            self._running_since = None  # once a call
            raise OverdueInterrupt(self._timeout_s)


class ThreadRunner:
    """Runs calls in order on a thread of its own, which starts with the first of them.

    All methods are for the event loop, or the thread, that made it.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop | None) -> None:
        """Calls finish on the event loop; without one, on the runner's own thread."""
        self._name = name
        self._loop = loop
        self._waiting: deque[QueuedCall] = deque()
        self._signals: SimpleQueue[bool] = SimpleQueue()
        self._lock = threading.Lock()
        self._running: QueuedCall | None = None
        self._running_since = 0.0
        self._finished: list[QueuedCall] = []
        self._is_reported = False
        self._is_closed = False
        self._given_up: QueuedCall | None = None
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_alive(self) -> bool:
        """Whether its thread exists."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_busy(self) -> bool:
        """Whether a call runs or waits."""
        return self._running is not None or bool(self._waiting)

    def put(self, calls: Sequence[QueuedCall]) -> None:
        """Run these after the ones that wait already."""
        assert not self._is_closed, "a runner that was stopped or left behind takes no calls"
        if len(calls) > 1 or self.is_busy:
            self._watch_held_up()
        self._waiting.extend(calls)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._signals.put(True)

    def leave_behind(self, *, after_s: float = 0.0) -> Unfinished | None:
        """Give up on the running call, and return it with those that wait.

        Returns None, and does nothing, unless a call has run for `after_s`. Call `deliver`
        afterwards, when nothing sends calls here any more.
        """
        with self._lock:
            now = time.monotonic()
            if after_s and (self._running is None or now - self._running_since <= after_s):
                return None
            self._is_closed = True
            self._given_up = self._running
            unfinished = Unfinished(self._running, tuple(self._waiting))
            self._waiting.clear()
        self._signals.put(False)
        return unfinished

    def stop(self) -> None:
        """End after what is in hand; returns at once. Takes no calls any more."""
        self._is_closed = True
        self._signals.put(False)

    def deliver(self) -> None:
        """Finish the calls that have run."""
        with self._lock:
            finished, self._is_reported = self._finished.copy(), False
            self._finished.clear()
        for call in finished:
            call.finish()

    def _watch_held_up(self) -> None:
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(_MAX_HELD_S, self._deliver_held_up)

    def _deliver_held_up(self) -> None:
        """Deliver what the thread cannot report while a slow call runs."""
        self._timer = None
        self.deliver()
        if self.is_busy and not self._is_closed:
            self._watch_held_up()

    # What follows runs on the thread.

    def _work(self) -> None:
        is_wanted = True
        while is_wanted:
            is_wanted = self._signals.get()
            if not self._run_waiting():
                return
        self._report()

    def _run_waiting(self) -> bool:
        """Run what waits; return False when the runner was left behind meanwhile."""
        reported_at = time.monotonic()
        call: QueuedCall | None = None
        while True:
            with self._lock:
                if call is not None:
                    if call is self._given_up:
                        break
                    self._finished.append(call)
                if not self._waiting:
                    self._running = call = None
                    break
                call = self._running = self._waiting.popleft()
                now = self._running_since = time.monotonic()
            if now - reported_at > _MAX_DELAY_S:
                self._report()
                reported_at = now
            call.run()
        if call is not None:
            call.clean_up()
            return False
        self._report()
        return True

    def _report(self) -> None:
        """Have the event loop deliver what is finished."""
        with self._lock:
            if self._is_reported or not self._finished:
                return
            self._is_reported = True
        if self._loop is None:
            self.deliver()
            return
        try:
            self._loop.call_soon_threadsafe(self.deliver)
        except RuntimeError:
            logger.debug("the event loop closed before a call was delivered")


CallRunner: TypeAlias = LoopRunner | ThreadRunner
