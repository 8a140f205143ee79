"""Waiting for what comes in its own time; each blocks the thread of the test."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def ask_until(ask: Callable[[], _T], is_there: Callable[[_T], bool], timeout_s: float = 60.0) -> _T:
    """Return the first answer that is as wanted."""
    deadline = time.monotonic() + timeout_s
    while not is_there(found := ask()):
        assert time.monotonic() < deadline, f"it never came; at last: {found}"
        time.sleep(0.01)
    return found


def wait_for(is_so: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait until something is so."""
    ask_until(is_so, bool, timeout_s)
