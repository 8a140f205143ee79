"""A question of deep search: its text, its answers, and where the answers stand.

Both the embedded questions and the seven public data sets become this one type. Only the embedded
ones know their gold passages and an expert's way to them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hop:
    """One search of an expert who knows the question and what the earlier hops found.

    Example: Hop("Stalker 1979 film director", "film-3011", "Andrei Tarkovsky")
    """

    query: str
    """What to search for."""

    passage_id: str
    """The passage that the search is for."""

    finding: str
    """What the passage says, as the later hops need it."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question with everything that is needed to ask, solve and score it."""

    index: int
    """Its number in its split or its range of ids."""

    text: str

    answers: tuple[str, ...]
    """All forms that count as right: the canonical one first, then aliases. Never empty."""

    category: str
    """What kind of question it is, e.g. "bridge", or the data set it is from, e.g. "musique"."""

    hops: int
    """How many passages one has to find; 0 where the data set does not say."""

    gold: tuple[str, ...]
    """Ids of the passages that hold the answer's reasons; empty where unknown."""

    path: tuple[Hop, ...]
    """An expert's searches in order, the last one brings the answer; empty where unknown."""
