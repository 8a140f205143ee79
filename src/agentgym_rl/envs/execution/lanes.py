"""Where the calls of episodes run, one after another: on threads, or in turns on the event loop.

A `ThreadLane` can be left behind when a call hangs:

    event loop                      lane (a daemon thread)
    put([a, b, c])        ------>   a.run()  b.run()  c.run()
    a.finish() b.finish() <------   several at a time, so that a thousand short calls do not
                                    wake the loop a thousand times

A call on a thread that passes its deadline cannot be stopped. Its lane is left behind with it
(`leave_behind`): the calls that waited go to another lane, and the thread ends when the call
returns, if ever.

An `InlineLane` needs a process whose main thread runs the event loop, and environments whose calls
only compute. There it takes half the time of a thread, which would fight with the event loop for
the interpreter. A call that passes its deadline is interrupted by an alarm.

What the calls are belongs to sessions.py.
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
from typing import Protocol

logger = logging.getLogger(__name__)

_MAX_DELAY_S = 0.005
"""How long a finished call may wait for others before its answer is sent."""
_MAX_HELD_S = 0.05
"""How long a finished call may be held up by a slow one that runs after it."""


class Errand(Protocol):
    """One call on its way through a lane."""

    def run(self) -> None:
        """Do it; on the lane's thread. Must not raise."""

    def interrupt(self, timeout_s: float) -> None:
        """Take note that it passed its deadline and was stopped."""

    def finish(self) -> None:
        """Deliver the answer; on the event loop, after `run`."""

    def clean_up(self) -> None:
        """Give back what it holds; on the thread, when it returns after it was left behind."""


@dataclass(frozen=True, slots=True)
class Remainder:
    """What a lane that is left behind had in hand."""

    running: Errand | None
    waiting: Sequence[Errand]


class OverdueInterrupt(BaseException):
    """Raised inside a call that has passed its deadline; no `except Exception` stops it."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"the call passed its deadline of {timeout_s:g} s")
        self.timeout_s = timeout_s


class Lane(ABC):
    """Runs errands in order. All methods are for the event loop that made it."""

    @property
    @abstractmethod
    def is_alive(self) -> bool:
        """Whether a thread of it exists."""

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """Whether an errand runs or waits."""

    @abstractmethod
    def put(self, errands: Sequence[Errand]) -> None:
        """Run these after the ones that wait already."""

    @abstractmethod
    def leave_behind(self, *, after_s: float = 0.0) -> Remainder | None:
        """Give up on the running errand, and return it with those that wait.

        None, and nothing happens, where an errand runs for less than `after_s`. Call `deliver`
        afterwards, when nothing sends errands here any more.
        """

    @abstractmethod
    def deliver(self) -> None:
        """Finish the errands that have run."""

    @abstractmethod
    def stop(self) -> None:
        """End after what is in hand; returns at once. Takes no errands any more."""


class InlineLane(Lane):
    """Runs errands on the event loop, in turns of a few milliseconds.

    Its alarm takes SIGALRM and the process's timer, so there is one in a process.
    """

    def __init__(self, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._waiting: deque[Errand] = deque()
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

    def put(self, errands: Sequence[Errand]) -> None:
        self._waiting.extend(errands)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run_turn)

    def leave_behind(self, *, after_s: float = 0.0) -> Remainder | None:
        if after_s:
            return None  # the alarm sees to deadlines
        waiting = tuple(self._waiting)
        self._waiting.clear()
        return Remainder(None, waiting)

    def deliver(self) -> None:
        """Nothing to do: an errand is finished as soon as it has run."""

    def stop(self) -> None:
        """Nothing to do: there is no thread."""

    def _run_turn(self) -> None:
        """Run errands for a while, then let the event loop read and write."""
        now = time.monotonic()
        end = now + _MAX_DELAY_S
        while self._waiting and now < end:
            errand = self._waiting.popleft()
            self._running_since = now
            try:
                errand.run()
                self._running_since = None
            except OverdueInterrupt as interrupt:
                errand.interrupt(interrupt.timeout_s)
            errand.finish()
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


class ThreadLane(Lane):
    """Runs errands on a thread of its own, which starts with the first of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Errand] = deque()
        self._signals: SimpleQueue[bool] = SimpleQueue()
        self._lock = threading.Lock()
        self._running: Errand | None = None
        self._running_since = 0.0
        self._finished: list[Errand] = []
        self._is_told = False
        self._is_closed = False
        self._given_up: Errand | None = None
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_busy(self) -> bool:
        return self._running is not None or bool(self._waiting)

    def put(self, errands: Sequence[Errand]) -> None:
        assert not self._is_closed, "a lane that was stopped or left behind takes no errands"
        if (len(errands) > 1 or self.is_busy) and self._timer is None:
            self._timer = self._loop.call_later(_MAX_HELD_S, self._deliver_held_up)
        self._waiting.extend(errands)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._signals.put(True)

    def leave_behind(self, *, after_s: float = 0.0) -> Remainder | None:
        with self._lock:
            now = time.monotonic()
            if after_s and (self._running is None or now - self._running_since <= after_s):
                return None
            self._is_closed = True
            self._given_up = self._running
            remainder = Remainder(self._running, tuple(self._waiting))
            self._waiting.clear()
        self._signals.put(False)
        return remainder

    def stop(self) -> None:
        self._is_closed = True
        self._signals.put(False)

    def deliver(self) -> None:
        with self._lock:
            finished, self._is_told = self._finished.copy(), False
            self._finished.clear()
        for errand in finished:
            errand.finish()

    def _deliver_held_up(self) -> None:
        """Deliver what the thread cannot tell of while a slow errand runs."""
        self._timer = None
        self.deliver()
        if self.is_busy and not self._is_closed:
            self._timer = self._loop.call_later(_MAX_HELD_S, self._deliver_held_up)

    # What follows runs on the thread.

    def _work(self) -> None:
        is_wanted = True
        while is_wanted:
            is_wanted = self._signals.get()
            if not self._run_waiting():
                return
        self._tell()

    def _run_waiting(self) -> bool:
        """Run what waits; return False when the lane was left behind meanwhile."""
        told_at = time.monotonic()
        errand: Errand | None = None
        while True:
            with self._lock:
                if errand is not None:
                    if errand is self._given_up:
                        break
                    self._finished.append(errand)
                if not self._waiting:
                    self._running = errand = None
                    break
                errand = self._running = self._waiting.popleft()
                now = self._running_since = time.monotonic()
            if now - told_at > _MAX_DELAY_S:
                self._tell()
                told_at = now
            errand.run()
        if errand is not None:
            errand.clean_up()
            return False
        self._tell()
        return True

    def _tell(self) -> None:
        """Have the event loop deliver what is finished."""
        with self._lock:
            if self._is_told or not self._finished:
                return
            self._is_told = True
        try:
            self._loop.call_soon_threadsafe(self.deliver)
        except RuntimeError:
            logger.debug("the event loop closed before a call was delivered")
