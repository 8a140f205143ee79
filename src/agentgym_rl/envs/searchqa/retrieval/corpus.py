"""Corpora on disk as streams of passages: JSON lines (also gzipped) and Parquet.

Nothing is held but the row at hand, and reading can start at any row, so that an index build that
was killed goes on where it stopped.
"""

from __future__ import annotations

import gzip
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

import orjson

from agentgym_rl.envs.searchqa.passages import Passage, passage_from_row

_SAMPLE_BYTES = 1024 * 1024
_MAX_SAMPLES = 64
_PARQUET_ROWS = 4096


class Corpus(ABC):
    """Passages in a fixed order; the number of a passage in it is its row."""

    name: str
    fingerprint: str
    """The same for the same passages; an index remembers it."""
    num_expected: int | None
    """How many passages there are, roughly; None where only reading would tell."""

    @abstractmethod
    def read(self, start: int = 0) -> Iterator[Passage]:
        """Yield the passages from row `start` on. Raises ValueError that names a bad row."""


class JsonlCorpus(Corpus):
    """One JSON object a line; blank lines do not count as rows. `.gz` is read through gzip."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.fingerprint = _fingerprint(path)
        self._path = path
        self.num_expected = None if path.suffix == ".gz" else _estimate_lines(path)

    def read(self, start: int = 0) -> Iterator[Passage]:
        with self._open() as file:
            filled = (line for line in file if not line.isspace())
            for row, line in enumerate(islice(filled, start, None), start):
                yield _passage(line, row, self.name)

    def _open(self) -> BinaryIO:
        if self._path.suffix == ".gz":
            return cast(BinaryIO, gzip.open(self._path, "rb"))
        return self._path.open("rb")


class ParquetCorpus(Corpus):
    """A Parquet file with the columns that `passage_from_row` reads."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq  # late: others start without it

        self.name = path.name
        self.fingerprint = _fingerprint(path)
        self._path = path
        with pq.ParquetFile(path) as file:
            self.num_expected = file.metadata.num_rows
            names = file.schema_arrow.names
        self._columns = [n for n in ("id", "_id", "title", "text", "contents") if n in names]
        if not {"text", "contents"} & set(self._columns):
            raise ValueError(
                f"{path} has the columns {names}; passages need `contents`, or `text` (and `title`)"
            )

    def read(self, start: int = 0) -> Iterator[Passage]:
        import pyarrow.parquet as pq  # late, as above

        row = 0
        with pq.ParquetFile(self._path) as file:
            for batch in file.iter_batches(_PARQUET_ROWS, columns=self._columns):
                if row + batch.num_rows > start:
                    first = max(start - row, 0)
                    for place, fields in enumerate(batch.slice(first).to_pylist(), row + first):
                        yield passage_from_row(fields, fallback_id=str(place))
                row += batch.num_rows


def open_corpus(path: Path) -> Corpus:
    """Return the corpus in a file, by the ending of its name. Raises ValueError for others."""
    if not path.is_file():
        raise ValueError(f"there is no corpus file {path}")
    if path.suffix == ".parquet":
        return ParquetCorpus(path)
    if path.name.endswith((".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")):
        return JsonlCorpus(path)
    raise ValueError(f"{path} is not a corpus: give a .jsonl, .jsonl.gz or .parquet file")


def _passage(line: bytes, row: int, name: str) -> Passage:
    try:
        fields = orjson.loads(line)
        if not isinstance(fields, dict):
            raise ValueError(f"a {type(fields).__name__} is not an object")
        return passage_from_row(fields, fallback_id=str(row))
    except ValueError as error:
        raise ValueError(f"row {row} of {name}: {error}") from error


def _estimate_lines(path: Path) -> int:
    with path.open("rb") as file:
        sample = file.read(_SAMPLE_BYTES)
    num_lines = sample.count(b"\n")
    return max(1, round(path.stat().st_size * num_lines / max(1, len(sample))))


def _fingerprint(path: Path) -> str:
    """Return a digest of the file; of its size and of pieces spread over it where it is large.

    The whole of a corpus of many gigabytes would take minutes at every start.
    """
    size = path.stat().st_size
    digest = hashlib.blake2b(str(size).encode(), digest_size=12)
    step = max(_SAMPLE_BYTES, size // _MAX_SAMPLES)
    with path.open("rb") as file:
        for place in range(0, size, step):
            file.seek(place)
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
