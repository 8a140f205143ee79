"""Opening files of a run folder, which anybody may have made: regular files of a bearable size.

A pipe or a device in the place of a file would hang whoever reads it, a link may lead anywhere, and
a file may be larger than memory. So a file is looked at after it is opened and before it is read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

MEGABYTE = 1_000_000


class TooLargeError(ValueError):
    """What would take more memory than it is given."""

    def __init__(self, num_bytes: float, max_bytes: int) -> None:
        super().__init__(
            f"too large to show: {num_bytes / MEGABYTE:.1f} MB, limit {max_bytes / MEGABYTE:g} MB"
        )


def open_regular(path: Path, *, max_bytes: int | None = None) -> BinaryIO:
    """Open a regular file for reading; never waits for anybody.

    Raises OSError for whatever else there is under the name (a pipe, a device, a folder, a link,
    which a caller who wants to follow it resolves first), and TooLargeError for a file above
    `max_bytes`.
    """
    try:
        # Without O_NONBLOCK a pipe is opened when somebody writes to it, perhaps never.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.ELOOP):  # a socket, a link
            raise
        raise OSError(f"{path.name} is not a regular file") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path.name} is not a regular file")
        if max_bytes is not None and found.st_size > max_bytes:
            raise TooLargeError(found.st_size, max_bytes)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, *, max_bytes: int) -> bytes:
    """Return what a regular file holds; raises as `open_regular` does."""
    with open_regular(path, max_bytes=max_bytes) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:  # it grew meanwhile
        raise TooLargeError(len(content), max_bytes)
    return content
