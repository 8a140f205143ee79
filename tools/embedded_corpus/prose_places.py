"""Passages on cities and on countries.

A city's passage is written here. The passages of a country are the Factbook's own text, in pieces
of a readable size, each titled with the country and what it is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agentgym_rl.retrieval.passages import Passage
from tools.embedded_corpus.cities import City
from tools.embedded_corpus.countries import Country, Field
from tools.embedded_corpus.names import listed, pick, with_article

_SHORT = 220
"""Fields of fewer letters share a passage with what follows in the section."""
_FULL = 500
_MAX = 1100
"""A longer field is cut at the ends of sentences."""
_MAX_ASKED = 400
"""The same for what questions ask about, so that the main fact is not one of many."""
_MAX_OTHER_NAMES = 3
_BIG_RANKS = 300
_ALONE = frozenset(
    {"Background", "Location", "Land boundaries", "Elevation", "Capital", "National anthem(s)"}
    | {"Internet country code", "Median age", "Area", "Legislative branch", "Country name"}
)
"""What questions ask about; a passage begins with each."""

_SENTENCES = {
    "Location": "{country} is located in {text}.",
    "Climate": "The climate of {country} is {text}.",
    "Terrain": "The terrain of {country} is {text}.",
    "Coastline": "The coastline of {country} measures {text}.",
    "Natural resources": "Natural resources of {country} include {text}.",
    "Natural hazards": "Natural hazards in {country}: {text}.",
    "Government type": "The form of government of {country} is: {text}.",
    "Internet country code": "The internet country code (top-level domain) of {country} is {text}.",
    "National symbol(s)": "The national symbols of {country} are {text}.",
    "Industries": "The main industries of {country} are {text}.",
    "Agricultural products": "The main agricultural products of {country} are {text}.",
    "Land boundaries": "Land boundaries and border countries of {country}: {text}.",
    "Elevation": "Elevation of {country}, with its highest point and lowest point: {text}.",
    "Median age": "Median age of the population of {country}: {text}.",
    "Capital": "Capital city of {country}: {text}.",
    "National anthem(s)": "National anthem of {country}: {text}.",
    "Area": "Area of {country}: {text}.",
}


def city_passage(city: City, title: str, country: str) -> Passage:
    """Return the passage on a city; `country` is the name of its country."""
    country = with_article(country)
    place = f"{city.state}, {country}" if city.state else country
    sentences = [_city_opening(city, place)]
    if city.rank <= _BIG_RANKS and city.rank > 1:
        sentences.append(f"By population it is number {city.rank} among the cities of {country}.")
    elif city.rank == 1:
        sentences.append(f"It is the most populous city of {country}.")
    latitude = f"{abs(city.latitude):.2f}° {'N' if city.latitude >= 0 else 'S'}"
    longitude = f"{abs(city.longitude):.2f}° {'E' if city.longitude >= 0 else 'W'}"
    sentences.append(f"It lies at {latitude}, {longitude} and keeps the time zone {city.timezone}.")
    if city.neighbour:
        near = city.neighbour
        sentences.append(
            f"The nearest other city of the gazetteer is {near.name}, about {near.km} km to the "
            f"{near.direction}."
        )
    if city.other_names:
        names = listed(city.other_names[:_MAX_OTHER_NAMES])
        sentences.append(f"Other names and spellings of {city.name} are {names}.")
    return Passage(city.id, title, " ".join(sentences))


def _city_opening(city: City, place: str) -> str:
    people = f"{city.population:,}"
    kind = "city" if city.population >= 100_000 else "town"
    return pick(
        (
            f"{city.name} is a {kind} in {place} with a population of {people}.",
            f"{city.name}, a {kind} in {place}, has {people} inhabitants.",
            f"{city.name} is a {kind} of {people} inhabitants in {place}.",
        ),
        city.id,
    )


def country_passages(country: Country) -> Iterator[Passage]:
    """Yield the country's passages in the order of the Factbook."""
    for fields in _groups(country.fields):
        names = [_label(field.name) for field in fields]
        title = f"{country.name}: {listed(names[:3])}"
        text = " ".join(_sentence(country, field) for field in fields)
        # Of neighbours all are asked about, so their list stays whole.
        is_short = fields[0].name in _ALONE and fields[0].name != "Land boundaries"
        limit = _MAX_ASKED if is_short else _MAX
        for number, piece in enumerate(_pieces(text, limit)):
            # The id of a field's first passage is what a question's hop points to.
            suffix = f"-part-{number + 1}" if number else ""
            heading = f"{title} (part {number + 1})" if number else title
            yield Passage(country.passage_id(fields[0].name) + suffix, heading, piece)


def _groups(fields: Sequence[Field]) -> Iterator[list[Field]]:
    """Yield runs of short fields of one section, and every other field by itself."""
    group: list[Field] = []
    for field in fields:
        is_full = sum(len(other.text) for other in group) + len(field.text) > _FULL
        if group and (is_full or field.section != group[0].section or field.name in _ALONE):
            yield group
            group = []
        group.append(field)
        if len(field.text) > _SHORT:
            yield group
            group = []
    if group:
        yield group


def _label(name: str) -> str:
    return re.sub(r"\((\w)\)", r"\1", name).replace(" - ", ", ")


def _sentence(country: Country, field: Field) -> str:
    wording = _SENTENCES.get(field.name, f"{_label(field.name)} of {{country}}: {{text}}.")
    if field.name == "Background":
        wording = "{text}."
    text = wording.format(country=country.name, text=field.text.rstrip(" .;"))
    lead = _lead(country, field.name)
    return f"{lead} {text}" if lead else text


def _lead(country: Country, field: str) -> str:
    """Return the field's main fact as a sentence of its own, where it is known for sure."""
    name = country.name
    if field == "Capital" and country.capital:
        return f"The capital of {name} is {country.capital[0]}."
    if field == "Elevation" and country.highest_point:
        return f"The highest point of {name} is {country.highest_point[0]}."
    if field == "National anthem(s)" and country.anthem:
        return f'The national anthem of {name} is "{country.anthem[0]}".'
    if field == "Legislative branch" and country.legislature:
        return f"The national legislature of {name} is called {country.legislature[0]}."
    if field == "Median age" and country.median_age:
        return f"In {name}, the median age is {country.median_age:g} years."
    if field == "Area" and country.area_km2:
        return f"{name} has a total area of {country.area_km2:,.0f} square kilometres."
    return ""


def _pieces(text: str, limit: int) -> Iterator[str]:
    """Yield the text in pieces that end with a sentence or, failing that, with a clause."""
    while len(text) > limit:
        cut = max(text.rfind(mark, limit // 2, limit) for mark in (". ", "; "))
        cut = cut if cut > 0 else text.rfind(" ", limit // 2, limit)
        cut = cut if cut > 0 else limit
        yield text[: cut + 1].strip()
        text = text[cut + 1 :].strip()
    yield text
