"""Films and the people who made them, from the package `bokeh-sampledata` (Wikidata, CC0).

The names of people are all the data has: two people of one name are one entry here.
`Person.is_one_person` says whose credits the questions may trust.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from benchmarks.shortcuts import fold
from tools.embedded_corpus.names import slug

_SUFFIXES = frozenset({"Jr.", "Sr.", "II", "III", "IV"})
_MIN_CREDITS = 2
"""Who has fewer has no passage: the film's own passage says it all."""
_MAX_GAP_YEARS = 14
_MAX_CAREER_YEARS = 55

_QUERY = """
SELECT omdb.ID, Title, Year, Runtime, Genre, Released, Director, Writer, "Cast", Metacritic,
       Language, Country, Awards, BoxOffice, Production
FROM omdb JOIN tomatoes USING (ID) ORDER BY omdb.ID
"""


@dataclass(frozen=True, slots=True)
class Film:
    """One film. Lists are in the data's order, which is alphabetical."""

    number: int
    name: str
    year: int
    minutes: int | None
    genres: tuple[str, ...]
    released: str
    """ISO date; 1 January where only the year is known."""
    directors: tuple[str, ...]
    writers: tuple[str, ...]
    cast: tuple[str, ...]
    metacritic: int | None
    languages: tuple[str, ...]
    countries: tuple[str, ...]
    awards: str
    box_office: int | None
    companies: tuple[str, ...]

    @property
    def id(self) -> str:
        """The id of the film's main passage."""
        return f"film-{self.number}"

    @property
    def is_acted(self) -> bool:
        """Whether its cast are people who play: in a documentary they may be seen in the news."""
        return bool(self.genres) and "Documentary" not in self.genres


@dataclass(frozen=True)
class Person:
    """Everything that the films say of one name. Films are in order of time."""

    name: str
    directed: tuple[Film, ...]
    wrote: tuple[Film, ...]
    acted: tuple[Film, ...]

    @cached_property
    def id(self) -> str:
        """The id of the first passage on this person."""
        return f"person-{slug(self.name)}"

    @cached_property
    def years(self) -> tuple[int, ...]:
        """The years with a credit, in order."""
        films = (*self.directed, *self.wrote, *self.acted)
        return tuple(sorted({film.year for film in films}))

    @cached_property
    def is_one_person(self) -> bool:
        """Whether the credits look like one life, and the name like a person's full name."""
        gaps = [later - year for year, later in zip(self.years, self.years[1:], strict=False)]
        return (
            max(gaps, default=0) <= _MAX_GAP_YEARS
            and self.years[-1] - self.years[0] <= _MAX_CAREER_YEARS
            and " " in self.name
            and not self.name.startswith("The ")
        )


def read_films() -> list[Film]:
    """Return all films in the order of their numbers."""
    from bokeh_sampledata.movies_data import movie_path  # late: only this needs it

    with sqlite3.connect(f"file:{movie_path}?mode=ro", uri=True) as database:
        return [_film(row) for row in database.execute(_QUERY)]


def gather_people(films: Iterable[Film]) -> dict[str, Person]:
    """Return who has at least two credits, by name, in the order of names."""
    credits: defaultdict[str, tuple[list[Film], list[Film], list[Film]]] = defaultdict(
        lambda: ([], [], [])
    )
    for film in sorted(films, key=lambda film: (film.year, film.number)):
        for role, names in enumerate((film.directors, film.writers, film.cast)):
            for name in names:
                credits[name][role].append(film)
    ids = Counter(slug(name) for name in credits)
    return {
        name: Person(name, *map(tuple, credits[name]))
        for name in sorted(credits)
        # Names that differ only in accents may be one person or two.
        if sum(map(len, credits[name])) >= _MIN_CREDITS and ids[slug(name)] == 1
    }


def _film(row: tuple[object, ...]) -> Film:
    number, name, year, minutes, genres, released, directors, writers, cast = row[:9]
    metacritic, languages, countries, awards, box_office, companies = row[9:]
    assert isinstance(number, int) and isinstance(year, int)
    return Film(
        number=number,
        name=" ".join(str(name).split()),
        year=year,
        minutes=_whole(minutes),
        genres=_parts(genres),
        released=str(released),
        directors=_people(directors),
        writers=_people(writers),
        cast=_people(cast),
        metacritic=_whole(metacritic),
        languages=_parts(languages),
        countries=_parts(countries),
        awards=str(awards or ""),
        box_office=_whole(box_office),
        companies=_parts(companies),
    )


def _whole(value: object) -> int | None:
    return round(value) if isinstance(value, int | float) else None


def _parts(value: object) -> tuple[str, ...]:
    parts = (part.strip() for part in str(value or "").split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


def _people(value: object) -> tuple[str, ...]:
    """Return the names of a list with commas in it: "Robert Downey, Jr." is one person."""
    names: list[str] = []
    for part in str(value or "").split(","):
        word = part.strip()
        if word in _SUFFIXES and names:
            names[-1] += f" {word}"
        elif fold(word) and not word[0].islower():
            names.append(word)
    return tuple(dict.fromkeys(names))
