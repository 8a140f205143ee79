"""One thread for many episodes: order, slow calls, deadlines, ends."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Sequence

import pytest

from agentgym_rl.envs.execution.lanes import Errand, ThreadLane
from agentgym_rl.envs.execution.shared_thread import SharedPlace, SharedThread
from agentgym_rl.envs.execution.worker_thread import (
    CallAbandonedError,
    CallExpiredError,
    CallFailedError,
)


async def test_all_places_use_one_daemon_thread_which_ends():
    shared = SharedThread("env-shared", timeout_s=5)
    places = [SharedPlace(shared) for _ in range(20)]
    threads = await asyncio.gather(
        *(place.call(threading.current_thread, timeout_s=5) for place in places)
    )
    assert len(set(threads)) == 1
    assert (threads[0].name, threads[0].daemon) == ("env-shared", True)
    shared.stop()
    await asyncio.to_thread(threads[0].join, 5)
    assert not threads[0].is_alive()


async def test_calls_of_one_turn_of_the_loop_wake_the_thread_once(monkeypatch: pytest.MonkeyPatch):
    put, sizes = ThreadLane.put, list[int]()

    def count(lane: ThreadLane, errands: Sequence[Errand]) -> None:
        sizes.append(len(errands))
        put(lane, errands)

    monkeypatch.setattr(ThreadLane, "put", count)
    shared = SharedThread("together", timeout_s=5)
    places = [SharedPlace(shared) for _ in range(20)]
    assert (
        await asyncio.gather(*(place.call(int, "7", timeout_s=5) for place in places)) == [7] * 20
    )
    assert sizes == [20]
    shared.stop()


async def test_a_call_that_was_not_handed_over_yet_is_answered_after_a_stop():
    shared = SharedThread("stopped", timeout_s=5)
    call = SharedPlace(shared).call(int, "7", timeout_s=5)
    answer = asyncio.create_task(call)
    asyncio.get_running_loop().call_soon(shared.stop)
    assert await answer == 7


async def test_what_a_call_raises_reaches_its_caller_and_nobody_else():
    shared = SharedThread("failing", timeout_s=5)
    error = SystemExit(1)

    def fail() -> None:
        raise error

    first, second = SharedPlace(shared), SharedPlace(shared)
    results = await asyncio.gather(
        first.call(fail, timeout_s=5), second.call(int, "7", timeout_s=5), return_exceptions=True
    )
    assert isinstance(results[0], CallFailedError) and results[0].cause is error
    assert results[1] == 7
    shared.stop()


async def test_others_go_on_beside_a_slow_call_which_is_answered_when_it_returns():
    shared = SharedThread("slow", timeout_s=30)
    release = threading.Event()
    slow, other = SharedPlace(shared), SharedPlace(shared)
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


async def test_a_place_waits_for_its_own_slow_call_even_if_that_was_cancelled():
    shared = SharedThread("cancelled", timeout_s=30)
    seen: list[str] = []
    begun, release = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        release.wait()
        seen.append("slow")

    place, other = SharedPlace(shared), SharedPlace(shared)
    task = asyncio.create_task(place.call(slow, timeout_s=30))
    assert await asyncio.to_thread(begun.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    following = asyncio.create_task(place.call(seen.append, "next", timeout_s=30))
    await asyncio.sleep(0)
    await other.call(int, timeout_s=30)  # by now the slow call is left behind
    assert (seen, place.is_away) == ([], True)
    release.set()
    await following
    assert seen == ["slow", "next"]
    shared.stop()


async def test_a_deadline_ends_the_wait_and_the_last_call_comes_after_the_hung_one():
    shared = SharedThread("hanging", timeout_s=0.2)
    release, closed = threading.Event(), threading.Event()
    place = SharedPlace(shared)
    with pytest.raises(CallExpiredError):
        await place.call(release.wait, timeout_s=0.2)
    place.stop(closed.set)
    with pytest.raises(CallAbandonedError):
        await place.call(int, timeout_s=0.2)
    assert await SharedPlace(shared).call(int, "7", timeout_s=0.2) == 7
    assert not closed.is_set()
    release.set()
    for _ in range(100):
        await asyncio.sleep(0.05)
        if closed.is_set():
            break
    assert closed.is_set()
    shared.stop()


async def test_stopping_a_place_wakes_whoever_waits():
    shared = SharedThread("stopped", timeout_s=30)
    release = threading.Event()
    place = SharedPlace(shared)
    waiting = asyncio.create_task(place.call(release.wait, timeout_s=30))
    await asyncio.sleep(0.05)
    place.stop(lambda: None)
    with pytest.raises(CallAbandonedError):
        await waiting
    release.set()
    shared.stop()


async def test_a_place_that_is_given_up_leaves_nothing_to_the_collector():
    shared, closed = SharedThread("tidy", timeout_s=5), asyncio.Event()
    place, loop = SharedPlace(shared), asyncio.get_running_loop()
    gc.collect()
    gc.disable()
    try:
        assert await place.call(int, "7", timeout_s=5) == 7
        alive = weakref.ref(place)
        place.stop(lambda: loop.call_soon_threadsafe(closed.set))
        del place
        await closed.wait()
        # The thread lets go of what it did last when it is asked to do something else.
        assert await SharedPlace(shared).call(int, "8", timeout_s=5) == 8
        assert alive() is None
    finally:
        gc.enable()
        shared.stop()
