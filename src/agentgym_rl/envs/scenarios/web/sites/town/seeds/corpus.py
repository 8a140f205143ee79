"""Deep search's corpus as facts: passages, cities, films (`read_passages`, `read_cities`...).

The sentences were written by a generator (tools/embedded_corpus), so their forms are known.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

import orjson

_CORPUS = resources.files("agentgym_rl") / "envs/scenarios/searchqa/data/corpus.jsonl.xz"
_CITY = re.compile(
    r"(?P<name>.+?)(?: is|,) a (?:city|town)(?: of (?P<p1>[\d,]+) inhabitants)? in (?P<place>.+?)"
    r"(?: with a population of (?P<p2>[\d,]+)|, has (?P<p3>[\d,]+) inhabitants)?\. "
)
_POSITION = re.compile(r"It lies at ([\d.]+)° ([NS]), ([\d.]+)° ([EW]) and keeps .*? zone (\S+)\.")
_FILM = re.compile(
    r"(?:is an? (?:(?P<y1>\d{4}) )?|^)(?P<genres>[a-z][a-z \-]*?) ?film from (?P<countries>.+?)"
    r"(?:, released in (?P<y2>\d{4}))?\. "
)
SEPARATORS = re.compile(
    r"(, | and |; |(?<=\w\w)\.(?: |$)| from a screenplay by | by |cast includes |also includes "
    r"|stars | are | directed it)"
)
"""What stands between the names of people in a film's text."""


@dataclass(frozen=True)
class City:
    """A city or town of the gazetteer."""

    id: int
    title: str
    """Unlike the name, the only one of its kind: "Paris (France)"."""
    name: str
    country: str
    """Of its article, e.g. "United States"."""
    population: int
    lat: float
    lon: float
    zone: str
    text: str


@dataclass(frozen=True)
class Film:
    """A film."""

    id: str
    title: str
    year: int
    genres: str
    countries: tuple[str, ...]
    minutes: int
    num_won: int
    num_nominated: int
    text: str
    cast_text: str
    """The passage on further members of the cast, or nothing."""


def read_passages() -> Mapping[str, tuple[str, str]]:
    """Return id -> (title, text) of every passage."""
    found = {}
    with _CORPUS.open("rb") as packed, lzma.open(packed) as lines:
        for line in lines:
            row = orjson.loads(line)
            title, _, text = row["contents"].partition("\n")
            found[row["id"]] = (title.strip('"'), text)
    return found


def read_cities(passages: Mapping[str, tuple[str, str]]) -> list[City]:
    """Return all cities, the largest first."""
    cities = []
    for key, (title, text) in passages.items():
        if not key.startswith("city-"):
            continue
        head, position = _CITY.match(text), _POSITION.search(text)
        assert head is not None, text
        assert position is not None, text
        country = head["place"].rpartition(", ")[2].removeprefix("the ")
        number = int((head["p1"] or head["p2"] or head["p3"]).replace(",", ""))
        lat = float(position[1]) * (1 if position[2] == "N" else -1)
        lon = float(position[3]) * (1 if position[4] == "E" else -1)
        city_id = int(key.removeprefix("city-"))
        cities.append(
            City(city_id, title, head["name"], country, number, lat, lon, position[5], text)
        )
    return sorted(cities, key=lambda city: (-city.population, city.id))


def read_films(passages: Mapping[str, tuple[str, str]]) -> list[Film]:
    """Return the films that won or were nominated for an Academy Award."""
    films = []
    for key, (title, text) in passages.items():
        if not key.startswith("film-") or key.endswith("-cast") or "Academy Award" not in text:
            continue
        head = _FILM.search(text)
        year = re.search(r"\((\d{4}) film\)", title) or re.search(r"\b(1[89]\d\d|20\d\d)\b", text)
        assert year is not None, text
        minutes = re.search(r"runs (\d+) minutes", text)
        won = re.search(r"won (\d+) Academy", text)
        named = re.search(r"nominated for (\d+) Academy", text)
        countries = _listed(head["countries"]) if head else ()
        films.append(
            Film(
                key, title, int(year[1]), head["genres"].strip() if head else "", countries,
                int(minutes[1]) if minutes else 0, int(won[1]) if won else 0,
                int(named[1]) if named else 0, text, passages.get(f"{key}-cast", ("", ""))[1],
            )
        )  # fmt: skip
    return films


def names_in(film: Film) -> set[str]:
    """Return what may be names of people in a film's text."""
    return set(SEPARATORS.split(film.text)) | set(SEPARATORS.split(film.cast_text))


def _listed(text: str) -> tuple[str, ...]:
    """ "A, the B and C" -> ("A", "B", "C")."""
    return tuple(one.removeprefix("the ").strip() for one in re.split(r", | and ", text))
