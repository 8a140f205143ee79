"""Questions by how much two things differ: 2 hops if both are named, up to 4 if both are described.

They ask for a number and offer no choice, which half of all guesses would get right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from agentgym_rl.envs.scenarios.searchqa.questions import Hop
from tools.embedded_corpus.answers import minutes_answers, years_answers
from tools.embedded_corpus.cities import City
from tools.embedded_corpus.draft import Draft
from tools.embedded_corpus.films import Film
from tools.embedded_corpus.names import pick
from tools.embedded_corpus.pool import Pool, credit_hop, film_hop, film_named
from tools.embedded_corpus.splits import (
    Split,
    country_bridge,
    film_bridge,
    split_of,
)

_CATEGORY = "comparison"
_MIN_MINUTES = 5
"""Running times nearer than this differ between versions of a film."""
_MIN_YEARS = 3
_MAX_DISTANCE = 12

Item = TypeVar("Item")


def named_films(pool: Pool) -> Iterator[Draft]:
    """Two named films."""
    for first, second in _pairs(pool, "named-films", described=(False, False)):
        yield _film_draft("comparison-named-films", pool, first, second, described=(False, False))


def half_described_films(pool: Pool) -> Iterator[Draft]:
    """A named film and one described by its director and year."""
    for first, second in _pairs(pool, "half-described-films", described=(False, True)):
        yield _film_draft(
            "comparison-half-described-films", pool, first, second, described=(False, True)
        )


def described_films(pool: Pool) -> Iterator[Draft]:
    """Two films described by their directors and years."""
    for first, second in _pairs(pool, "described-films", described=(True, True)):
        yield _film_draft("comparison-described-films", pool, first, second, described=(True, True))


def countries_of_cities(pool: Pool) -> Iterator[Draft]:
    """Two cities: by how much the people of their countries differ in age."""
    for first, second in _by_split(pool, "countries-of-cities"):
        ages = [pool.country_of_city(city).median_age for city in (first, second)]
        if not ages[0] or not ages[1] or abs(ages[0] - ages[1]) < _MIN_YEARS:
            continue
        path: list[Hop] = []
        for city, age in zip((first, second), ages, strict=True):
            country = pool.country_of_city(city)
            path.append(Hop(f"{city.name} city country", city.id, country.name))
            finding = f"{age:g} years"
            path.append(
                Hop(f"{country.name} median age", country.passage_id("Median age"), finding)
            )
        old, young = (first, second) if ages[0] > ages[1] else (second, first)
        text = pick(
            (
                f"By how many years is the median age higher in the country of the city of "
                f"{old.name} than in the country of the city of {young.name}?",
                f"What is the difference in years between the median ages of the country of the "
                f"city of {first.name} and the country of the city of {second.name}?",
            ),
            f"text {first.id} {second.id}",
        )
        answers = years_answers(round(abs(ages[0] - ages[1]), 1))
        bridges = tuple(country_bridge(pool.country_of_city(city)) for city in (first, second))
        yield Draft(
            "comparison-countries-of-cities", _CATEGORY, text, answers, tuple(path), bridges
        )


def _by_split(pool: Pool, salt: str) -> Iterator[tuple[City, City]]:
    """Yield pairs of cities of different countries, among those of one split."""
    by_split: dict[Split | None, list[City]] = {}
    for city in pool.cities_in_order(salt):
        bridge = country_bridge(pool.country_of_city(city))
        by_split.setdefault(split_of((bridge,)), []).append(city)
    for cities in by_split.values():
        yield from (pair for pair in _near(cities) if pair[0].country != pair[1].country)


def _pairs(pool: Pool, salt: str, *, described: tuple[bool, bool]) -> Iterator[tuple[Film, Film]]:
    """Yield pairs of films with clearly different running times."""
    films = [
        film
        for film in pool.films_in_order(salt)
        if film.minutes and (not any(described) or pool.described(film))
    ]
    by_split: dict[Split | None, list[Film]] = {}
    for film in films:
        by_split.setdefault(split_of((film_bridge(film),)), []).append(film)
    for same_split in by_split.values():
        for first, second in _near(same_split):
            assert first.minutes and second.minutes
            if abs(first.minutes - second.minutes) >= _MIN_MINUTES and first.name != second.name:
                yield first, second


def _near(items: Sequence[Item]) -> Iterator[tuple[Item, Item]]:
    """Yield pairs of items that stand near each other, all the nearest first."""
    for distance in range(1, _MAX_DISTANCE + 1):
        yield from zip(items, items[distance:], strict=False)


def _film_draft(
    kind: str, pool: Pool, first: Film, second: Film, *, described: tuple[bool, bool]
) -> Draft:
    path: list[Hop] = []
    mentions: list[str] = []
    for film, is_described in zip((first, second), described, strict=True):
        director = pool.described(film) if is_described else None
        if director is not None:
            path.append(credit_hop(director, "directed", film))
            mentions.append(f"the {film.year} film directed by {director.name}")
        else:
            mentions.append(film_named(film))
        path.append(film_hop(film, "running time minutes", f"{film.minutes} minutes"))
    text, answers = _film_text(first, second, mentions)
    bridges = tuple(film_bridge(film) for film in (first, second))
    return Draft(kind, _CATEGORY, text, answers, tuple(path), bridges)


def _film_text(first: Film, second: Film, mentions: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return a question for the difference: who knows one of the two knows nothing of it."""
    assert first.minutes and second.minutes
    long, short = mentions if first.minutes > second.minutes else reversed(mentions)
    text = pick(
        (
            f"By how many minutes is {long} longer than {short}?",
            f"What is the difference in minutes between the running times of {mentions[0]} and "
            f"{mentions[1]}?",
        ),
        f"compare {first.id} {second.id}",
    )
    return text, minutes_answers(abs(first.minutes - second.minutes))
