"""Questions that lead from one thing to the next: 2, 3 and 4 hops."""

from __future__ import annotations

from collections.abc import Iterator

from agentgym_rl.envs.scenarios.searchqa.questions import Hop
from tools.embedded_corpus.answers import (
    film_answers,
    minutes_answers,
    with_plain_forms,
)
from tools.embedded_corpus.countries import Country
from tools.embedded_corpus.draft import Draft
from tools.embedded_corpus.films import Film, Person
from tools.embedded_corpus.names import pick
from tools.embedded_corpus.pool import (
    Pool,
    Role,
    attribute_of,
    attributes,
    credit_hop,
    film_hop,
    film_named,
)
from tools.embedded_corpus.splits import (
    country_bridge,
    film_bridge,
    person_bridge,
)

_CATEGORY = "bridge"


def director_film(pool: Pool) -> Iterator[Draft]:
    """Film, its director, the director's film of another year."""
    for film in pool.films_in_order("director-film"):
        director = pool.prolific(pool.sole_director(film))
        other = _other_film(pool, film, director, "directed")
        if director is None or other is None:
            continue
        named = film_named(film)
        text = pick(
            (
                f"Which {other.year} film was directed by the director of {named}?",
                f"The director of {named} also directed a film released in {other.year}. "
                "What is it called?",
                f"What is the title of the {other.year} film made by the director of {named}?",
            ),
            f"text {film.id}",
        )
        path = (
            film_hop(film, "directed by", director.name),
            credit_hop(director, "directed", other),
        )
        bridges = (person_bridge(director.name),)
        yield Draft("bridge-director-film", _CATEGORY, text, film_answers(other), path, bridges)


def writer_film(pool: Pool) -> Iterator[Draft]:
    """Film, its sole screenwriter, the writer's film of another year."""
    for film in pool.films_in_order("writer-film"):
        writer = pool.prolific(pool.sole_writer(film))
        other = _other_film(pool, film, writer, "wrote")
        if writer is None or other is None:
            continue
        named = film_named(film)
        text = pick(
            (
                f"Which {other.year} film was written by the screenwriter of {named}?",
                f"The screenwriter of {named} also has a writing credit on a {other.year} film. "
                "Which one?",
            ),
            f"text {film.id}",
        )
        path = (film_hop(film, "written by", writer.name), credit_hop(writer, "wrote", other))
        bridges = (person_bridge(writer.name),)
        yield Draft("bridge-writer-film", _CATEGORY, text, film_answers(other), path, bridges)


def city_country(pool: Pool) -> Iterator[Draft]:
    """City, its country, an attribute of the country."""
    for city in pool.cities_in_order("city-country"):
        country = pool.country_of_city(city)
        attribute = attribute_of(country, f"city-country {city.id}")
        if attribute is None:
            continue
        phrase, hop, answers = attribute
        text = pick(
            (
                f"What is {phrase} of the country in which the city of {city.name} lies?",
                f"What is {phrase} of the country where the city of {city.name} is located?",
            ),
            f"text {city.id}",
        )
        path = (Hop(f"{city.name} city country", city.id, country.name), hop)
        yield Draft(
            "bridge-city-country", _CATEGORY, text, answers, path, (country_bridge(country),)
        )


def film_country(pool: Pool) -> Iterator[Draft]:
    """Film, its country of origin, an attribute of the country."""
    for film in pool.films_in_order("film-country"):
        country = pool.country_of_film(film)
        attribute = attribute_of(country, f"film-country {film.id}") if country else None
        if country is None or attribute is None:
            continue
        phrase, hop, answers = attribute
        text = f"What is {phrase} of the country of origin of {film_named(film)}?"
        path = (film_hop(film, "country of origin", country.name), hop)
        yield Draft(
            "bridge-film-country", _CATEGORY, text, answers, path, (country_bridge(country),)
        )


def director_film_fact(pool: Pool) -> Iterator[Draft]:
    """Film, its director, the director's film of another year, a fact of that film."""
    for film in pool.films_in_order("director-film-fact"):
        director = pool.sole_director(film)
        other = _other_film(pool, film, director, "directed")
        if director is None or other is None:
            continue
        for opening, hop, answers in _facts_of(pool, other, film):
            path = (
                film_hop(film, "directed by", director.name),
                credit_hop(director, "directed", other),
                hop,
            )
            bridges = (person_bridge(director.name), film_bridge(other))
            yield Draft("bridge-director-film-fact", _CATEGORY, opening, answers, path, bridges)


def _facts_of(pool: Pool, film: Film, known: Film) -> Iterator[tuple[str, Hop, tuple[str, ...]]]:
    """Yield questions on a film that is described by its year and the director of another film.

    Facts that the passage on the other film has too are left out: they would end the search there.
    """
    described = f"the {film.year} film by the director of {film_named(known)}"
    options: list[tuple[str, Hop, tuple[str, ...]]] = []
    writer = pool.sole_writer(film)
    if writer is not None and writer.name not in (*known.writers, *known.cast):
        hop = film_hop(film, "written by", writer.name)
        options.append(
            (f"Who wrote the screenplay of {described}?", hop, with_plain_forms(writer.name))
        )
    if film.minutes and film.minutes != known.minutes:
        answers = minutes_answers(film.minutes)
        hop = film_hop(film, "running time minutes", answers[0])
        options.append((f"How many minutes does {described} run?", hop, answers))
    if options:
        yield pick(options, f"fact of {film.id} from {known.id}")


def city_border(pool: Pool) -> Iterator[Draft]:
    """City, its country, the neighbour with the longest border, an attribute of the neighbour."""
    for city in pool.cities_in_order("city-border"):
        country = pool.country_of_city(city)
        neighbour = pool.longest_border(country)
        attribute = attribute_of(neighbour, f"city-border {city.id}") if neighbour else None
        if neighbour is None or attribute is None:
            continue
        phrase, hop, answers = attribute
        if any(answers[0] == own[3][0] for own in attributes(country)):
            continue
        text = (
            f"What is {phrase} of the country that shares the longest land border with the "
            f"country in which the city of {city.name} lies?"
        )
        path = (
            Hop(f"{city.name} city country", city.id, country.name),
            border_hop(country, neighbour.name),
            hop,
        )
        bridges = (country_bridge(country), country_bridge(neighbour))
        yield Draft("bridge-city-border", _CATEGORY, text, answers, path, bridges)


def border_hop(country: Country, finding: str) -> Hop:
    """Return the search for a country's neighbours."""
    query = f"{country.name} border countries"
    return Hop(query, country.passage_id("Land boundaries"), finding)


def director_film_country(pool: Pool) -> Iterator[Draft]:
    """Film, its director, the director's film of another year, its country, an attribute."""
    for film in pool.films_in_order("director-film-country"):
        director = pool.sole_director(film)
        other = _film_from_elsewhere(pool, film, director)
        country = pool.country_of_film(other) if other else None
        attribute = attribute_of(country, f"director-film-country {film.id}") if country else None
        if director is None or other is None or country is None or attribute is None:
            continue
        phrase, hop, answers = attribute
        text = (
            f"What is {phrase} of the country of origin of the {other.year} film by the director "
            f"of {film_named(film)}?"
        )
        path = (
            film_hop(film, "directed by", director.name),
            credit_hop(director, "directed", other),
            film_hop(other, "country of origin", country.name),
            hop,
        )
        bridges = (person_bridge(director.name), film_bridge(other), country_bridge(country))
        yield Draft("bridge-director-film-country", _CATEGORY, text, answers, path, bridges)


def director_film_writer_film(pool: Pool) -> Iterator[Draft]:
    """Film, its director, the director's other film, its writer, the writer's other film."""
    for film in pool.films_in_order("director-film-writer-film"):
        director = pool.sole_director(film)
        for other in pool.clear_films(director, "directed") if director else ():
            writer = pool.sole_writer(other)
            if director is None or writer is None or other == film or writer.name in film.writers:
                continue
            last = _other_film(pool, other, writer, "wrote", without=director)
            if last in (None, film):
                continue
            assert last is not None
            text = (
                f"The director of {film_named(film)} made another film in {other.year}. Which "
                f"{last.year} film was written by the screenwriter of that film?"
            )
            path = (
                film_hop(film, "directed by", director.name),
                credit_hop(director, "directed", other),
                film_hop(other, "written by", writer.name),
                credit_hop(writer, "wrote", last),
            )
            bridges = (
                person_bridge(director.name),
                film_bridge(other),
                person_bridge(writer.name),
            )
            yield Draft(
                "bridge-director-film-writer-film",
                _CATEGORY,
                text,
                film_answers(last),
                path,
                bridges,
            )


def _other_film(
    pool: Pool, film: Film, person: Person | None, role: Role, *, without: Person | None = None
) -> Film | None:
    """Return one film of the person that its year names, not one by those who are left out.

    A film of somebody who was met before would be found without going all the way.
    """
    options = [
        other
        for other in (pool.clear_films(person, role) if person else ())
        if other != film
        and len(other.directors) == 1
        and (without is None or without.name not in (*other.directors, *other.writers))
    ]
    return pick(options, f"other {film.id} {role}") if options else None


def _film_from_elsewhere(pool: Pool, film: Film, director: Person | None) -> Film | None:
    """Return a film of the director from a country that the named film is not from.

    Most directors stay in one country, so that without this rule the named film would do.
    """
    options = [
        other
        for other in (pool.clear_films(director, "directed") if director else ())
        if other != film
        and len(other.directors) == 1
        and film.countries
        and pool.country_of_film(other) is not None
        and not set(film.countries) & set(other.countries)
    ]
    return pick(options, f"elsewhere {film.id}") if options else None
