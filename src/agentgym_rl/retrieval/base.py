"""What every search engine can do, whatever is behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from agentgym_rl.retrieval.passages import Passage

MAX_TOPK = 1000
"""Passages that one search may ask a service for."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that was found. Scores compare within one query of one back end only."""

    passage: Passage
    score: float


class Retriever(ABC):
    """A search engine over a corpus. Any number of threads may read at once.

    Searching for any text is legal: what matches nothing, or is empty, finds nothing. A back end
    that fails raises EnvError; it never answers with fewer hits instead.
    """

    @abstractmethod
    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return at most `topk` hits for each query, the best first."""

    @abstractmethod
    def get(self, passage_id: str) -> Passage | None:
        """Return the passage with this id; None where there is none."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of passages; 0 where a remote server does not say."""

    def close(self) -> None:  # noqa: B027 - most back ends hold only memory
        """Give back connections and files. Safe to repeat; no call may follow."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
