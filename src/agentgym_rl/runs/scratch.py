"""Folders for what processes of a run exchange through files, whole models among it.

A run that is killed cannot remove its own. Each is locked while its run lives, so the next run on
the machine finds those that are left, and removes them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_LOCK = ".in-use"


class Scratch:
    """A new folder, in the system's folder for such; `remove` or the next run's removes it."""

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        _remove_left(parent, prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        # Locked before it has its name: nobody takes it for one that is left.
        begun = self.path / f"{_LOCK}.begun"
        self._lock = os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        begun.rename(self.path / _LOCK)

    def remove(self) -> None:
        """Remove the folder with all in it. Safe to repeat."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def _remove_left(parent: Path, prefix: str) -> None:
    """Remove this user's folders whose runs have ended."""
    for folder in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # it is in use, another's, a link, or gone
            if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
