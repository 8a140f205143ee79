"""A question as it is first written, before it is screened and put into a split."""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_rl.envs.scenarios.searchqa.questions import Hop, Question
from benchmarks.shortcuts import fold
from tools.embedded_corpus.names import digest


@dataclass(frozen=True, slots=True)
class Draft:
    """One question, with its kind and its bridge entities, which decide its split."""

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
        """Identifies the question in the list of screened-out drafts."""
        return digest(self.text)[:8]

    @property
    def gold(self) -> tuple[str, ...]:
        """The ids of the passages that an agent has to find."""
        return tuple(dict.fromkeys(hop.passage_id for hop in self.path))

    @property
    def gives_itself_away(self) -> bool:
        """Whether the text contains its own answer, or an intermediate finding."""
        text = f" {fold(self.text)} "
        hidden = [self.answers[0], *(hop.finding for hop in self.path[:-1])]
        return any(f" {fold(name)} " in text for name in hidden)

    def as_question(self, index: int) -> Question:
        """Return the question at `index` of its split."""
        return Question(
            index=index,
            text=self.text,
            answers=self.answers,
            category=self.category,
            hops=len(self.gold),
            gold=self.gold,
            path=self.path,
        )
