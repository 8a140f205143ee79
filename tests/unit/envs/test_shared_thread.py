"""One thread for many callers: order, slow calls, deadlines, ends."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Sequence

import pytest

from agentgym_rl.envs.execution.runners import QueuedCall, ThreadRunner
from agentgym_rl.envs.execution.thread_calls import (
    CallAbandonedError,
    CallExpiredError,
    CallFailedError,
    SharedThread,
    ThreadCaller,
)


async def test_all_callers_use_one_daemon_thread_which_ends():
    shared = SharedThread("env-shared", timeout_s=5)
    callers = [ThreadCaller(shared) for _ in range(20)]
    threads = await asyncio.gather(
        *(caller.call(threading.current_thread, timeout_s=5) for caller in callers)
    )
    assert len(set(threads)) == 1
    assert (threads[0].name, threads[0].daemon) == ("env-shared", True)
    shared.stop()
    await asyncio.to_thread(threads[0].join, 5)
    assert not threads[0].is_alive()


async def test_calls_of_one_turn_of_the_loop_wake_the_thread_once(monkeypatch: pytest.MonkeyPatch):
    put, sizes = ThreadRunner.put, list[int]()

    def count(runner: ThreadRunner, calls: Sequence[QueuedCall]) -> None:
        sizes.append(len(calls))
        put(runner, calls)

    monkeypatch.setattr(ThreadRunner, "put", count)
    shared = SharedThread("together", timeout_s=5)
    callers = [ThreadCaller(shared) for _ in range(20)]
    assert (
        await asyncio.gather(*(caller.call(int, "7", timeout_s=5) for caller in callers))
        == [7] * 20
    )
    assert sizes == [20]
    shared.stop()


async def test_a_call_that_was_not_handed_over_yet_is_answered_after_a_stop():
    shared = SharedThread("stopped", timeout_s=5)
    call = ThreadCaller(shared).call(int, "7", timeout_s=5)
    answer = asyncio.create_task(call)
    asyncio.get_running_loop().call_soon(shared.stop)
    assert await answer == 7


async def test_what_a_call_raises_reaches_its_caller_and_nobody_else():
    shared = SharedThread("failing", timeout_s=5)
    error = SystemExit(1)

    def fail() -> None:
        raise error

    first, second = ThreadCaller(shared), ThreadCaller(shared)
    results = await asyncio.gather(
        first.call(fail, timeout_s=5), second.call(int, "7", timeout_s=5), return_exceptions=True
    )
    assert isinstance(results[0], CallFailedError) and results[0].cause is error
    assert results[1] == 7
    shared.stop()


async def test_others_go_on_beside_a_slow_call_which_is_answered_when_it_returns():
    shared = SharedThread("slow", timeout_s=30)
    release = threading.Event()
    slow, other = ThreadCaller(shared), ThreadCaller(shared)
    waiting = asyncio.create_task(slow.call(release.wait, timeout_s=30))
    await asyncio.sleep(0)
    started = time.monotonic()
    assert await other.call(int, "7", timeout_s=30) == 7
    assert time.monotonic() - started < 10
    assert not waiting.done()
    release.set()
    assert await waiting
    assert await slow.call(int, "8", timeout_s=30) == 8
    shared.stop()


async def test_a_caller_waits_for_its_own_slow_call_even_if_that_was_cancelled():
    shared = SharedThread("cancelled", timeout_s=30)
    seen: list[str] = []
    begun, release = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        release.wait()
        seen.append("slow")

    caller, other = ThreadCaller(shared), ThreadCaller(shared)
    task = asyncio.create_task(caller.call(slow, timeout_s=30))
    assert await asyncio.to_thread(begun.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    following = asyncio.create_task(caller.call(seen.append, "next", timeout_s=30))
    await asyncio.sleep(0)
    await other.call(int, timeout_s=30)  # by now the slow call is left behind
    assert (seen, caller.is_away) == ([], True)
    release.set()
    await following
    assert seen == ["slow", "next"]
    shared.stop()


async def test_a_deadline_ends_the_wait_and_the_last_call_comes_after_the_hung_one():
    shared = SharedThread("hanging", timeout_s=0.2)
    release, closed = threading.Event(), threading.Event()
    caller = ThreadCaller(shared)
    with pytest.raises(CallExpiredError):
        await caller.call(release.wait, timeout_s=0.2)
    caller.stop(closed.set)
    with pytest.raises(CallAbandonedError):
        await caller.call(int, timeout_s=0.2)
    assert await ThreadCaller(shared).call(int, "7", timeout_s=0.2) == 7
    assert not closed.is_set()
    release.set()
    for _ in range(100):
        await asyncio.sleep(0.05)
        if closed.is_set():
            break
    assert closed.is_set()
    shared.stop()


async def test_stopping_a_caller_wakes_whoever_waits():
    shared = SharedThread("stopped", timeout_s=30)
    release = threading.Event()
    caller = ThreadCaller(shared)
    waiting = asyncio.create_task(caller.call(release.wait, timeout_s=30))
    await asyncio.sleep(0.05)
    caller.stop(lambda: None)
    with pytest.raises(CallAbandonedError):
        await waiting
    release.set()
    shared.stop()


async def test_a_caller_that_is_given_up_leaves_nothing_to_the_collector():
    shared, closed = SharedThread("tidy", timeout_s=5), asyncio.Event()
    caller, loop = ThreadCaller(shared), asyncio.get_running_loop()
    gc.collect()
    gc.disable()
    try:
        assert await caller.call(int, "7", timeout_s=5) == 7
        alive = weakref.ref(caller)
        caller.stop(lambda: loop.call_soon_threadsafe(closed.set))
        del caller
        await closed.wait()
        # The thread lets go of what it did last when it is asked to do something else.
        assert await ThreadCaller(shared).call(int, "8", timeout_s=5) == 8
        assert alive() is None
    finally:
        gc.enable()
        shared.stop()
