"""Coroutines behind functions that block: in scripts, and in notebooks, whose loop runs already."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import TypeVar

_Result = TypeVar("_Result")


def run_blocking(work: Coroutine[object, object, _Result]) -> _Result:
    """Return what `work` returns. Ctrl-C cancels it, waits until it has ended, and is raised.

    Inside a running event loop (a notebook) the work gets a thread and a loop of its own.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _run_on_thread(work)


def _run_on_thread(work: Coroutine[object, object, _Result]) -> _Result:
    loop, done = asyncio.new_event_loop(), Future[_Result]()
    task: asyncio.Task[_Result] = loop.create_task(work)

    def target() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                done.set_result(runner.run(_awaited(task)))
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
            done.set_exception(error)

    threading.Thread(target=target, name="agentgym_rl", daemon=True).start()
    try:
        return done.result()
    except KeyboardInterrupt:
        if not done.done():
            loop.call_soon_threadsafe(task.cancel)
            done.exception()  # a second Ctrl-C does not wait any longer
        raise


async def _awaited(task: asyncio.Task[_Result]) -> _Result:
    return await task
