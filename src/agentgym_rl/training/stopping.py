"""Runs that are stopped on purpose: by Ctrl-C, or because their machine is taken away.

Stopping a run cancels its task. A step that is collecting episodes is given up, which changes
nothing that a checkpoint holds; the rest of a step is finished first, because weights in the middle
of a step belong to no step. Then the last complete step gets a checkpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

_Result = TypeVar("_Result")


class LastStep:
    """The last complete step of a run; `save` writes its checkpoint from the state at hand."""

    def __init__(self, save: Callable[[int], None]) -> None:
        self._save = save
        self._number = self._saved = 0
        self._is_left = False

    def begin(self, number: int) -> None:
        """The run is at this step, which needs no checkpoint."""
        self._number = self._saved = number
        self._is_left = False

    def leave(self) -> None:
        """From here on the weights no longer belong to the last step."""
        self._is_left = True

    def complete(self, number: int) -> None:
        """The weights belong to this step now."""
        self._number, self._is_left = number, False

    def save(self) -> None:
        """Write the checkpoint, unless it exists or the weights have changed since."""
        if self._number != self._saved and not self._is_left:
            self._save(self._number)
            self._saved = self._number


async def unbroken(work: Coroutine[object, object, _Result]) -> _Result:
    """Return what `work` returns; a cancellation in the meantime is raised when it is done.

    A second cancellation reaches the work.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
