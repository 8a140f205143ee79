"""Coroutines behind blocking functions, with and without a running event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from agentgym_rl.api.blocking import run_blocking


async def answer() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


async def failing() -> None:
    raise LookupError("nothing there")


def test_without_a_loop_the_work_runs_here():
    assert run_blocking(answer()) == threading.current_thread().name


def test_inside_a_loop_the_work_has_a_thread_of_its_own():
    async def cell() -> str:
        return run_blocking(answer())

    assert asyncio.run(cell()) == "agentgym_rl"


@pytest.mark.parametrize("in_loop", [False, True])
def test_what_the_work_raises_is_raised(in_loop: bool):
    async def cell() -> None:
        run_blocking(failing())

    with pytest.raises(LookupError, match="nothing there"):
        asyncio.run(cell()) if in_loop else run_blocking(failing())


def test_ctrl_c_in_a_notebook_lets_the_work_save_first():
    saved = list[str]()

    async def work() -> None:
        try:
            # As a terminal does while the main thread waits.
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            saved.append("the last step")
            raise

    async def cell() -> None:
        with pytest.raises(KeyboardInterrupt):
            run_blocking(work())

    # A notebook's kernel has its loop in the main thread and Python's own handler of SIGINT, which
    # a run of the tests in the background does not have.
    loop = asyncio.new_event_loop()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        loop.run_until_complete(cell())
    finally:
        signal.signal(signal.SIGINT, handler)
        loop.close()
    assert saved == ["the last step"]
