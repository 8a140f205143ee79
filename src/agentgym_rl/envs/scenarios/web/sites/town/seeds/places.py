"""Museums, hotels, cafés and the like in the cities that have streets: `make_places`."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentgym_rl.envs.scenarios.web.sites.town.seeds.corpus import City
from agentgym_rl.envs.scenarios.web.sites.town.seeds.people import words

_SLOT = re.compile(r"\{(\w+)\}")


class Corner(Protocol):
    """Where streets meet."""

    @property
    def id(self) -> int: ...
    @property
    def lat(self) -> float: ...
    @property
    def lon(self) -> float: ...


class Street(Protocol):
    """A piece of street between two corners."""

    a: int
    b: int
    road: str


@dataclass(frozen=True)
class Place:
    """Something that the map can show."""

    name: str
    kind: str
    lat: float
    lon: float
    city: str
    country: str
    node: int
    """Of the road graph, where directions begin."""
    population: int = 0
    address: str = ""
    phone: str = ""
    hours: str = ""
    website: str = ""
    stars: int = 0
    article: str = ""
    """Of the encyclopedia."""


def make_places(
    rng: random.Random, city: City, corners: Sequence[Corner], streets: Sequence[Street]
) -> Iterator[Place]:
    """Yield the places of a city. Names are unique within it."""
    data = words("places")
    lists = {key: value for key, value in data.items() if isinstance(value, list)}
    kinds = data["kinds"]
    assert isinstance(kinds, dict)
    by_id = {corner.id: corner for corner in corners}
    inner = [one for one in streets if one.a in by_id and one.b in by_id]
    taken = set[str]()
    for kind, entry in kinds.items():
        for _ in range(entry["count"]):
            name = _name(rng, rng.choice(entry["names"]), lists, city.name)
            while name in taken:
                name = _name(rng, rng.choice(entry["names"]), lists, city.name)
            taken.add(name)
            street = rng.choice(inner)
            start, end = by_id[street.a], by_id[street.b]
            share = rng.uniform(0.1, 0.4)
            slug = "".join(c for c in name.lower() if c.isascii() and c.isalnum())
            yield Place(
                name, kind,
                start.lat + (end.lat - start.lat) * share + 0.00012,
                start.lon + (end.lon - start.lon) * share + 0.00012,
                city.name, city.country, start.id,
                address=f"{rng.randrange(1, 140)} {street.road}, {city.name}",
                phone=_phone(rng),
                hours=rng.choice(entry["hours"]),
                website=f"{slug}.example" if rng.random() < 0.8 else "",
                stars=rng.randrange(2, 6) if kind == "Hotel" else 0,
            )  # fmt: skip


def _phone(rng: random.Random) -> str:
    return f"+{rng.randrange(20, 99)} {rng.randrange(100, 999)} {rng.randrange(1000, 9999)}"


def _name(rng: random.Random, pattern: str, lists: dict[str, list[str]], city: str) -> str:
    words_of = {"first": "first", "second": "second", "subject": "subjects", "saint": "saints"}
    return _SLOT.sub(
        lambda match: city if match[1] == "city" else rng.choice(lists[words_of[match[1]]]), pattern
    )
