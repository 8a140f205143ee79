"""A question of deep search: its text, its answers, where the answers stand, and its number.

Both the embedded questions and the seven public data sets become this one type. Only the embedded
ones know their gold passages and an expert's way to them. The embedded questions are numbered
across the splits, beginning with the test split; the data sets have AgentGym's numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property


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


@dataclass(frozen=True, eq=False)
class Catalog:
    """All questions of a source by split. Their indices are unique over the splits."""

    splits: Mapping[str, tuple[Question, ...]]

    @cached_property
    def by_index(self) -> Mapping[int, tuple[str, Question]]:
        """Split and question of every index."""
        return {
            question.index: (split, question)
            for split, questions in self.splits.items()
            for question in questions
        }


def number_on(splits: Mapping[str, Sequence[Question]], order: Sequence[str]) -> Catalog:
    """Return the questions numbered from 0 on, one split of `order` after another."""
    numbered: dict[str, tuple[Question, ...]] = {}
    start = 0
    for split in order:
        numbered[split] = tuple(number_from(start, splits[split]))
        start += len(numbered[split])
    return Catalog(numbered)


def number_from(start: int, questions: Sequence[Question]) -> list[Question]:
    """Return the questions with indices from `start` on."""
    return [replace(question, index=start + place) for place, question in enumerate(questions)]
