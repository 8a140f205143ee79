"""Questions on what two things have in common: 2 hops if both are named, up to 4 if not.

What is asked for stands in no short list that one search brings. So it is never the common actor of
two films, who is one of a dozen names, but another film of this actor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from agentgym_rl.envs.scenarios.searchqa.questions import Hop
from benchmarks.shortcuts import fold
from tools.embedded_corpus.answers import (
    country_answers,
    film_answers,
)
from tools.embedded_corpus.cities import City
from tools.embedded_corpus.countries import Country
from tools.embedded_corpus.draft import Draft
from tools.embedded_corpus.films import Film, Person
from tools.embedded_corpus.kinds_bridge import border_hop
from tools.embedded_corpus.names import listed, pick, shuffled
from tools.embedded_corpus.pool import Pool, credit_hop, film_hop, film_named
from tools.embedded_corpus.prose_films import credit_id
from tools.embedded_corpus.splits import (
    Split,
    country_bridge,
    film_bridge,
    person_bridge,
    split_of,
)

_CATEGORY = "intersection"
_MAX_PAIRS = 8
_MIN_ROLES = 21
"""Films of a named actor of whom a question asks for one: a guess among them hardly ever wins."""


def film_of_director_and_actor(pool: Pool) -> Iterator[Draft]:
    """The one film by the director of a named film in which a named actor plays."""
    for film in pool.films_in_order("film-of-director-and-actor"):
        director = pool.prolific(pool.sole_director(film))
        options = list(_films_with_actor(pool, film, director)) if director else []
        order = shuffled(options, film.id, lambda option: f"{option[0].id} {option[1]}")
        for other, actor in order[:_MAX_PAIRS]:
            assert director is not None
            yield _director_and_actor_draft(film, director, other, actor)


def _director_and_actor_draft(film: Film, director: Person, other: Film, actor: str) -> Draft:
    named = film_named(film)
    text = pick(
        (
            f"Which film by the director of {named} has {actor} in its cast?",
            f"{actor} was in one film by the director of {named}. Which one?",
        ),
        f"text {film.id}",
    )
    path = (
        film_hop(film, "directed by", director.name),
        Hop(f"film directed by {director.name} starring {actor}", other.id, other.name),
    )
    return Draft(
        "intersection-director-and-actor",
        _CATEGORY,
        text,
        film_answers(other),
        path,
        (person_bridge(director.name),),
    )


def _films_with_actor(pool: Pool, film: Film, director: Person) -> Iterator[tuple[Film, str]]:
    """Yield films of the director with a leading actor who is in no other film of theirs."""
    num_films = Counter(name for other in director.directed for name in pool.folded_cast(other))
    for other in director.directed:
        if other == film or not pool.has_clear_cast(other) or len(other.directors) > 1:
            continue
        for name in pool.world.leads[other.number]:
            is_clear = _actor(pool, name) is not None and name != director.name
            if is_clear and num_films[fold(name)] == 1:
                yield other, name


def _actor(pool: Pool, name: str) -> Person | None:
    """Return an actor of whom a question may name many films."""
    person = pool.world.people.get(name)
    has_roles = person is not None and person.is_one_person and len(person.acted) >= _MIN_ROLES
    return person if has_roles else None


def film_of_common_actor(pool: Pool) -> Iterator[Draft]:
    """Two named films, their one common actor, the actor's film of another year."""
    yield from _common_actors(pool, "intersection-common-actor", is_described=False)


def film_of_half_described_common_actor(pool: Pool) -> Iterator[Draft]:
    """The same, with one of the two films described by its director and year."""
    yield from _common_actors(pool, "intersection-half-described-common-actor", is_described=True)


def _common_actors(pool: Pool, kind: str, *, is_described: bool) -> Iterator[Draft]:
    people = [person for person in pool.people_in_order(kind) if pool.prolific(person)]
    pairs_of = [_pairs_of(pool, person, kind, is_described) for person in people]
    for turn in range(_MAX_PAIRS):
        for person, pairs in zip(people, pairs_of, strict=True):
            if turn < len(pairs):
                yield from _common_actor_draft(pool, kind, person, pairs[turn], is_described)


def _common_actor_draft(
    pool: Pool, kind: str, person: Person, pair: tuple[Film, Film], is_described: bool
) -> Iterator[Draft]:
    """Yield the question, if the actor has another film that its year names."""
    options = [film for film in _clear_roles(pool, person) if film not in pair]
    if not options:
        return
    film = pick(options, f"{kind} {person.id} {pair[0].id}")
    named, second = pair
    director = pool.described(second) if is_described else None
    mention = film_named(second)
    path = [film_hop(named, "cast", listed(pool.world.leads[named.number]))]
    bridges = [person_bridge(person.name)]
    if director is not None:
        mention = f"the {second.year} film directed by {director.name}"
        path.append(credit_hop(director, "directed", second))
        bridges.append(film_bridge(second))
    path.append(film_hop(second, "cast", person.name))
    query = f"{film.year} film with {person.name} in the cast"
    path.append(Hop(query, credit_id(person, "acted", film), film.name))
    text = pick(
        (
            f"Which {film.year} film features the actor who was in both {film_named(named)} and "
            f"{mention}?",
            f"One actor was in both {film_named(named)} and {mention}. Which {film.year} film was "
            "this actor in as well?",
        ),
        f"text {kind} {person.id} {named.id}",
    )
    yield Draft(kind, _CATEGORY, text, film_answers(film), tuple(path), tuple(bridges))


def _clear_roles(pool: Pool, person: Person) -> list[Film]:
    """Return films of an actor that their year names, even if it is off by one."""
    return [
        film
        for film in person.acted
        if pool.is_askable(film)
        and sum(abs(one.year - film.year) <= 1 for one in person.acted) == 1
    ]


def _pairs_of(pool: Pool, person: Person, kind: str, is_described: bool) -> list[tuple[Film, Film]]:
    """Return pairs of films with this person as their one common actor, the described one last."""
    films = [
        film
        for film in person.acted
        if pool.has_clear_cast(film) and person.name in pool.world.leads[film.number]
    ]
    order = shuffled(films, f"{kind} {person.id}", lambda film: film.id)
    found: list[tuple[Film, Film]] = []
    for first, second in zip(order[::2], order[1::2], strict=False):
        common = pool.folded_cast(first) & pool.folded_cast(second)
        director = pool.described(second)
        is_told = not is_described or (director is not None and director.name != person.name)
        if len(common) == 1 and is_told:
            found.append((first, second))
    return found[:_MAX_PAIRS]


def country_between(pool: Pool) -> Iterator[Draft]:
    """The one country that borders on the countries of two cities."""
    by_split: dict[Split | None, list[City]] = {}
    for city in pool.cities_in_order("country-between"):
        country = pool.country_of_city(city)
        if country.borders:
            by_split.setdefault(split_of((country_bridge(country),)), []).append(city)
    for cities in by_split.values():
        by_country: dict[str, list[City]] = {}
        for city in cities:
            by_country.setdefault(city.country, []).append(city)
        pairs = shuffled(
            combinations(sorted(by_country), 2), "country-between", lambda pair: "-".join(pair)
        )
        for turn in range(10):
            for one, other in pairs:
                first = by_country[one][turn % len(by_country[one])]
                second = by_country[other][(turn * 7 + 3) % len(by_country[other])]
                between = _one_between(pool, first, second)
                if between is not None:
                    yield _between_draft(pool, first, second, between)


def _one_between(pool: Pool, first: City, second: City) -> Country | None:
    countries = [pool.country_of_city(city) for city in (first, second)]
    common = set(dict(countries[0].borders)) & set(dict(countries[1].borders))
    if len(common) != 1:
        return None
    between = pool.world.countries_by_code[common.pop()]
    return between if between.is_sovereign else None


def _between_draft(pool: Pool, first: City, second: City, between: Country) -> Draft:
    text = (
        f"Which country borders both the country of the city of {first.name} and the country of "
        f"the city of {second.name}?"
    )
    path: list[Hop] = []
    for city in (first, second):
        country = pool.country_of_city(city)
        neighbours = [pool.world.countries_by_code[code].name for code, _ in country.borders]
        path.append(Hop(f"{city.name} city country", city.id, country.name))
        path.append(border_hop(country, listed(neighbours)))
    path[-1] = border_hop(pool.country_of_city(second), between.name)
    bridges = tuple(country_bridge(pool.country_of_city(city)) for city in (first, second))
    return Draft(
        "intersection-country-between",
        _CATEGORY,
        text,
        country_answers(between),
        tuple(path),
        bridges,
    )
