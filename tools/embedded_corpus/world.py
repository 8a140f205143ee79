"""All facts in one place, with the titles and passages that are made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from agentgym_rl.retrieval.passages import Passage
from benchmarks.shortcuts import fold
from tools.embedded_corpus.cities import (
    City,
    read_cities,
    read_geo_countries,
)
from tools.embedded_corpus.countries import Country, read_countries
from tools.embedded_corpus.films import (
    Film,
    Person,
    gather_people,
    read_films,
)
from tools.embedded_corpus.prose_films import (
    cast_id,
    film_passages,
    leading_cast,
    person_passages,
)
from tools.embedded_corpus.prose_places import city_passage, country_passages


@dataclass(frozen=True)
class World:
    """Films, people, cities and countries, each in an order that never changes."""

    films: Sequence[Film]
    people: dict[str, Person]
    cities: Sequence[City]
    countries: Sequence[Country]
    country_names: dict[str, str] = field(repr=False)
    """Names by ISO code, also of those that have no entry in `countries`."""

    def passages(self) -> Iterator[Passage]:
        """Yield the whole corpus. Ids and titles are unique."""
        titles: set[str] = set()
        for passage in self._passages():
            assert passage.title not in titles, f"two passages have the title {passage.title!r}"
            titles.add(passage.title)
            yield passage

    def _passages(self) -> Iterator[Passage]:
        for country in self.countries:
            yield from country_passages(country)
        for city in self.cities:
            yield city_passage(
                city, self.city_titles[city.number], self.country_names[city.country]
            )
        for film in self.films:
            yield from film_passages(film, self.film_titles[film.number], self.leads[film.number])
        for person in self.people.values():
            yield from person_passages(person, self.person_title(person))

    @cached_property
    def leads(self) -> dict[int, tuple[str, ...]]:
        """The names of the cast in each film's main passage, by the film's number."""
        num_films = Counter(name for film in self.films for name in film.cast)
        return {film.number: leading_cast(film, num_films) for film in self.films}

    def cast_passage_id(self, film: Film, name: str) -> str:
        """Return the id of the film's passage that names this member of the cast."""
        return film.id if name in self.leads[film.number] else cast_id(film)

    @cached_property
    def countries_by_iso(self) -> dict[str, Country]:
        return {country.iso: country for country in self.countries if country.iso}

    @cached_property
    def countries_by_code(self) -> dict[str, Country]:
        return {country.code: country for country in self.countries}

    @cached_property
    def num_named(self) -> Counter[str]:
        """How many things of any kind go by a name, folded."""
        names = [film.name for film in self.films]
        names += [city.name for city in self.cities]
        names += self.people
        names += [country.name for country in self.countries]
        return Counter(map(fold, names))

    @cached_property
    def film_titles(self) -> dict[int, str]:
        """Titles by number: name and year, and the director where these are not enough."""
        years = Counter((fold(film.name), film.year) for film in self.films)
        return {film.number: self._film_title(film, years) for film in self.films}

    def _film_title(self, film: Film, years: Counter[tuple[str, int]]) -> str:
        if years[fold(film.name), film.year] == 1:
            return f"{film.name} ({film.year} film)"
        return f"{film.name} ({film.year} film by {film.directors[0]})"

    def person_title(self, person: Person) -> str:
        """Return the name, with the trade where something else has the same name."""
        if self.num_named[fold(person.name)] == 1:
            return person.name
        return f"{person.name} ({'filmmaker' if person.directed or person.wrote else 'actor'})"

    @cached_property
    def city_titles(self) -> dict[int, str]:
        """Titles by number: with state or country, a neighbour, a position, as far as needed."""
        titles = {city.number: city.name for city in self.cities}
        crowded = {city.number for city in self.cities if self.num_named[fold(city.name)] > 1}
        for level in (1, 2, 3):
            for city in self.cities:
                if city.number in crowded:
                    titles[city.number] = self._city_title(city, level)
            counts = Counter(titles.values())
            crowded = {number for number in crowded if counts[titles[number]] > 1}
        return titles

    def _city_title(self, city: City, level: int) -> str:
        place = city.state or self.country_names[city.country]
        if level == 2 and city.neighbour:
            place += f", near {city.neighbour.name}"
        if level == 3:
            place += f", {city.latitude:.2f}, {city.longitude:.2f}"
        return f"{city.name} ({place})"


def load_world() -> World:
    """Return the facts of the installed packages."""
    films = read_films()
    countries = read_countries()
    names = {country["iso"]: country["name"] for country in read_geo_countries()}
    names |= {country.iso: country.name for country in countries if country.iso}
    return World(films, gather_people(films), read_cities(), countries, names)
