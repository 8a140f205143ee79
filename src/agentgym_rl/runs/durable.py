"""Files and folders that survive a crash of the machine, whole or not at all.

A name that changes hands without this may survive without what was written under it: the system
writes both when it likes.
"""

from __future__ import annotations

import os
from pathlib import Path


def put_in_place(written: Path, final: Path) -> None:
    """Give a written file, folder or link its final name.

    After a crash there is what was there before, or all of the new. A folder does not replace one
    that has anything in it.
    """
    if written.is_symlink():
        pass  # it is an entry of its folder, which is synced below
    elif written.is_dir():
        for folder, _, files in os.walk(written, topdown=False):
            for name in files:
                _sync(Path(folder, name))
            _sync(Path(folder))
    else:
        _sync(written)
    written.replace(final)
    _sync(final.parent)


def _sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
