"""Questions that one search answers: a small category of its own, called "single"."""

from __future__ import annotations

from collections.abc import Iterator

from agentgym_rl.envs.scenarios.searchqa.questions import Hop
from tools.embedded_corpus.answers import (
    count_answers,
    country_answers,
    minutes_answers,
    with_plain_forms,
)
from tools.embedded_corpus.draft import Draft
from tools.embedded_corpus.names import pick
from tools.embedded_corpus.pool import Pool, attributes, film_hop, film_named
from tools.embedded_corpus.splits import country_bridge, film_bridge

_CATEGORY = "single"


def film_fact(pool: Pool) -> Iterator[Draft]:
    """Who directed or wrote a film, or how long it runs."""
    for film in pool.films_in_order("film-fact"):
        named = film_named(film)
        options: list[tuple[str, Hop, tuple[str, ...]]] = []
        director, writer = pool.sole_director(film), pool.sole_writer(film)
        if director is not None:
            answers = with_plain_forms(director.name)
            options.append(
                (f"Who directed {named}?", film_hop(film, "directed by", director.name), answers)
            )
        if writer is not None:
            hop = film_hop(film, "written by", writer.name)
            answers = with_plain_forms(writer.name)
            options.append((f"Who wrote the screenplay of {named}?", hop, answers))
        if film.minutes:
            answers = minutes_answers(film.minutes)
            hop = film_hop(film, "running time minutes", answers[0])
            options.append((f"How many minutes does {named} run?", hop, answers))
        if options:
            text, hop, answers = pick(options, f"fact {film.id}")
            yield Draft("single-film", _CATEGORY, text, answers, (hop,), (film_bridge(film),))


def city_fact(pool: Pool) -> Iterator[Draft]:
    """The country or the population of a city."""
    for city in pool.cities_in_order("city-fact"):
        country = pool.country_of_city(city)
        country_hop = Hop(f"{city.name} city country", city.id, country.name)
        people = count_answers(city.population)
        people_hop = Hop(f"{city.name} city population", city.id, people[0])
        text, hop, answers = pick(
            (
                (
                    f"In which country is the city of {city.name}?",
                    country_hop,
                    country_answers(country),
                ),
                (f"What is the population of the city of {city.name}?", people_hop, people),
            ),
            f"fact {city.id}",
        )
        yield Draft("single-city", _CATEGORY, text, answers, (hop,), (country_bridge(country),))


def country_fact(pool: Pool) -> Iterator[Draft]:
    """An attribute of a named country."""
    for country in pool.world.countries:
        if not country.is_sovereign:
            continue
        for phrase, words, field, answers in attributes(country):
            text = f"What is {phrase} of {country.name}?"
            hop = Hop(f"{country.name} {words}", country.passage_id(field), answers[0])
            bridges = (country_bridge(country),)
            yield Draft("single-country", _CATEGORY, text, answers, (hop,), bridges)
