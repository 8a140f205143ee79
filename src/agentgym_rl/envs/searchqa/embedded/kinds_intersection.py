"""Questions for what two things have in common: 2 hops if both are named, up to 4 if not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from agentgym_rl.envs.searchqa.embedded.answers import (
    country_answers,
    film_answers,
    with_plain_forms,
)
from agentgym_rl.envs.searchqa.embedded.cities import City
from agentgym_rl.envs.searchqa.embedded.countries import Country
from agentgym_rl.envs.searchqa.embedded.draft import Draft
from agentgym_rl.envs.searchqa.embedded.films import Film, Person
from agentgym_rl.envs.searchqa.embedded.kinds_bridge import border_hop
from agentgym_rl.envs.searchqa.embedded.names import fold, listed, pick, shuffled
from agentgym_rl.envs.searchqa.embedded.pool import Pool, credit_hop, film_hop, film_named
from agentgym_rl.envs.searchqa.embedded.splits import (
    Split,
    country_bridge,
    film_bridge,
    person_bridge,
    split_of,
)
from agentgym_rl.envs.searchqa.questions import Hop

_CATEGORY = "intersection"
_MAX_PAIRS = 4


def actor_of_named(pool: Pool) -> Iterator[Draft]:
    """The one actor of two named films."""
    yield from _common_actors(pool, "intersection-actor-of-named", num_described=0)


def actor_of_half_described(pool: Pool) -> Iterator[Draft]:
    """The one actor of a named film and of one described by its director and year."""
    yield from _common_actors(pool, "intersection-actor-of-half-described", num_described=1)


def actor_of_described(pool: Pool) -> Iterator[Draft]:
    """The one actor of two films described by their directors and years."""
    yield from _common_actors(pool, "intersection-actor-of-described", num_described=2)


def film_of_director_and_actor(pool: Pool) -> Iterator[Draft]:
    """The one film by the director of a named film in which a named actor plays."""
    for film in pool.films_in_order("film-of-director-and-actor"):
        director = pool.prolific(pool.sole_director(film))
        options = list(_films_with_actor(pool, film, director)) if director else []
        if director is None or not options:
            continue
        other, actor = pick(options, film.id)
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
        yield Draft(
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
            person = pool.world.people.get(name)
            is_clear = person is not None and person.is_one_person and name != director.name
            if is_clear and num_films[fold(name)] == 1:
                yield other, name


def _common_actors(pool: Pool, kind: str, *, num_described: int) -> Iterator[Draft]:
    people = [person for person in pool.people_in_order(kind) if pool.prolific(person)]
    pairs_of = [_pairs_of(pool, person, kind, num_described) for person in people]
    for turn in range(_MAX_PAIRS):
        for person, pairs in zip(people, pairs_of, strict=True):
            if turn < len(pairs):
                yield _actor_draft(pool, kind, person, pairs[turn], num_described)


def _actor_draft(
    pool: Pool, kind: str, person: Person, pair: tuple[Film, Film], num_described: int
) -> Draft:
    path: list[Hop] = []
    mentions: list[str] = []
    bridges: list[str] = [] if num_described else [person_bridge(person.name)]
    for film, is_described in zip(pair, (num_described > 1, num_described > 0), strict=True):
        director = pool.described(film) if is_described else None
        if director is not None:
            path.append(credit_hop(director, "directed", film))
            mentions.append(f"the {film.year} film directed by {director.name}")
            bridges.append(film_bridge(film))
        else:
            mentions.append(film_named(film))
        path.append(film_hop(film, "cast", listed(pool.world.leads[film.number])))
    path[-1] = film_hop(pair[-1], "cast", person.name)
    text = pick(
        (
            f"Who appears in the cast of both {mentions[0]} and {mentions[1]}?",
            f"Which actor was in both {mentions[0]} and {mentions[1]}?",
        ),
        f"text {kind} {person.id} {pair[0].id}",
    )
    return Draft(kind, _CATEGORY, text, with_plain_forms(person.name), tuple(path), tuple(bridges))


def _pairs_of(pool: Pool, person: Person, kind: str, num_described: int) -> list[tuple[Film, Film]]:
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
        directors = [
            pool.described(film)
            for film, is_described in ((first, num_described > 1), (second, num_described > 0))
            if is_described
        ]
        hidden = {director.name for director in directors if director is not None}
        is_clear = len(common) == 1 and len(hidden) == num_described
        if is_clear and person.name not in hidden:
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
