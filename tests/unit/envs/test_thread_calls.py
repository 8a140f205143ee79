"""Calls on a thread of their own: order, deadlines, ends."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest

from agentgym_rl.envs.execution.thread_calls import (
    CallAbandonedError,
    CallExpiredError,
    CallFailedError,
    CallThread,
    ThreadCaller,
)

MAX_CALL_S = 500e-6
"""Measured 40 to 70 microseconds on an idle core."""


async def test_calls_run_in_order_on_one_named_daemon_thread():
    caller = ThreadCaller(CallThread("env-7"))
    threads = [await caller.call(threading.current_thread, timeout_s=5) for _ in range(3)]
    assert len(set(threads)) == 1
    assert (threads[0].name, threads[0].daemon) == ("env-7", True)
    caller.stop()
    threads[0].join(5)
    assert not threads[0].is_alive()


async def test_the_thread_starts_with_the_first_call():
    num_threads = threading.active_count()
    caller = ThreadCaller(CallThread("lazy"))
    caller.stop(lambda: pytest.fail("there is nothing to close"))
    await asyncio.sleep(0)
    assert threading.active_count() == num_threads


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(1), StopIteration(), TimeoutError()]
)
async def test_whatever_a_call_raises_is_told_apart_from_a_deadline(error: BaseException):
    def fail() -> None:
        raise error

    caller = ThreadCaller(CallThread("failing"))
    with pytest.raises(CallFailedError) as caught:
        await caller.call(fail, timeout_s=5)
    assert caught.value.cause is error
    assert caught.value.__cause__ is error
    assert await caller.call(int, "7", timeout_s=5) == 7
    caller.stop()


async def test_a_deadline_leaves_the_call_behind_and_the_last_call_runs_after_it():
    release, closed = threading.Event(), threading.Event()
    caller = ThreadCaller(CallThread("hanging"))
    started = time.monotonic()
    with pytest.raises(CallExpiredError):
        await caller.call(release.wait, timeout_s=0.1)
    assert time.monotonic() - started < 10
    assert caller.is_busy
    caller.stop(closed.set)
    caller.stop(closed.set)
    with pytest.raises(CallAbandonedError):
        await caller.call(int, timeout_s=1)
    assert not closed.is_set()
    release.set()
    assert await asyncio.to_thread(closed.wait, 5)


async def test_stopping_wakes_whoever_waits():
    release = threading.Event()
    caller = ThreadCaller(CallThread("stopped"))
    waiting = asyncio.create_task(caller.call(release.wait, timeout_s=30))
    await asyncio.sleep(0.05)
    caller.stop()
    with pytest.raises(CallAbandonedError):
        await waiting
    release.set()


async def test_a_cancelled_call_finishes_before_the_next():
    seen: list[str] = []
    begun, release = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        release.wait()
        seen.append("slow")

    caller = ThreadCaller(CallThread("cancelled"))
    task = asyncio.create_task(caller.call(slow, timeout_s=30))
    assert await asyncio.to_thread(begun.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    following = asyncio.create_task(caller.call(seen.append, "next", timeout_s=30))
    await asyncio.sleep(0.05)
    assert seen == []
    release.set()
    await following
    assert seen == ["slow", "next"]
    caller.stop()


async def test_a_forgotten_caller_ends_its_thread():
    caller = ThreadCaller(CallThread("forgotten"))
    thread = await caller.call(threading.current_thread, timeout_s=5)
    del caller
    gc.collect()
    await asyncio.to_thread(thread.join, 5)
    assert not thread.is_alive()


async def test_a_call_costs_little():
    caller = ThreadCaller(CallThread("quick"))
    await caller.call(int, timeout_s=5)
    best, num_tries = float("inf"), 0
    # The fastest of many, each short: what else the machine does is not the call's fault.
    while num_tries < 50 or (num_tries < 2000 and best >= MAX_CALL_S):
        started = time.perf_counter()
        for _ in range(20):
            await caller.call(int, timeout_s=5)
        best, num_tries = min(best, (time.perf_counter() - started) / 20), num_tries + 1
    caller.stop()
    assert best < MAX_CALL_S
