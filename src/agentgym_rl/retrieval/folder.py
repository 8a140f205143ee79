"""An index on disk: what its folder holds, when it is complete, and who may write it.

index.json      written last: an index without it is unfinished
building.json   the corpus of an unfinished index
words/          tantivy: BM25 and the passages themselves
dense/          vectors, if the index has them (dense_build.py)
lock            held by the process that builds; the system releases it when that process dies
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from agentgym_rl.errors import ConfigError
from agentgym_rl.retrieval.bm25 import TITLE_WEIGHT

FORMAT = 2
"""Raised whenever an older index would be misread, or would rank differently."""

_LOCK_POLL_S = 0.2
_OWN_FILES = {"building.json", "building.part", "index.part", "words", "dense", "lock"}


@dataclass(frozen=True, slots=True)
class IndexMeta:
    """The corpus of an index, and how it was made."""

    fingerprint: str
    num_passages: int
    corpus: str
    format: int = FORMAT
    title_weight: int = TITLE_WEIGHT


@dataclass(frozen=True, slots=True)
class IndexFolder:
    """The paths inside an index."""

    root: Path

    @property
    def words(self) -> Path:
        return self.root / "words"

    @property
    def dense(self) -> Path:
        return self.root / "dense"

    def read_meta(self) -> IndexMeta | None:
        """Return the metadata of a finished index; None if it is missing or unfinished.

        Raises ValueError for an index that is damaged or was made by another version.
        """
        return _read(self.root / "index.json")

    def read_unfinished(self) -> IndexMeta | None:
        """Return the metadata of an unfinished index; None if no build has begun."""
        return _read(self.root / "building.json")

    def check_for_building(self) -> None:
        """Raise ValueError if the folder has files that do not belong to an index."""
        if not self.root.exists():
            return
        foreign = sorted({path.name for path in self.root.iterdir()} - _OWN_FILES)
        if foreign:
            named = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
            raise ValueError(f"{self.root} holds other files ({named}): name a new or empty folder")

    def begin(self, meta: IndexMeta) -> None:
        """Record the corpus of the index."""
        write_json(self.root / "building.json", asdict(meta))

    def begin_again(self, meta: IndexMeta) -> None:
        """Drop an unfinished build, and begin."""
        shutil.rmtree(self.words, ignore_errors=True)
        self.begin(meta)

    def finish(self, meta: IndexMeta) -> None:
        """Declare the index complete."""
        write_json(self.root / "index.json", asdict(meta))
        (self.root / "building.json").unlink(missing_ok=True)

    @contextmanager
    def locked(self, wait_s: float = 0.0) -> Iterator[None]:
        """Hold the right to build.

        Raises ValueError if another process keeps it for `wait_s`, ConfigError if the folder cannot
        be written.
        """
        deadline = time.monotonic() + wait_s
        with self._open_lock() as file:
            while not _try_lock(file):
                if time.monotonic() > deadline:
                    raise ValueError(
                        f"another process builds the index in {self.root}: wait for it, or name "
                        "another folder"
                    )
                time.sleep(_LOCK_POLL_S)
            yield

    def _open_lock(self) -> TextIO:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            return (self.root / "lock").open("w")
        except OSError as error:
            raise ConfigError(
                f"cannot write to the folder {self.root} ({error.strerror}): make it writable, or "
                "name another (AGENTGYM_CACHE for the cache)"
            ) from error


def write_json(path: Path, value: object) -> None:
    """Write a file that appears only when it is complete."""
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _try_lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(path: Path) -> IndexMeta | None:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        format_ = fields.get("format")
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise ValueError(f"{path.parent} is not a folder: name another one") from None
    except (ValueError, AttributeError) as error:
        raise _damaged(path, error) from error
    if format_ != FORMAT:
        raise ValueError(
            f"{path} has format {format_!r}, this version reads {FORMAT}: delete the "
            "folder and build the index again"
        )
    try:
        return IndexMeta(**fields)
    except TypeError as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{path} is damaged ({error}): delete the folder {path.parent} and build the index again"
    )
