"""An index on disk: what is in its folder, when it is whole, and who may write it.

index.json      written last: an index without it is unfinished
building.json   of which corpus an unfinished index is
words/          tantivy: BM25 and the passages themselves
dense/          vectors, where the index has them (dense_build.py)
ids.u64         of an unfinished index: digests of the ids so far (build.py)
lock            held by the process that builds; the system lets go of it when that dies
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from agentgym_rl.retrieval.bm25 import TITLE_WEIGHT
from agentgym_rl.retrieval.file_lock import holding

logger = logging.getLogger(__name__)

FORMAT = 2
"""Raised whenever an index of before would be read wrongly, or would rank otherwise."""

_OWN_FILES = {"building.json", "building.part", "index.part", "ids.u64", "words", "dense", "lock"}


@dataclass(frozen=True, slots=True)
class IndexMeta:
    """What an index is of, and how it was made."""

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
        """Return what the finished index is; None where it is missing or unfinished.

        Raises ValueError for an index that another version made or that is damaged.
        """
        return _read(self.root / "index.json")

    def read_unfinished(self) -> IndexMeta | None:
        """Return what the unfinished index is of; None where no build was begun."""
        return _read(self.root / "building.json")

    def check_for_building(self) -> None:
        """Raise ValueError for a folder with files that do not belong to an index."""
        if not self.root.exists():
            return
        foreign = sorted({path.name for path in self.root.iterdir()} - _OWN_FILES)
        if foreign:
            named = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
            raise ValueError(f"{self.root} holds other files ({named}): name a new or empty folder")

    def begin(self, meta: IndexMeta) -> None:
        """Note of which corpus the index will be."""
        write_json(self.root / "building.json", asdict(meta))

    def begin_again(self, meta: IndexMeta) -> None:
        """Drop what an unfinished build left, and begin."""
        shutil.rmtree(self.words, ignore_errors=True)
        (self.root / "ids.u64").unlink(missing_ok=True)
        self.begin(meta)

    def finish(self, meta: IndexMeta) -> None:
        """Declare the index whole."""
        write_json(self.root / "index.json", asdict(meta))
        (self.root / "building.json").unlink(missing_ok=True)

    @contextmanager
    def locked(self, wait_s: float = 0.0) -> Iterator[None]:
        """Hold the right to build. Raises ValueError when another keeps it for `wait_s`."""
        with ExitStack() as stack:
            try:
                stack.enter_context(holding(self.root / "lock", wait_s=wait_s))
            except TimeoutError:
                raise ValueError(
                    f"another process builds the index in {self.root}: wait for it, or name "
                    "another folder"
                ) from None
            yield


def write_json(path: Path, value: object) -> None:
    """Write a file that is there whole or not at all."""
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


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
