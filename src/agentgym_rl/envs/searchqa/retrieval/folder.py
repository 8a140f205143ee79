"""An index on disk: what is in its folder, when it is whole, and who may write it.

index.json      written last: an index without it is unfinished
building.json   of which corpus an unfinished index is
words/          tantivy: BM25 and the passages themselves
dense/          vectors, where the index has them (dense_build.py)
lock            held by the process that builds; the system lets go of it when that dies
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from agentgym_rl.envs.searchqa.file_lock import holding
from agentgym_rl.envs.searchqa.retrieval.bm25 import TITLE_WEIGHT

logger = logging.getLogger(__name__)

FORMAT = 2
"""Raised whenever an index of before would be read wrongly, or would rank otherwise."""


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

        Raises ValueError for an index that another version made.
        """
        return _read(self.root / "index.json")

    def read_unfinished(self) -> IndexMeta | None:
        """Return what the unfinished index is of; None where no build was begun."""
        return _read(self.root / "building.json")

    def begin(self, meta: IndexMeta) -> None:
        """Note of which corpus the index will be."""
        write_json(self.root / "building.json", asdict(meta))

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
    except FileNotFoundError:
        return None
    if fields.get("format") != FORMAT:
        raise ValueError(
            f"{path} has format {fields.get('format')!r}, this version reads {FORMAT}: delete the "
            "folder and build the index again"
        )
    return IndexMeta(**fields)
