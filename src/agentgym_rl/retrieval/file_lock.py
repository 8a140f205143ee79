"""One process at a time makes what all of them read."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from agentgym_rl.errors import ConfigError

_POLL_S = 0.2


@contextmanager
def holding(file: Path, *, wait_s: float) -> Iterator[None]:
    """Hold a lock file, which the system lets go of when the process dies.

    Raises TimeoutError when another keeps it for `wait_s`, ConfigError where it cannot be made.
    """
    deadline = time.monotonic() + wait_s
    with _create(file) as opened:
        while not _try_lock(opened.fileno()):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"another process has held {file} for {wait_s:g} s: wait for it, or end it"
                )
            time.sleep(_POLL_S)
        yield


def _create(file: Path) -> TextIO:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return file.open("w")
    except OSError as error:
        raise ConfigError(
            f"cannot write to the folder {file.parent} ({error.strerror}): make it writable, or "
            "name another (AGENTGYM_CACHE for the cache)"
        ) from error


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
