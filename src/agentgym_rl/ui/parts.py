"""Parts of an episode store as they are found on disk: listed, counted, read where they can be.

Parts appear while a run goes on, and one that is broken is told of and left out. What decodes a
part is called through decoders.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from agentgym_rl.runs.part_files import open_part, pieces
from agentgym_rl.ui.decoders import DecodeError

STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
BROKEN = (
    DecodeError,
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
    """Return the rows of a part. Raises one of BROKEN."""
    with open_part(file) as opened:
        return int(opened.metadata.num_rows)


def read_tables(file: Path, columns: Sequence[str], *, instead: str = "") -> Iterator[pa.Table]:
    """Yield the columns that a part has of those named, in tables of some row groups each.

    Each is checked throughout. Raises one of BROKEN. A part without the columns that tell an
    episode is none. Where a part lacks one of the columns, it is read with `instead`, if given.
    """
    with open_part(file) as opened:
        names = opened.schema_arrow.names
        missing = {"phase", "step", "env", "stop_reason"} - set(names)
        if missing:
            raise ValueError(f"it has no column {', '.join(sorted(missing))}")
        known = [name for name in columns if name in names]
        if instead in names and len(known) < len(columns):
            known.append(instead)
        schema = opened.metadata.schema
        places = [
            place
            for place in range(len(schema))
            if schema.column(place).path.partition(".")[0] in known
        ]
        for groups in pieces(opened, places):
            table = opened.read_row_groups(groups, columns=known, use_threads=False)
            table.validate(full=True)
            yield table
