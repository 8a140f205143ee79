"""Parts of an episode store as they are found on disk: listed, counted, read where they can be.

Anybody may have made a part. A Parquet file of a few kilobytes can say that it holds gigabytes, so
what it says of itself (rows, columns, uncompressed bytes) is checked before data are decoded. What
it does not say, such as one long text that a million rows repeat, only a limit on the memory of the
process catches: whatever decodes a part is called through decoders.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from agentgym_rl.runs.regular_files import MEGABYTE, TooLargeError, open_regular
from agentgym_rl.ui.decoders import DecodeError

MAX_ROWS = 1 << 20
MAX_COLUMNS = 1000
MAX_FOOTER_BYTES = 16 * MEGABYTE
MAX_DECODED_BYTES = 128 * MEGABYTE
"""Of the columns and row groups that are read together, as the file says."""
_TAIL = 8
"""Bytes at the end: the length of the footer, and the four letters of the format."""
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
        for groups in _pieces(opened, places):
            table = opened.read_row_groups(groups, columns=known, use_threads=False)
            table.validate(full=True)
            yield table


@contextmanager
def open_part(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a part. Raises OSError, TooLargeError, or what Arrow raises for no Parquet file."""
    with open_regular(path) as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - _TAIL))
        footer_bytes = int.from_bytes(file.read(4), "little")
        if footer_bytes > MAX_FOOTER_BYTES:
            raise TooLargeError(footer_bytes, MAX_FOOTER_BYTES)
        file.seek(0)
        with pq.ParquetFile(file, thrift_container_size_limit=MAX_FOOTER_BYTES) as opened:
            metadata = opened.metadata
            if metadata.num_rows > MAX_ROWS or metadata.num_columns > MAX_COLUMNS:
                raise ValueError(
                    f"too large to show: {metadata.num_rows} rows of {metadata.num_columns} "
                    f"columns, limit {MAX_ROWS} and {MAX_COLUMNS}"
                )
            yield opened


def row_group_bytes(opened: pq.ParquetFile, group: int, columns: Collection[int]) -> int:
    """Return what some columns of a row group take uncompressed, as the file says.

    Raises TooLargeError where that is above the limit.
    """
    row_group = opened.metadata.row_group(group)
    declared = sum(row_group.column(column).total_uncompressed_size for column in columns)
    if not 0 <= declared <= MAX_DECODED_BYTES:
        raise TooLargeError(declared, MAX_DECODED_BYTES)
    return declared


def _pieces(opened: pq.ParquetFile, columns: Collection[int]) -> Iterator[list[int]]:
    """Yield row groups, in order, as many at a time as stay below the limit together."""
    piece: list[int] = []
    total = 0
    for group in range(opened.metadata.num_row_groups):
        own = row_group_bytes(opened, group, columns)
        if piece and total + own > MAX_DECODED_BYTES:
            yield piece
            piece, total = list[int](), 0
        piece.append(group)
        total += own
    if piece:
        yield piece
