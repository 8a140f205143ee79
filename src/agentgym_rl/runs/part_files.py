"""Opening parts of episodes, which anybody may have made: sizes are known before data are decoded.

A Parquet file of a few kilobytes can say that it holds gigabytes. What it says of itself (rows,
columns, uncompressed bytes) is checked here. What it does not say, such as one long text that a
million rows repeat, only a limit on the memory of the process catches (ui/decoders.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from agentgym_rl.runs.regular_files import MEGABYTE, TooLargeError, open_regular

MAX_ROWS = 1 << 20
MAX_COLUMNS = 1000
MAX_FOOTER_BYTES = 16 * MEGABYTE
MAX_DECODED_BYTES = 128 * MEGABYTE
"""Of the columns and row groups that are read together, as the file says."""
_TAIL = 8
"""Bytes at the end: the length of the footer, and the four letters of the format."""


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


def pieces(opened: pq.ParquetFile, columns: Collection[int]) -> Iterator[list[int]]:
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
