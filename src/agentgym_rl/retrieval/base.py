"""The contract of every search engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from agentgym_rl.retrieval.passages import Passage

MAX_TOPK = 1000
"""The most passages that one search may ask a service for."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that was found. Scores compare within one query of one back end only."""

    passage: Passage
    score: float


class Retriever(ABC):
    """A search engine over a corpus. Any number of threads may read at once.

    Any text may be searched for; an empty one finds nothing. A back end that fails raises EnvError
    and never returns fewer hits instead.
    """

    @abstractmethod
    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return at most `topk` hits for each query, the best first."""

    @abstractmethod
    def get(self, passage_id: str) -> Passage | None:
        """Return the passage with this id, or None."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of passages; 0 if a remote server does not report it."""

    def close(self) -> None:  # noqa: B027 - most back ends hold only memory
        """Release connections and files. Safe to repeat; no other call may follow."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
