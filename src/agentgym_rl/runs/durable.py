"""Files and folders that survive a crash of the machine, whole or not at all.

A name that changes hands without this may survive without what was written under it: the system
writes both when it likes.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentgym_rl.errors import RunError

_REFUSALS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST})
"""What a system says where this user may not write, or where a folder's name is a file's."""

_ASIDE = ".replaced"


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

    After a crash there is what was there before, or all of the new. A folder takes the place of
    one with anything in it by `replace_folder`.
    """
    _sync_all(written)
    written.replace(final)
    _sync(final.parent)


def replace_folder(written: Path, final: Path) -> None:
    """Give a written folder the name of another, which is removed.

    After a kill or a crash there is all of the old or all of the new, where necessary after
    `restore_folders`.
    """
    aside = final.with_name(f".{final.name}{_ASIDE}")
    _sync_all(written)
    if final.exists():
        shutil.rmtree(aside, ignore_errors=True)
        final.replace(aside)
    written.replace(final)
    _sync(final.parent)
    shutil.rmtree(aside, ignore_errors=True)


def restore_folders(parent: Path) -> None:
    """Finish in a folder what a kill left of `replace_folder`; nothing else may be writing there.

    An old folder gets its name back where the new one did not get it, and goes where it did.
    """
    for aside in parent.glob(f".*{_ASIDE}"):
        final = aside.with_name(aside.name.removeprefix(".").removesuffix(_ASIDE))
        if final.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.replace(final)
            _sync(parent)


def _sync_all(written: Path) -> None:
    """Wait until a file, or a folder with all it holds, is on the disk."""
    if written.is_symlink():
        return  # it is an entry of its folder, which is synced when it has its name
    if not written.is_dir():
        _sync(written)
        return
    for folder, _, files in os.walk(written, topdown=False):
        for name in files:
            _sync(Path(folder, name))
        _sync(Path(folder))


def _sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
