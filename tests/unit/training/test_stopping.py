"""What a run does between the signal that stops it and its end."""

from __future__ import annotations

import asyncio

import pytest

from agentgym_rl.training.stopping import LastStep, unbroken


def test_the_last_complete_step_is_saved_once():
    saved = list[int]()
    last = LastStep(saved.append)
    last.begin(4)
    last.save()
    assert saved == []  # it came from a checkpoint
    last.leave()
    last.complete(5)
    last.save()
    last.save()
    assert saved == [5]


def test_nothing_is_saved_in_the_middle_of_a_step():
    saved = list[int]()
    last = LastStep(saved.append)
    last.leave()
    last.complete(1)
    last.leave()
    last.save()
    assert saved == []
    last.complete(2)
    last.save()
    assert saved == [2]


async def test_work_is_finished_before_a_cancellation_is_raised():
    may_end, events = asyncio.Event(), list[str]()

    async def work() -> None:
        await may_end.wait()
        events.append("done")

    task = asyncio.create_task(unbroken(work()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == ["done"]


async def test_a_second_cancellation_reaches_the_work():
    task = asyncio.create_task(unbroken(asyncio.Event().wait()))
    for _ in range(2):
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_results_and_failures_come_through():
    async def fail() -> None:
        raise KeyError("broken")

    assert await unbroken(asyncio.sleep(0, "result")) == "result"
    with pytest.raises(KeyError, match="broken"):
        await unbroken(fail())
