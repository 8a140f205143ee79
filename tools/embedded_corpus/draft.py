"""A question as it is first written, before it is screened and put into a split."""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_rl.envs.scenarios.searchqa.questions import Hop, Question
from benchmarks.shortcuts import fold
from tools.embedded_corpus.names import digest


@dataclass(frozen=True, slots=True)
class Draft:
    """One question with what decides over it: its kind and its bridge entities."""

    kind: str
    """The generator's name, e.g. "bridge-director-film"."""
    category: str
    text: str
    answers: tuple[str, ...]
    path: tuple[Hop, ...]
    bridges: tuple[str, ...]
    """Keys of its bridge entities, see `splits.py`."""

    @property
    def key(self) -> str:
        """Stands for the question in the list of those that were screened out."""
        return digest(self.text)[:8]

    @property
    def gold(self) -> tuple[str, ...]:
        """The ids of the passages that one has to find."""
        return tuple(dict.fromkeys(hop.passage_id for hop in self.path))

    @property
    def gives_itself_away(self) -> bool:
        """Whether the text holds its own answer, or what has to be found on the way to it."""
        text = f" {fold(self.text)} "
        hidden = [self.answers[0], *(hop.finding for hop in self.path[:-1])]
        return any(f" {fold(name)} " in text for name in hidden)

    def as_question(self, index: int) -> Question:
        """Return the question for its place in a split."""
        return Question(
            index=index,
            text=self.text,
            answers=self.answers,
            category=self.category,
            hops=len(self.gold),
            gold=self.gold,
            path=self.path,
        )
