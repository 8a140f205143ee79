"""Files and folders that survive a crash of the machine, whole or not at all.

A name that changes hands without this may survive without what was written under it: the system
writes both when it likes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentgym_rl.errors import RunError

_REFUSALS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST})
"""What a system says where this user may not write, or where a folder's name is a file's."""


@contextmanager
def writing_in(folder: Path) -> Iterator[None]:
    """Turn a refusal to write in a folder into a RunError that names the folder and the remedy.

    A failure of another kind, such as a full disk, rises as it is.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        above = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
        what = f"{folder} cannot be written"
        if above != folder:
            what = f"{folder} cannot be made in {above.resolve()}"
        raise RunError(
            f"{what}: {error.strerror}; name another folder, or make that one writable"
        ) from error


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
