"""The files of a data set: which one to read, and its rows with the place of each.

Parquet, JSON lines, JSON (a list, or TriviaQA's object with `Data`), CSV and TSV, the text formats
also with `.gz`. Every row comes with the words that an error needs to name it.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, TypeAlias

import pyarrow.parquet as parquet

from agentgym_rl.envs.scenarios.searchqa.datasets.rows import READ_FIELDS, Row

PlacedRow: TypeAlias = tuple[str, Row]
"""Where the row stands, e.g. "nq/test.jsonl, line 17", and the row."""

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".tsv")
_BATCH = 4096


def read_rows(file: Path) -> Iterator[PlacedRow]:
    """Yield the rows of a file in order. Raises ValueError with file and place for a bad one."""
    kind = "".join(file.suffixes[-2:]).removesuffix(".gz")
    if file.suffix == ".parquet":
        yield from _parquet_rows(file)
    elif kind.endswith(".jsonl"):
        yield from _json_lines(file)
    elif kind.endswith(".json"):
        yield from _json_rows(file)
    elif file.suffix in (".csv", ".tsv"):
        yield from _table_rows(file)
    else:
        raise ValueError(f"cannot read {file}: the name must end with one of {', '.join(SUFFIXES)}")


def _parquet_rows(file: Path) -> Iterator[PlacedRow]:
    try:
        reader = parquet.ParquetFile(file)
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} is not a Parquet file: {error}") from error
    number = 0
    # Only what a question is made of: contexts are most of such a file.
    columns = [name for name in reader.schema_arrow.names if name in READ_FIELDS] or None
    for batch in reader.iter_batches(batch_size=_BATCH, columns=columns):
        for row in batch.to_pylist():
            number += 1
            yield f"{file}, row {number}", row


def _json_lines(file: Path) -> Iterator[PlacedRow]:
    with _open_text(file) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _placed(f"{file}, line {number}", _parsed(line, f"{file}, line {number}"))


def _json_rows(file: Path) -> Iterator[PlacedRow]:
    with _open_text(file) as text:
        content = text.read()
    if content.lstrip().startswith("{") and "\n{" in content.strip():
        # Many sets name their JSON lines ".json".
        yield from _json_lines(file)
        return
    data = _parsed(content, str(file))
    rows = data.get("Data") if isinstance(data, dict) else data
    if not isinstance(rows, list):
        raise ValueError(
            f"{file} is neither a list of questions nor an object with the list `Data`"
        )
    for number, row in enumerate(rows, start=1):
        yield _placed(f"{file}, entry {number}", row)


def _table_rows(file: Path) -> Iterator[PlacedRow]:
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, delimiter="\t" if file.suffix == ".tsv" else ",")
        for row in reader:
            place = f"{file}, line {reader.line_num}"
            if None in row or None in row.values():
                raise ValueError(f"{place}: the row and the heading differ in the number of cells")
            yield place, row


def _parsed(text: str, place: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{place}: " if "line" in place else f"{place}, line {error.lineno}: "
        raise ValueError(f"{where}not JSON: {error.msg}") from None


def _placed(place: str, row: object) -> PlacedRow:
    if not isinstance(row, dict):
        raise ValueError(f"{place}: not an object but {str(row)[:40]!r}")
    return place, row


def _open_text(file: Path) -> TextIO:
    if file.suffix == ".gz":
        return io.TextIOWrapper(gzip.open(file), encoding="utf-8")
    return file.open(encoding="utf-8")
