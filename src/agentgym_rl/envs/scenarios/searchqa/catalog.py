"""The questions of a source as numbered tasks.

The embedded questions are numbered across the splits, beginning with the test split; the data
sets have AgentGym's numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from agentgym_rl.envs.scenarios.searchqa.questions import Question


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
