"""Divides the questions into training, development and test.

Every person and every country belongs to one split, and a film goes with its first director. The
bridge entities of a question are what an agent has to find on the way: everything that the question
describes without naming it, such as "the director of ...", "the 1972 film directed by ..." or "the
country in which ... lies". If nothing is hidden, they are what the question compares, what it asks
about, or the person that two films have in common. A question belongs to the split of its bridge
entities; if they belong to several splits, it is dropped. No bridge entity of a test question is
therefore one of a training question.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_rl.envs.scenarios.searchqa.embedded import Split
from benchmarks.shortcuts import fold
from tools.embedded_corpus.countries import Country
from tools.embedded_corpus.films import Film
from tools.embedded_corpus.names import fraction

_TRAIN_SHARE = 0.6
_DEV_SHARE = 0.15


def person_bridge(name: str) -> str:
    """Return the key of a person; the spelling of accents does not matter."""
    return f"person {fold(name)}"


def film_bridge(film: Film) -> str:
    """Return the key of a film, which names its director."""
    return f"film {film.number} by {fold(film.directors[0])}"


def country_bridge(country: Country) -> str:
    """Return the key of a country."""
    return f"country {country.code}"


def split_of(bridges: Sequence[str]) -> Split | None:
    """Return the split that all these entities share, or None."""
    splits = {_split_of_entity(bridge) for bridge in bridges}
    return splits.pop() if len(splits) == 1 else None


def _split_of_entity(bridge: str) -> Split:
    if bridge.startswith("film "):
        bridge = f"person {bridge.partition(' by ')[2]}"
    place = fraction(f"split of {bridge}")
    if place < _TRAIN_SHARE:
        return "train"
    return "dev" if place < _TRAIN_SHARE + _DEV_SHARE else "test"
