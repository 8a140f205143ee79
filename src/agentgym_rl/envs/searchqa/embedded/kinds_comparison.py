"""Questions that compare two things: 2 hops if both are named, up to 4 if both are described."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from agentgym_rl.envs.searchqa.embedded.answers import (
    film_answers,
    minutes_answers,
    with_plain_forms,
)
from agentgym_rl.envs.searchqa.embedded.cities import City
from agentgym_rl.envs.searchqa.embedded.countries import Country
from agentgym_rl.envs.searchqa.embedded.draft import Draft
from agentgym_rl.envs.searchqa.embedded.films import Film
from agentgym_rl.envs.searchqa.embedded.names import fraction, pick
from agentgym_rl.envs.searchqa.embedded.pool import Pool, credit_hop, film_hop, film_named
from agentgym_rl.envs.searchqa.embedded.splits import Split, country_bridge, film_bridge, split_of
from agentgym_rl.envs.searchqa.questions import Hop

_CATEGORY = "comparison"
_MIN_MINUTES = 5
"""Running times nearer than this differ between versions of a film."""
_MIN_RATIO = 1.25


def named_films(pool: Pool) -> Iterator[Draft]:
    """Two named films: which runs longer, or by how much."""
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
    """Two cities: which one's country is larger, or has the older people."""
    for first, second in _by_split(pool, "countries-of-cities"):
        measures = _measures(pool.country_of_city(first), pool.country_of_city(second))
        if not measures or first.country == second.country:
            continue
        question, field, words, values, texts = pick(measures, f"{first.id} {second.id}")
        text = question.format(first=first.name, second=second.name)
        path: list[Hop] = []
        for city, value in zip((first, second), texts, strict=True):
            country = pool.country_of_city(city)
            path.append(Hop(f"{city.name} city country", city.id, country.name))
            path.append(Hop(f"{country.name} {words}", country.passage_id(field), value))
        winner = first if values[0] > values[1] else second
        bridges = tuple(country_bridge(pool.country_of_city(city)) for city in (first, second))
        answers = with_plain_forms(winner.name)
        yield Draft(
            "comparison-countries-of-cities", _CATEGORY, text, answers, tuple(path), bridges
        )


def _measures(
    first: Country, second: Country
) -> list[tuple[str, str, str, tuple[float, float], tuple[str, str]]]:
    """Return what is known of both and clearly differs: question, field, words, values, texts."""
    measures: list[tuple[str, str, str, tuple[float, float], tuple[str, str]]] = []
    if first.area_km2 and second.area_km2:
        areas = (first.area_km2, second.area_km2)
        if max(areas) > _MIN_RATIO * min(areas):
            question = (
                "Which city lies in the country with the larger total area, {first} or {second}?"
            )
            texts = (f"{areas[0]:,.0f} sq km", f"{areas[1]:,.0f} sq km")
            measures.append((question, "Area", "total area", areas, texts))
    if first.median_age and second.median_age:
        ages = (first.median_age, second.median_age)
        if abs(ages[0] - ages[1]) > 3:
            question = (
                "Which city lies in the country whose population has the higher median age, "
                "{first} or {second}?"
            )
            texts = (f"{ages[0]:g} years", f"{ages[1]:g} years")
            measures.append((question, "Median age", "median age", ages, texts))
    return measures


def _by_split(pool: Pool, salt: str) -> Iterator[tuple[City, City]]:
    """Yield pairs of neighbours in the order of cities, among those of one split."""
    by_split: dict[Split | None, list[City]] = {}
    for city in pool.cities_in_order(salt):
        bridge = country_bridge(pool.country_of_city(city))
        by_split.setdefault(split_of((bridge,)), []).append(city)
    for cities in by_split.values():
        yield from pairwise(cities)


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
        for first, second in zip(same_split[::2], same_split[1::2], strict=False):
            assert first.minutes and second.minutes
            if abs(first.minutes - second.minutes) >= _MIN_MINUTES and first.name != second.name:
                yield first, second


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
    assert first.minutes and second.minutes
    long, short = sorted((first, second), key=lambda film: -(film.minutes or 0))
    key = f"compare {first.id} {second.id}"
    by_mention = dict(zip((first.number, second.number), mentions, strict=True))
    if fraction(f"difference {key}") < 0.4:
        text = (
            f"By how many minutes is {by_mention[long.number]} longer than "
            f"{by_mention[short.number]}?"
        )
        return text, minutes_answers(abs(first.minutes - second.minutes))
    asked, word = pick(((long, "longer"), (short, "shorter")), f"word {key}")
    text = pick(
        (
            f"Which film is {word}: {mentions[0]} or {mentions[1]}?",
            f"Which of these films has the {word} running time: {mentions[0]} or {mentions[1]}?",
        ),
        f"text {key}",
    )
    return text, film_answers(asked)
