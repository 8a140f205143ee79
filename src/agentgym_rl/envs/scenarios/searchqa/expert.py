"""The expert: goes along the path of a question, and really searches and reads on the way.

It knows what to look for but not where it stands: a hop counts as done when its passage came back
with the finding in what was shown. A query that fails is put in other words, a passage that was cut
is opened. Where a passage cannot be found there is no advice, from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentgym_rl.envs.scenarios.searchqa.actions import Action
from agentgym_rl.envs.scenarios.searchqa.questions import Question
from agentgym_rl.envs.scenarios.searchqa.reading import plain_title
from agentgym_rl.envs.scenarios.searchqa.scoring import normalize
from agentgym_rl.envs.scenarios.searchqa.thoughts import thought
from agentgym_rl.envs.scenarios.searchqa.trace import Trace

_FUNCTION_WORDS = frozenset(
    ("a", "an", "and", "are", "as", "at", "by", "did", "do", "does", "for", "from", "had", "has",
     "have", "how", "in", "is", "it", "its", "of", "on", "or", "that", "the", "their", "there",
     "these", "this", "those", "to", "was", "were", "what", "when", "where", "which", "who",
     "whom", "whose", "with")
)  # fmt: skip


class SearchExpert:
    """Advice for one question.

    `shows` returns the ids of the passages that an action would show, given by its tag and its
    text; `title_of` the title of a passage by its id, None where it cannot be looked up.
    """

    def __init__(
        self,
        question: Question,
        shows: Callable[[str, str], frozenset[str]],
        title_of: Callable[[str], str | None],
    ) -> None:
        self._question, self._shows, self._title_of = question, shows, title_of
        self._has_way: bool | None = None

    def advise(self, trace: Trace) -> Action | None:
        """Return the next action; None where there is no advice."""
        if not self._question.path or not self._has_a_way():
            return None
        for number, hop in enumerate(self._question.path):
            if not trace.has_read(hop):
                return self._towards(number, trace)
        return Action("answer", self._question.answers[0])

    def explain(self, trace: Trace) -> str | None:
        """Return the reason of the advice (thoughts.py)."""
        advice = self.advise(trace)
        return None if advice is None else thought(self._question, trace, advice)

    def _towards(self, number: int, trace: Trace) -> Action | None:
        """Return what brings the finding of a hop nearer."""
        wanted = self._question.path[number].passage_id
        if trace.find(wanted) is not None:
            last = [shown.passage.id for shown in trace.last_found]
            return Action("open", str(last.index(wanted) + 1) if wanted in last else wanted)
        untried = (action for action in self._ways(number) if not trace.has_tried(action))
        return next(untried, None)

    def _has_a_way(self) -> bool:
        """Whether every passage of the path can be found."""
        if self._has_way is None:
            self._has_way = all(
                any(hop.passage_id in self._shows(a.tag, a.text) for a in self._ways(number))
                for number, hop in enumerate(self._question.path)
            )
        return self._has_way

    def _ways(self, number: int) -> Iterator[Action]:
        """Yield actions that may show the passage of a hop, the most natural first.

        They are a search for the hop's query, then for its weighty words, opening the passage by
        its name, where the question or an earlier hop has named it, and a search for the query
        with the question.
        """
        hop = self._question.path[number]
        yield Action("search", hop.query)
        words = [word for word in hop.query.split() if word.lower() not in _FUNCTION_WORDS]
        if words and " ".join(words) != hop.query:
            yield Action("search", " ".join(words))
        findings = (earlier.finding for earlier in self._question.path[:number])
        known = normalize(" ".join((self._question.text, *findings)))
        name = plain_title(self._title_of(hop.passage_id) or "")
        if name and f" {normalize(name)} " in f" {known} ":
            yield Action("open", name)
        yield Action("search", f"{hop.query} {self._question.text}")
