"""One daemon thread that runs blocking calls one after another for an event loop.

Environments are synchronous and may hang. Each episode therefore gets a thread of its own: a call
that passes its deadline is left behind with its thread, and nobody else waits for it. The threads
are daemons, so a hung one never keeps the interpreter alive. What the calls mean, and which error
a failure becomes, belongs to the caller (envs/execution/local.py).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar, TypeVarTuple

logger = logging.getLogger(__name__)

_A = TypeVar("_A")
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class CallFailedError(Exception):
    """The call raised; what it raised (any BaseException) is `cause`."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.cause = cause


class CallExpiredError(Exception):
    """The call did not return before its deadline; its thread is still inside it."""


class CallAbandonedError(Exception):
    """The thread was stopped before the call returned."""


class WorkerThread:
    """Runs calls in order on a daemon thread, which starts with the first call.

    Use it from one event loop at a time, and end it with `stop`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._latest: _Job | None = None
        self.is_stopped = False

    def __del__(self) -> None:
        # A holder that forgot `stop` must not leave a thread waiting for ever.
        self._jobs.put(None)

    @property
    def is_alive(self) -> bool:
        """Whether the thread exists: it has started and has not come to its end."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_busy(self) -> bool:
        """Whether a call is running or waiting, also one that nobody waits for any more."""
        return self._latest is not None and not self._latest.is_done

    async def call(self, fn: Callable[[*_Ts], _T], *args: *_Ts, timeout_s: float) -> _T:
        """Return `fn(*args)`, run on the thread.

        Raises `CallFailedError` when it raises, `CallExpiredError` after `timeout_s` (the thread
        is then still inside the call: stop the worker), `CallAbandonedError` once stopped. A
        cancelled call runs to its end unseen, and the next one waits for it.
        """
        if self.is_stopped:
            raise CallAbandonedError(f"thread {self._name} is stopped")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        job = _AwaitedCall(lambda: fn(*args), loop, future)
        self._start()
        self._latest = job
        self._jobs.put(job)
        expired = CallExpiredError(f"no answer within {timeout_s:g} s")
        timer = loop.call_later(timeout_s, job.fail, expired)
        try:
            return await future
        finally:
            timer.cancel()

    def stop(self, last: Callable[[], None] | None = None) -> None:
        """Refuse further calls, run `last` after the call that is running, then end the thread.

        Returns at once. A call that is still awaited raises `CallAbandonedError` there. Safe to
        repeat; `last` runs only if the thread was ever started, and what it raises is logged.
        """
        if self.is_stopped:
            return
        self.is_stopped = True
        if self._latest is not None:
            self._latest.fail(CallAbandonedError(f"thread {self._name} is stopped"))
        if self._thread is not None and last is not None:
            self._jobs.put(_LastCall(last, self._name))
        self._jobs.put(None)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=_work, args=(self._jobs,), name=self._name, daemon=True
            )
            self._thread.start()


def _work(jobs: SimpleQueue[_Job | None]) -> None:
    """Run jobs until None comes. Takes the queue alone, so that a forgotten worker can be freed."""
    while (job := jobs.get()) is not None:
        job.run()
        del job  # an answer must not live on until the next call


class _Job(Protocol):
    """What the thread takes from its queue."""

    is_done: bool

    def run(self) -> None: ...

    def fail(self, error: Exception) -> None: ...


class _AwaitedCall(Generic[_T]):
    """A call whose answer goes back to the event loop that awaits it."""

    __slots__ = ("_fn", "_future", "_loop", "is_done")

    def __init__(
        self, fn: Callable[[], _T], loop: asyncio.AbstractEventLoop, future: asyncio.Future[_T]
    ) -> None:
        self._fn = fn
        self._loop = loop
        self._future = future
        self.is_done = False

    def run(self) -> None:
        """Do the call; runs on the thread."""
        if self._future.done():  # expired or cancelled before its turn came
            self.is_done = True
            return
        try:
            value = self._fn()
        except BaseException as error:  # noqa: BLE001 - SystemExit too must reach the caller
            failure = CallFailedError(error)
            failure.__cause__ = error
            self._post(self.fail, failure)
        else:
            self._post(self._succeed, value)

    def fail(self, error: Exception) -> None:
        """Give up waiting; runs on the event loop."""
        if not self._future.done():
            self._future.set_exception(error)

    def _succeed(self, value: _T) -> None:
        if not self._future.done():
            self._future.set_result(value)

    def _post(self, settle: Callable[[_A], None], answer: _A) -> None:
        # Set before the answer leaves, so that whoever receives it sees an idle thread.
        self.is_done = True
        try:
            self._loop.call_soon_threadsafe(settle, answer)
        except RuntimeError:
            logger.debug("the event loop closed before a call returned")


class _LastCall:
    """A call that nobody awaits."""

    __slots__ = ("_fn", "_name", "is_done")

    def __init__(self, fn: Callable[[], None], name: str) -> None:
        self._fn = fn
        self._name = name
        self.is_done = False

    def run(self) -> None:
        try:
            self._fn()
        except Exception:
            logger.warning("the last call of thread %s failed", self._name, exc_info=True)
        self.is_done = True

    def fail(self, error: Exception) -> None:
        """Nothing to do: nobody waits."""
