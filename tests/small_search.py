"""A small library with a few questions about it: `searchqa` without its data.

Also reached by name ("small_search:SmallSearchQA"), so that a server process can serve it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from agentgym_rl.envs.scenarios.searchqa.env import SearchQA
from agentgym_rl.envs.scenarios.searchqa.options import SearchOptions
from agentgym_rl.envs.scenarios.searchqa.questions import Catalog, Hop, Question, number_on
from agentgym_rl.envs.scenarios.searchqa.sources import open_engine
from agentgym_rl.retrieval.base import Hit, Retriever
from agentgym_rl.retrieval.passages import Passage

_LONG = f"The river Volga is long. {'It flows on. ' * 60}It ends in the Caspian Sea."
LIBRARY = (
    Passage("film-1", "Stalker", "Stalker is a film of 1979. It was directed by Andrei Tarkovsky."),
    Passage("film-2", "Solaris", "Solaris is a film of 1972. It was directed by Andrei Tarkovsky."),
    Passage("person-1", "Andrei Tarkovsky", "Andrei Tarkovsky was born in Zavrazhye, a village."),
    Passage("place-1", "Zavrazhye", "Zavrazhye lies on the river Volga and has a church."),
    Passage("place-2", "Paris", "Paris lies on the river Seine."),
    Passage("long-1", "Volga", _LONG),
)

QUESTIONS = (
    Question(
        0,
        "On which river lies the village where the director of Stalker was born?",
        ("the Volga", "Volga", "river Volga"),
        "bridge",
        3,
        ("film-1", "person-1", "place-1"),
        (
            Hop("director of Stalker", "film-1", "Andrei Tarkovsky"),
            Hop("where was Andrei Tarkovsky born", "person-1", "Zavrazhye"),
            Hop("Zavrazhye river", "place-1", "Volga"),
        ),
    ),
    Question(
        1,
        "Into which sea does the river Volga flow?",
        ("Caspian Sea",),
        "single",
        1,
        ("long-1",),
        (Hop("Volga flow long", "long-1", "Caspian Sea"),),
    ),
    Question(
        2,
        "Which film is older, Stalker or Solaris?",
        ("Solaris",),
        "comparison",
        2,
        ("film-1", "film-2"),
        (
            Hop("when was Stalker made", "film-1", "1979"),
            Hop("when was Solaris made", "film-2", "1972"),
        ),
    ),
)


class SmallEngine(Retriever):
    """Ranks by the number of words in common; equal ones by their order in the library."""

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        return [self._search(_words(query), topk) for query in queries]

    def get(self, passage_id: str) -> Passage | None:
        return next((passage for passage in LIBRARY if passage.id == passage_id), None)

    def __len__(self) -> int:
        return len(LIBRARY)

    def _search(self, words: frozenset[str], topk: int) -> list[Hit]:
        scored = [
            Hit(one, float(len(words & _words(one.title)) + len(words & _words(one.contents))))
            for one in LIBRARY
        ]
        found = [hit for hit in scored if hit.score > 0]
        return sorted(found, key=lambda hit: -hit.score)[:topk]


class SmallSearchQA(SearchQA):
    """The environment over the small library; with a `url` it searches there."""

    @classmethod
    def catalog(cls) -> Catalog:
        return _catalog()

    @classmethod
    def _open_engine(cls, options: SearchOptions) -> Retriever:
        return open_engine(options) if options.url else SmallEngine()


@cache
def _catalog() -> Catalog:
    splits = {"train": QUESTIONS[1:2], "dev": QUESTIONS[2:], "test": QUESTIONS[:1]}
    return number_on(splits, ("test", "dev", "train"))


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))
