"""Signals that stop a run: the first lets it save what it has, the second ends it.

SIGINT is Ctrl-C; SIGTERM is what a machine sends before it is taken away.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType


class Stopped(BaseException):
    """A run was stopped by a signal, and has saved its last complete step."""

    def __init__(self, by: signal.Signals) -> None:
        super().__init__(by.name)
        self.by = by


def run_stoppable(main: Coroutine[object, object, None]) -> None:
    """Run to the end, or raise `Stopped` when a signal has cancelled `main` and it has ended.

    A second SIGTERM kills the process and a second SIGINT is a KeyboardInterrupt: saving may hang.
    """
    received: list[signal.Signals] = []

    async def watched() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "this is one"

        def stop(number: int, _: FrameType | None) -> None:
            received.append(signal.Signals(number))
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            loop.call_soon_threadsafe(task.cancel)

        signal.signal(signal.SIGTERM, stop)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # it is in the background
            signal.signal(signal.SIGINT, stop)
        await main

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        asyncio.run(watched())
    except asyncio.CancelledError:
        if not received:
            raise
        raise Stopped(received[0]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
