"""One daemon thread for the calls of many episodes, for environments that only compute.

A thread for each episode (worker_thread.py) would not make such environments faster, and every call
would have to wait for the interpreter twice. Here the calls of all episodes run one after another,
and their answers come back several at a time (envs/execution/lanes.py). Calls that come in one turn
of the event loop are handed over together: a thread that is woken by the first of them would fight
with the loop for the interpreter until the last.

A call that takes long is left behind with the thread, and the other episodes go on with a new one:
nobody waits for it but its own episode, and that until its deadline, which counts from when the
call begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar, TypeVarTuple

from agentgym_rl.envs.execution.lanes import Errand, ThreadLane
from agentgym_rl.envs.execution.worker_thread import (
    CallAbandonedError,
    CallExpiredError,
    CallFailedError,
)

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


_PATIENCE_S = 0.5
"""How long a call may take before the others go on without its thread."""


class SharedThread:
    """The thread; it starts with the first call. Use it from one event loop at a time."""

    def __init__(self, name: str, *, timeout_s: float) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self._patience_s = min(_PATIENCE_S, timeout_s)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lane: ThreadLane | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._arrived: list[Errand] = []
        """What is handed over at the end of the loop's present turn."""

    def __del__(self) -> None:
        # A holder that forgot `stop` must not leave a thread waiting for ever.
        self.stop()

    def put(self, errands: Sequence[Errand]) -> None:
        """Run these after the ones that wait already."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._arrived = []  # of a loop that has ended
            self.stop()
            self._loop = loop
        if not self._arrived:
            loop.call_soon(self._hand_over)
        self._arrived.extend(errands)

    def stop(self) -> None:
        """End the thread after what is in hand; returns at once. A call that comes starts anew."""
        self._hand_over()
        if self._watch is not None:
            self._watch.cancel()
        if self._lane is not None:
            self._lane.stop()
        self._loop = self._lane = self._watch = None

    def _hand_over(self) -> None:
        """Give the thread what has arrived."""
        if not self._arrived:
            return
        assert self._loop is not None, "`put` has set it"
        if self._lane is None:
            self._lane = ThreadLane(self.name)
        self._lane.put(self._arrived)
        self._arrived = []
        if self._watch is None:
            self._watch = self._loop.call_later(self._patience_s / 2, self._check)

    def _check(self) -> None:
        """Leave the thread behind if its call takes long."""
        assert self._loop is not None, "`put` has set it"
        self._watch = None
        lane = self._lane
        if lane is None or not lane.is_busy:
            return
        remainder = lane.leave_behind(after_s=self._patience_s)
        if remainder is None:
            self._watch = self._loop.call_later(self._patience_s / 2, self._check)
            return
        self._lane = None
        lane.deliver()
        running = remainder.running
        if isinstance(running, _Call):
            running.place.is_away = True
            self._loop.call_later(self.timeout_s - self._patience_s, running.expire, self.timeout_s)
        for errand in remainder.waiting:
            assert isinstance(errand, (_Call, _LastCall)), "places put no others"
            errand.place.put(errand)


class SharedPlace:
    """One episode's calls on a shared thread; what `WorkerThread` is to an episode that has one."""

    def __init__(self, thread: SharedThread) -> None:
        self._thread = thread
        self._latest: _Call | None = None
        """The call that came last, while it runs or waits; a finished one would keep its place."""
        self._is_used = False
        self._held: list[_Call | _LastCall] = []
        self.is_away = False
        """Whether a call was left behind and uses the environment still."""
        self.is_stopped = False

    @property
    def is_busy(self) -> bool:
        """Whether a call is running or waiting, also one that nobody waits for any more."""
        return self._latest is not None

    async def call(self, fn: Callable[[*_Ts], _T], *args: *_Ts, timeout_s: float) -> _T:
        """Return `fn(*args)`, run on the thread, which has a deadline of its own.

        Raises as `WorkerThread.call` does; `timeout_s` must not be below the thread's deadline.
        """
        assert timeout_s >= self._thread.timeout_s, "the thread expires no call sooner"
        if self.is_stopped:
            raise CallAbandonedError(f"the place on thread {self._thread.name} is given up")
        loop = asyncio.get_running_loop()
        answers: list[_T] = []
        done: asyncio.Future[None] = loop.create_future()
        self._is_used = True
        self._latest = _Call(self, lambda: answers.append(fn(*args)), loop, done)
        self.put(self._latest)
        await done
        return answers[0]

    def stop(self, last: Callable[[], None]) -> None:
        """Refuse further calls, and run `last` after the one that is running. Safe to repeat."""
        if self.is_stopped:
            return
        self.is_stopped = True
        if self._latest is not None:
            self._latest.fail(CallAbandonedError("the place was given up"))
        if self._is_used:
            self.put(_LastCall(self, last))

    def forget(self, call: _Call) -> None:
        """Let a call go that has returned."""
        if self._latest is call:
            self._latest = None

    def put(self, errand: _Call | _LastCall) -> None:
        """Run it after the calls of this place before it, also after one that was left behind."""
        if self.is_away:
            self._held.append(errand)
        else:
            self._thread.put([errand])

    def come_back(self) -> None:
        """Go on after a call that was left behind has returned."""
        self.is_away = False
        held = self._held.copy()
        self._held.clear()
        if held:
            self._thread.put(held)

    def expire_held(self, error: Exception) -> None:
        """Answer the calls that wait for one which has passed its deadline."""
        for errand in self._held:
            if isinstance(errand, _Call):
                errand.fail(error)


class _Call:
    """A call that an event loop awaits."""

    __slots__ = ("_done", "_error", "_fn", "_loop", "is_done", "place")

    def __init__(
        self,
        place: SharedPlace,
        fn: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
        done: asyncio.Future[None],
    ) -> None:
        self.place, self._fn, self._loop, self._done = place, fn, loop, done
        self._error: CallFailedError | None = None
        self.is_done = False

    def run(self) -> None:
        if self._done.done():  # abandoned, expired or cancelled before its turn came
            return
        try:
            self._fn()
        except BaseException as error:  # noqa: BLE001 - SystemExit too must reach the caller
            self._error = CallFailedError(error)
            self._error.__cause__ = error

    def finish(self) -> None:
        self.is_done = True
        self.place.forget(self)
        if self._done.done():
            return
        if self._error is not None:
            self._done.set_exception(self._error)
        else:
            self._done.set_result(None)

    def expire(self, timeout_s: float) -> None:
        """Give up a call that was left behind, unless it has returned."""
        if not self.is_done:
            error = CallExpiredError(f"no answer within {timeout_s:g} s")
            self.fail(error)
            self.place.expire_held(error)

    def fail(self, error: Exception) -> None:
        """Give up waiting; on the event loop."""
        if not self._done.done():
            self._done.set_exception(error)

    def interrupt(self, timeout_s: float) -> None:
        """Nothing to do: threads are not interrupted."""

    def clean_up(self) -> None:
        """Tell of the return after the thread was left behind; runs on that thread."""
        try:
            self._loop.call_soon_threadsafe(self._come_back)
        except RuntimeError:
            logger.debug("the event loop closed before a call returned")

    def _come_back(self) -> None:
        self.finish()
        self.place.come_back()


class _LastCall:
    """Closes an environment; nobody awaits it."""

    __slots__ = ("_fn", "place")

    def __init__(self, place: SharedPlace, fn: Callable[[], None]) -> None:
        self.place, self._fn = place, fn

    def run(self) -> None:
        try:
            self._fn()
        except BaseException:  # the thread must live on, whatever it does
            logger.warning("the close of an environment failed", exc_info=True)

    def finish(self) -> None:
        """Nobody waits for it."""

    def interrupt(self, timeout_s: float) -> None:
        """Nobody waits for it."""

    def clean_up(self) -> None:
        """Nothing is left to close."""
