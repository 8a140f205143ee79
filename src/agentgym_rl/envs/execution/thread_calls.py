"""Blocking calls that coroutines await: on a daemon thread of their own, or on one that many share.

Environments are synchronous and may hang. An episode therefore gets a thread of its own
(`CallThread`): a call that passes its deadline keeps its thread, and nobody else waits for it.

Environments that only compute gain nothing from threads, and every call would wait for the
interpreter twice. Their episodes share one (`SharedThread`): calls run one after another, and
answers come back several at a time (runners.py). A call that takes long is left behind with the
thread, and the other episodes continue on a new one. Only its own episode waits for it, until its
deadline, which counts from when the call begins.

What the calls mean, and which error a failure becomes, belongs to the caller (local.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar, TypeVarTuple

from agentgym_rl.envs.execution.runners import QueuedCall, ThreadRunner

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_PATIENCE_S = 0.5
"""How long a call may take before other episodes continue without its thread."""


class CallFailedError(Exception):
    """The call raised; what it raised (any BaseException) is `cause`."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.cause = cause


class CallExpiredError(Exception):
    """The call did not return before its deadline; its thread is still inside it."""


class CallAbandonedError(Exception):
    """The caller was stopped before the call returned."""


class CallThread:
    """The thread of one caller; it starts with the first call.

    Use it from one event loop at a time: on another loop it starts anew.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: ThreadRunner | None = None

    def __del__(self) -> None:
        # A holder that forgot `stop` must not leave a thread waiting for ever.
        self.stop()

    def put(self, calls: Sequence[QueuedCall]) -> None:
        """Run these after the ones that wait already."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self.stop()
            self._loop = loop
        if self._runner is None:
            self._runner = ThreadRunner(self.name, loop)
        self._runner.put(calls)

    def stop(self) -> None:
        """End the thread after what is in hand; returns at once. A later call starts it anew."""
        if self._runner is not None:
            self._runner.stop()
        self._loop = self._runner = None

    def release(self) -> None:
        """Take note that a caller has stopped."""
        self.stop()

    def expire_later(self, call: _AwaitedCall, timeout_s: float) -> asyncio.TimerHandle | None:
        """Give up waiting for the call after `timeout_s`; return what cancels this."""
        return call.loop.call_later(timeout_s, call.expire, timeout_s)


class SharedThread(CallThread):
    """A thread for many callers, which gets a successor when a call takes long.

    Calls that come in one turn of the event loop are handed over together: a thread that the first
    of them wakes would fight with the loop for the interpreter until the last.
    """

    def __init__(self, name: str, *, timeout_s: float) -> None:
        super().__init__(name)
        self.timeout_s = timeout_s
        self._patience_s = min(_PATIENCE_S, timeout_s)
        self._watch: asyncio.TimerHandle | None = None
        self._arrived: list[QueuedCall] = []
        """What is handed over at the end of the loop's present turn."""

    def put(self, calls: Sequence[QueuedCall]) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._arrived = []  # of a loop that has ended
            self.stop()
            self._loop = loop
        if not self._arrived:
            loop.call_soon(self._hand_over)
        self._arrived.extend(calls)

    def stop(self) -> None:
        self._hand_over()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        super().stop()

    def release(self) -> None:
        """Nothing to do: other callers use the thread."""

    def expire_later(self, call: _AwaitedCall, timeout_s: float) -> asyncio.TimerHandle | None:
        """Nothing to do: the thread sees to deadlines, which begin with the call itself."""
        assert timeout_s >= self.timeout_s, "the thread expires no call sooner"
        return None

    def _hand_over(self) -> None:
        """Give the thread what has arrived."""
        if not self._arrived:
            return
        assert self._loop is not None, "`put` has set it"
        if self._runner is None:
            self._runner = ThreadRunner(self.name, self._loop)
        self._runner.put(self._arrived)
        self._arrived = []
        if self._watch is None:
            self._watch = self._loop.call_later(self._patience_s / 2, self._check)

    def _check(self) -> None:
        """Leave the thread behind if its call takes long."""
        self._watch = None
        runner, loop = self._runner, self._loop
        if runner is None or loop is None or not runner.is_busy:
            return
        unfinished = runner.leave_behind(after_s=self._patience_s)
        if unfinished is None:
            self._watch = loop.call_later(self._patience_s / 2, self._check)
            return
        self._runner = None
        runner.deliver()
        running = unfinished.running
        if isinstance(running, _AwaitedCall):
            running.caller.is_away = True
            loop.call_later(self.timeout_s - self._patience_s, running.expire, self.timeout_s)
        for call in unfinished.waiting:
            assert isinstance(call, (_AwaitedCall, _LastCall)), "callers put no others"
            call.caller.put(call)


class ThreadCaller:
    """The calls of one caller, such as an episode, in order. End it with `stop`."""

    def __init__(self, thread: CallThread) -> None:
        self._thread = thread
        self._latest: _AwaitedCall | None = None
        """The call that came last, while it runs or waits; a finished one would keep the caller."""
        self._is_used = False
        self._held: list[_AwaitedCall | _LastCall] = []
        self.is_away = False
        """Whether a call was left behind and still uses what it was called on."""
        self.is_stopped = False

    @property
    def is_busy(self) -> bool:
        """Whether a call is running or waiting, also one that nobody waits for any more."""
        return self._latest is not None

    async def call(self, fn: Callable[[*_Ts], _T], *args: *_Ts, timeout_s: float) -> _T:
        """Return `fn(*args)`, run on the thread.

        Raises `CallFailedError` when it raises, `CallExpiredError` after `timeout_s` (the thread
        is then still inside the call: stop the caller), `CallAbandonedError` once stopped. A
        cancelled call runs to its end unseen, and the next one waits for it.
        """
        if self.is_stopped:
            raise CallAbandonedError(f"the caller on thread {self._thread.name} is stopped")
        answers: list[_T] = []
        call = _AwaitedCall(self, lambda: answers.append(fn(*args)), asyncio.get_running_loop())
        self._is_used = True
        self._latest = call
        self.put(call)
        timer = self._thread.expire_later(call, timeout_s)
        try:
            await call.done
        finally:
            if timer is not None:
                timer.cancel()
        return answers[0]

    def stop(self, last: Callable[[], None] | None = None) -> None:
        """Refuse further calls, and run `last` after the call that is running.

        Returns at once. A call that is still awaited raises `CallAbandonedError` there. Safe to
        repeat; `last` runs only if there was ever a call, and what it raises is logged.
        """
        if self.is_stopped:
            return
        self.is_stopped = True
        if self._latest is not None:
            self._latest.fail(CallAbandonedError(f"the caller on {self._thread.name} is stopped"))
        if self._is_used and last is not None:
            self.put(_LastCall(self, last))
        self._thread.release()

    def forget(self, call: _AwaitedCall) -> None:
        """Let a call go that has returned."""
        if self._latest is call:
            self._latest = None

    def put(self, call: _AwaitedCall | _LastCall) -> None:
        """Run it after this caller's calls before it, also after one that was left behind."""
        if self.is_away:
            self._held.append(call)
        else:
            self._thread.put([call])

    def come_back(self) -> None:
        """Resume after a call that was left behind has returned."""
        self.is_away = False
        held = self._held.copy()
        self._held.clear()
        if held:
            self._thread.put(held)

    def expire_held(self, error: Exception) -> None:
        """Answer the calls that wait for one which has passed its deadline."""
        for call in self._held:
            if isinstance(call, _AwaitedCall):
                call.fail(error)


class _AwaitedCall(QueuedCall):
    """A call that an event loop awaits."""

    __slots__ = ("_error", "_fn", "caller", "done", "is_done", "loop")

    def __init__(
        self, caller: ThreadCaller, fn: Callable[[], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.caller, self._fn, self.loop = caller, fn, loop
        self.done: asyncio.Future[None] = loop.create_future()
        self._error: CallFailedError | None = None
        self.is_done = False

    def run(self) -> None:
        if self.done.done():  # abandoned, expired or cancelled before its turn came
            return
        try:
            self._fn()
        except BaseException as error:  # noqa: BLE001 - SystemExit too must reach the caller
            self._error = CallFailedError(error)
            self._error.__cause__ = error

    def finish(self) -> None:
        self.is_done = True
        self.caller.forget(self)
        if self.done.done():
            return
        if self._error is not None:
            self.done.set_exception(self._error)
        else:
            self.done.set_result(None)

    def expire(self, timeout_s: float) -> None:
        """Give up waiting, unless the call has returned."""
        if not self.is_done:
            error = CallExpiredError(f"no answer within {timeout_s:g} s")
            self.fail(error)
            self.caller.expire_held(error)

    def fail(self, error: Exception) -> None:
        """Give up waiting; on the event loop."""
        if not self.done.done():
            self.done.set_exception(error)

    def clean_up(self) -> None:
        """Report the return after the thread was left behind; runs on that thread."""
        try:
            self.loop.call_soon_threadsafe(self._come_back)
        except RuntimeError:
            logger.debug("the event loop closed before a call returned")

    def _come_back(self) -> None:
        self.finish()
        self.caller.come_back()


class _LastCall(QueuedCall):
    """Gives back what the caller used; nobody awaits it."""

    __slots__ = ("_fn", "caller")

    def __init__(self, caller: ThreadCaller, fn: Callable[[], None]) -> None:
        self.caller, self._fn = caller, fn

    def run(self) -> None:
        try:
            self._fn()
        except BaseException:  # the thread must live on, whatever it does
            logger.warning("a caller's last call failed", exc_info=True)
