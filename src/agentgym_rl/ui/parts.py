"""Parts of an episode store as they are found on disk: listed, counted, read where they can be.

Parts appear while a run goes on, and one that is broken is told of and left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
BROKEN = (
    OSError,
    pa.ArrowException,
    LookupError,
    AttributeError,
    TypeError,
    ValueError,
    MemoryError,
)
"""What reading a part that is cut, forged or gone may raise: any column may be of any type."""


class PartFile(NamedTuple):
    """A part in one state: a file that is written anew is another one."""

    name: str
    size: int
    mtime_ns: int
    inode: int

    @property
    def stem(self) -> str:
        return self.name.removesuffix(".parquet")


def list_parts(folder: Path) -> list[PartFile]:
    """Return the parts of a folder in the order of their names; links are left out."""
    found: list[PartFile] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if not (name.endswith(".parquet") and STEM.fullmatch(name)):
                    continue
                if entry.is_file(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    found.append(PartFile(name, stat.st_size, stat.st_mtime_ns, stat.st_ino))
    except OSError:
        return []
    return sorted(found)


def num_rows(file: Path) -> int:
    """Return the rows of a part; -1 for one that cannot be read."""
    try:
        return int(pq.read_metadata(file).num_rows)
    except BROKEN:
        return -1


def read_part(file: Path, columns: Sequence[str]) -> pa.Table:
    """Return the columns that a part has of those named, checked throughout. Raises one of BROKEN.

    A part without the columns that tell an episode is none.
    """
    with pq.ParquetFile(file) as opened:
        names = opened.schema_arrow.names
        missing = {"phase", "step", "env", "stop_reason"} - set(names)
        if missing:
            raise ValueError(f"it has no column {', '.join(sorted(missing))}")
        table = opened.read(columns=[name for name in columns if name in names])
    table.validate(full=True)
    return table
