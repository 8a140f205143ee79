"""Corpora on disk as streams of passages: JSON lines (also compressed) and Parquet.

Memory holds only the current rows, and reading can start at any row: an index build that was killed
resumes where it stopped.
"""

from __future__ import annotations

import codecs
import hashlib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from gzip import GzipFile
from io import BufferedIOBase
from lzma import LZMAError, LZMAFile
from pathlib import Path

import orjson

from agentgym_rl.retrieval.passages import Passage, passage_from_row

_SAMPLE_BYTES = 1024 * 1024
_MAX_SAMPLES = 64
_PARQUET_ROWS = 4096
_UNPACKERS: dict[str, Callable[..., BufferedIOBase]] = {".gz": GzipFile, ".xz": LZMAFile}


class Corpus(ABC):
    """The passages of a file in a fixed order; the number of a passage in it is its row."""

    num_expected: int | None
    """Roughly how many passages there are; None if only reading would show it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = path.name
        self.fingerprint = _fingerprint(path)
        """The same for the same passages; an index records it."""

    @abstractmethod
    def read(self, start: int = 0) -> Iterator[Passage]:
        """Yield the passages from row `start` on. Raises ValueError that names a bad row."""


class JsonlCorpus(Corpus):
    """One JSON object per line; blank lines do not count as rows. `.gz` and `.xz` are unpacked."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.num_expected = None if path.suffix in _UNPACKERS else _estimate_lines(path)

    def read(self, start: int = 0) -> Iterator[Passage]:
        row = 0
        unpack = _UNPACKERS.get(self._path.suffix, open)
        with _reading(self._path), unpack(self._path, "rb") as file:
            for number, raw in enumerate(file, 1):
                line = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
                if not line.strip():
                    continue
                if row >= start:
                    yield _passage(line, row, f"{self._path}, line {number}")
                row += 1


class ParquetCorpus(Corpus):
    """A Parquet file with the columns that `passage_from_row` reads."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa  # late: other formats do not need it
        import pyarrow.parquet as pq

        super().__init__(path)
        with _reading(path, pa.ArrowException), pq.ParquetFile(path) as file:
            self.num_expected = file.metadata.num_rows
            names = file.schema_arrow.names
        self._columns = [n for n in ("id", "_id", "title", "text", "contents") if n in names]
        if not {"text", "contents"} & set(self._columns):
            raise ValueError(
                f"{path} has the columns {names}; passages need `contents`, or `text` (and `title`)"
            )

    def read(self, start: int = 0) -> Iterator[Passage]:
        import pyarrow as pa  # late, as above
        import pyarrow.parquet as pq

        row = 0
        with _reading(self._path, pa.ArrowException), pq.ParquetFile(self._path) as file:
            for batch in file.iter_batches(_PARQUET_ROWS, columns=self._columns):
                if row + batch.num_rows > start:
                    first = max(start - row, 0)
                    for place, fields in enumerate(batch.slice(first).to_pylist(), row + first):
                        yield _passage(fields, place, f"{self._path}, row {place + 1}")
                row += batch.num_rows


def open_corpus(path: Path) -> Corpus:
    """Return the corpus in a .jsonl, .jsonl.gz, .jsonl.xz or .parquet file, else ValueError."""
    if not path.is_file():
        raise ValueError(f"there is no corpus file {path}")
    if path.suffix == ".parquet":
        return ParquetCorpus(path)
    if path.name.removesuffix(".gz").removesuffix(".xz").endswith((".jsonl", ".ndjson")):
        return JsonlCorpus(path)
    raise ValueError(f"{path} is not a corpus: give a .jsonl (also .gz or .xz) or .parquet file")


def _passage(fields: object, row: int, where: str) -> Passage:
    """Return the passage of a row, given as its fields or as JSON; errors begin with `where`."""
    try:
        if isinstance(fields, bytes):
            fields = orjson.loads(fields)
        if not isinstance(fields, dict):
            raise ValueError(f"a {type(fields).__name__} is not an object")
        for name in ("id", "_id"):
            if fields.get(name) == "":
                raise ValueError(f"the {name} is empty: fill it in, or leave it out of every row")
        return passage_from_row(fields, fallback_id=str(row))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


@contextmanager
def _reading(path: Path, *failures: type[Exception]) -> Iterator[None]:
    """Add the path to the error of a file that cannot be read."""
    try:
        yield
    except (OSError, EOFError, zlib.error, LZMAError, *failures) as error:
        raise ValueError(
            f"cannot read {path}, it is damaged or not in the format of its name: {error}"
        ) from error


def _estimate_lines(path: Path) -> int:
    with path.open("rb") as file:
        sample = file.read(_SAMPLE_BYTES)
    num_lines = sample.count(b"\n")
    return max(1, round(path.stat().st_size * num_lines / max(1, len(sample))))


def _fingerprint(path: Path) -> str:
    """Return a digest of the file; of its size and of pieces spread over it if it is large.

    Reading all of a corpus of many gigabytes would take minutes at every start.
    """
    size = path.stat().st_size
    digest = hashlib.blake2b(str(size).encode(), digest_size=12)
    step = max(_SAMPLE_BYTES, size // _MAX_SAMPLES)
    with path.open("rb") as file:
        for place in range(0, size, step):
            file.seek(place)
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
