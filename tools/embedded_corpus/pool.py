"""What questions may be about: the facts that are clear enough, and how to speak of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal, TypeAlias

from agentgym_rl.envs.scenarios.searchqa.questions import Hop
from benchmarks.shortcuts import fold
from tools.embedded_corpus.answers import with_plain_forms, years_answers
from tools.embedded_corpus.cities import City
from tools.embedded_corpus.countries import Country
from tools.embedded_corpus.films import Film, Person
from tools.embedded_corpus.names import pick, shuffled
from tools.embedded_corpus.prose_films import credit_id
from tools.embedded_corpus.world import World

Role: TypeAlias = Literal["directed", "wrote"]

_MIN_CITY = 100_000
_MIN_CAST = 6
_MIN_CREDITS = 10
_MIN_KM = 5
"""What is called a city but lies nearer to another is often a part of that one."""
_DISTRICT = re.compile(r"\d|\(|\b(?:[IVX]+\.|arrondissement|district|borough|zone|sector)", re.I)
# Zones in which people disagree about the country that a city belongs to.
_DISPUTED_ZONES = frozenset({"Europe/Simferopol", "Asia/Famagusta", "Asia/Hebron", "Asia/Gaza"})

_COUNTRY_NAMES = {
    "people s republic of china": "china",
    "peoples republic of china": "china",
    "czech republic": "czechia",
}


class Pool:
    """A world seen through the rules on ambiguity. All orders depend only on the facts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._clear: dict[tuple[str, str], list[Film]] = {}
        self._folded_casts: dict[int, frozenset[str]] = {}

    @cached_property
    def films(self) -> list[Film]:
        """Films that name and year distinguish from all others, with a name of letters."""
        counts = Counter((fold(film.name), film.year) for film in self.world.films)
        return [
            film
            for film in self.world.films
            if counts[fold(film.name), film.year] == 1
            and len(fold(film.name)) > 2
            and '"' not in film.name
            and film.directors
        ]

    @cached_property
    def _film_numbers(self) -> frozenset[int]:
        return frozenset(film.number for film in self.films)

    def is_askable(self, film: Film) -> bool:
        """Whether a question may name the film or have it as its answer."""
        return film.number in self._film_numbers

    def films_in_order(self, salt: str) -> list[Film]:
        """Return the films in an order that looks random."""
        return shuffled(self.films, salt, lambda film: film.id)

    def people_in_order(self, salt: str) -> list[Person]:
        """Return the people whose credits are one person's, in an order that looks random."""
        people = [person for person in self.world.people.values() if person.is_one_person]
        return shuffled(people, salt, lambda person: person.id)

    def sole_director(self, film: Film) -> Person | None:
        """Return the one who directed the film; None if there are several or none to trust."""
        return self._sole(film.directors)

    def sole_writer(self, film: Film) -> Person | None:
        """Return the one who wrote the film without having directed it."""
        writer = self._sole(film.writers)
        return None if writer is None or writer.name in film.directors else writer

    def _sole(self, names: Sequence[str]) -> Person | None:
        person = self.world.people.get(names[0]) if len(names) == 1 else None
        return person if person is not None and person.is_one_person else None

    def prolific(self, person: Person | None) -> Person | None:
        """Return the person if the credits are many; else one search with a title finds them."""
        roles = (person.directed, person.wrote, person.acted) if person else ()
        return person if sum(map(len, roles)) >= _MIN_CREDITS else None

    def has_clear_cast(self, film: Film) -> bool:
        """Whether a question may ask who acted in the film."""
        return film.is_acted and len(film.cast) >= _MIN_CAST and self.is_askable(film)

    def described(self, film: Film) -> Person | None:
        """Return the sole director if "the 1972 film directed by ..." can only mean this film."""
        director = self.sole_director(film)
        is_clear = director is not None and film in self.clear_films(director, "directed")
        return director if is_clear else None

    def clear_films(self, person: Person, role: Role) -> list[Film]:
        """Return the films of a person that their year identifies, even if it is off by one."""
        if (person.name, role) not in self._clear:
            films = person.directed if role == "directed" else person.wrote
            self._clear[person.name, role] = [
                film
                for film in films
                if self.is_askable(film)
                and sum(abs(other.year - film.year) <= 1 for other in films) == 1
            ]
        return self._clear[person.name, role]

    def folded_cast(self, film: Film) -> frozenset[str]:
        """Return the names of the whole cast, spelt so that accents do not matter."""
        if film.number not in self._folded_casts:
            self._folded_casts[film.number] = frozenset(map(fold, film.cast))
        return self._folded_casts[film.number]

    @cached_property
    def cities(self) -> list[City]:
        """Cities of some size whose name is no other city's, not even as another name."""
        names = Counter(
            name
            for city in self.world.cities
            for name in {fold(city.name), *(other.lower() for other in city.other_names)}
        )
        return [
            city
            for city in self.world.cities
            if city.population >= _MIN_CITY
            and names[fold(city.name)] == 1
            and self.world.num_named[fold(city.name)] == 1
            and city.timezone not in _DISPUTED_ZONES
            and (country := self.world.countries_by_iso.get(city.country)) is not None
            and country.is_sovereign
            and fold(country.name) not in fold(city.name)
            and not _DISTRICT.search(city.name)
            and (city.neighbour is None or city.neighbour.km >= _MIN_KM)
        ]

    def cities_in_order(self, salt: str) -> list[City]:
        """Return the cities so that every run of them has many countries."""
        turn: Counter[str] = Counter()
        keyed: list[tuple[int, int, City]] = []
        for place, city in enumerate(shuffled(self.cities, salt, lambda city: city.id)):
            turn[city.country] += 1
            keyed.append((turn[city.country], place, city))
        return [city for _, _, city in sorted(keyed, key=lambda entry: entry[:2])]

    @cached_property
    def _sovereign_by_name(self) -> dict[str, Country]:
        return {
            fold(name): country
            for country in self.world.countries
            if country.is_sovereign
            for name in (country.name, *country.other_names)
        }

    def country_of_film(self, film: Film) -> Country | None:
        """Return the one country of origin, if it still exists."""
        if len(film.countries) != 1:
            return None
        name = fold(film.countries[0])
        return self._sovereign_by_name.get(_COUNTRY_NAMES.get(name, name))

    def country_of_city(self, city: City) -> Country:
        """Return the country in which the city lies."""
        return self.world.countries_by_iso[city.country]

    def longest_border(self, country: Country) -> Country | None:
        """Return the neighbour with clearly the longest border, if both countries say so."""
        borders = sorted(country.borders, key=lambda border: -border[1])
        if len(borders) < 2 or borders[0][1] < 1.05 * borders[1][1]:
            return None
        neighbour = self.world.countries_by_code[borders[0][0]]
        return neighbour if neighbour.is_sovereign else None


def attributes(country: Country) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield what one can ask of a country: phrase, words to search, field, answers."""
    if country.capital:
        yield "the capital", "capital", "Capital", with_plain_forms(*country.capital)
    if country.highest_point:
        answers = with_plain_forms(*country.highest_point)
        yield "the highest point", "highest point", "Elevation", answers
    if country.anthem:
        answers = with_plain_forms(*country.anthem)
        yield "the title of the national anthem", "national anthem", "National anthem(s)", answers
    if country.legislature:
        answers = with_plain_forms(*country.legislature)
        phrase = "the name of the national legislature"
        yield phrase, "national legislature", "Legislative branch", answers
    if country.domain:
        answers = (country.domain, country.domain.lstrip("."))
        yield "the internet country code", "internet country code", "Internet country code", answers
    if country.median_age:
        answers = years_answers(country.median_age)
        yield "the median age of the population", "median age", "Median age", answers


def attribute_of(country: Country, key: str) -> tuple[str, Hop, tuple[str, ...]] | None:
    """Return one attribute as a phrase, the hop that finds it, and its answers."""
    options = list(attributes(country))
    if not options:
        return None
    phrase, words, field, answers = pick(options, f"{key} {country.code}")
    hop = Hop(f"{country.name} {words}", country.passage_id(field), answers[0])
    return phrase, hop, answers


def film_named(film: Film) -> str:
    """Return how a question names a film."""
    options = (f'the {film.year} film "{film.name}"', f'"{film.name}" ({film.year})')
    return pick(options, f"named {film.id}")


def film_hop(film: Film, words: str, finding: str, *, passage_id: str = "") -> Hop:
    """Return the search for a film's passage."""
    return Hop(f"{film.name} {film.year} film {words}", passage_id or film.id, finding)


def credit_hop(person: Person, role: Role, film: Film) -> Hop:
    """Return the search in a person's filmography that finds the film of its year."""
    words = {"directed": "films directed by", "wrote": "films written by"}[role]
    return Hop(f"{words} {person.name} {film.year}", credit_id(person, role, film), film.name)
