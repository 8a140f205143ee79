"""What the map needs beside the corpus: places of cities, streets, roads and coasts.

Cities and their positions are real (GeoNames, by way of deep search's corpus). Roads, streets and
the places in cities are made up: roads join neighbouring cities, and go on straight where they can.
"""

from __future__ import annotations

import math
import random
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentgym_rl.envs.scenarios.web.sites.town.seeds.coasts import make_coasts
from agentgym_rl.envs.scenarios.web.sites.town.seeds.corpus import City
from agentgym_rl.envs.scenarios.web.sites.town.seeds.people import words
from agentgym_rl.envs.scenarios.web.sites.town.seeds.places import Place, make_places

MIN_POPULATION = 50_000
_NUM_NEIGHBOURS = 4
_CELL = 0.7
"""Degrees of a cell in which neighbours are looked for."""
_MAX_KM = 320.0
_MAX_BEND = 40.0
"""Degrees by which a road may bend at a city and still be the same road."""
_MOTORWAY_KM = 180.0
_EARTH_KM = 6371.0


@dataclass(frozen=True)
class Node:
    """A place where roads meet."""

    id: int
    lat: float
    lon: float
    name: str
    """Of a city; empty at the corners of streets."""


@dataclass
class Edge:
    """A piece of road between two nodes."""

    a: int
    b: int
    km: float
    road: str
    kind: str
    """motorway (cars only), road or street."""


def distance_km(a_lat: float, a_lon: float, b_lat: float, b_lon: float) -> float:
    """Return the distance of two points on the globe."""
    p, q = math.radians(a_lat), math.radians(b_lat)
    half = (
        math.sin((q - p) / 2) ** 2
        + math.cos(p) * math.cos(q) * math.sin(math.radians(b_lon - a_lon) / 2) ** 2
    )
    return 2 * _EARTH_KM * math.asin(math.sqrt(half))


def bearing(a: Node, b: Node) -> float:
    """Return the direction from one node to another in degrees; 0 is north, 90 is east."""
    east = math.radians(b.lon - a.lon) * math.cos(math.radians((a.lat + b.lat) / 2))
    return math.degrees(math.atan2(east, math.radians(b.lat - a.lat))) % 360


def write_atlas(database: sqlite3.Connection, cities: Sequence[City]) -> None:
    """Write places, road graph and coasts."""
    database.executescript("""
        CREATE TABLE place (id INTEGER PRIMARY KEY, name TEXT, kind TEXT, lat REAL, lon REAL,
            population INTEGER, city TEXT, country TEXT, address TEXT, phone TEXT, hours TEXT,
            website TEXT, stars INTEGER, node INTEGER, article TEXT);
        CREATE INDEX place_position ON place (lat, lon);
        CREATE INDEX place_city ON place (city, kind);
        CREATE TABLE node (id INTEGER PRIMARY KEY, lat REAL, lon REAL, name TEXT);
        CREATE TABLE edge (a INTEGER, b INTEGER, km REAL, road TEXT, kind TEXT);
        CREATE TABLE coast (id INTEGER PRIMARY KEY, south REAL, west REAL, north REAL, east REAL,
            points TEXT);
        CREATE VIRTUAL TABLE place_search USING fts5(name, kind, city, country, address,
            tokenize='unicode61 remove_diacritics 2');
    """)
    chosen = [city for city in cities if city.population >= MIN_POPULATION]
    nodes = [
        Node(number, city.lat, city.lon, city.name) for number, city in enumerate(chosen, start=1)
    ]
    edges = list(_roads(nodes, [city.country for city in chosen]))
    places = [_place_of(city, node.id) for city, node in zip(chosen, nodes, strict=True)]
    rng = random.Random("streets")
    data = words("places")
    towns = {(str(a), str(b)) for a, b in data["towns"]}  # type: ignore[misc]  # pairs of a list
    for city, node in zip(list(chosen), list(nodes), strict=True):
        if (city.name, city.country) in towns:
            towns.remove((city.name, city.country))
            corners, streets = _streets(rng, city, node, len(nodes) + 1)
            nodes += corners
            edges += streets
            places += make_places(rng, city, corners, streets)
    database.executemany(
        "INSERT INTO coast (south, west, north, east, points) VALUES (?,?,?,?,?)",
        list(make_coasts(cities)),
    )
    database.executemany(
        "INSERT INTO node VALUES (?,?,?,?)",
        [(one.id, round(one.lat, 5), round(one.lon, 5), one.name) for one in nodes],
    )
    database.executemany(
        "INSERT INTO edge VALUES (?,?,?,?,?)",
        [(one.a, one.b, round(one.km, 3), one.road, one.kind) for one in edges],
    )
    for number, place in enumerate(places, start=1):
        database.execute(
            "INSERT INTO place VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (number, place.name, place.kind, round(place.lat, 5), round(place.lon, 5),
             place.population, place.city, place.country, place.address, place.phone, place.hours,
             place.website, place.stars, place.node, place.article),
        )  # fmt: skip
        database.execute(
            "INSERT INTO place_search (rowid, name, kind, city, country, address)"
            " VALUES (?,?,?,?,?,?)",
            (number, place.name, place.kind, place.city, place.country, place.address),
        )


def _place_of(city: City, node: int) -> Place:
    kind = "City" if city.population >= 100_000 else "Town"
    article = city.title if city.population >= 100_000 else ""
    return Place(
        city.name, kind, city.lat, city.lon, city.name, city.country, node,
        population=city.population, article=article,
    )  # fmt: skip


def _roads(nodes: Sequence[Node], countries: Sequence[str]) -> Iterator[Edge]:
    """Yield roads between neighbouring cities; every country numbers its own."""
    pairs: dict[tuple[int, int], float] = {}
    for node, near in _neighbours(nodes):
        km = distance_km(node.lat, node.lon, near.lat, near.lon)
        if km <= _MAX_KM:
            pairs[min(node.id, near.id), max(node.id, near.id)] = km * 1.14
    by_id = {node.id: node for node in nodes}
    chains = _chains(by_id, pairs)
    numbers = Counter[tuple[str, str]]()
    for chain in sorted(chains, key=lambda chain: (-sum(pairs[one] for one in chain), chain[0])):
        kind = "motorway" if sum(pairs[one] for one in chain) >= _MOTORWAY_KM else "road"
        country = countries[chain[0][0] - 1]
        numbers[country, kind] += 1
        number = numbers[country, kind]
        name = f"{'M' if kind == 'motorway' else 'R'} {number}"
        for pair in chain:
            yield Edge(*pair, pairs[pair], name, kind)
            if kind == "motorway":  # the old road beside it, for bikes and feet
                yield Edge(*pair, pairs[pair] * 1.08, f"B {number}", "road")


def _neighbours(nodes: Sequence[Node]) -> Iterator[tuple[Node, Node]]:
    """Yield every node with each of its nearest ones."""
    cells: dict[tuple[int, int], list[Node]] = defaultdict(list)
    for node in nodes:
        cells[int(node.lat // _CELL), int(node.lon // _CELL)].append(node)
    for node in nodes:
        row, column = int(node.lat // _CELL), int(node.lon // _CELL)
        shrink = math.cos(math.radians(node.lat)) ** 2
        near: list[tuple[float, int, Node]] = []
        for reach in (1, 2, 5):  # wider where there are few
            near = [
                (
                    (other.lat - node.lat) ** 2 + shrink * (other.lon - node.lon) ** 2,
                    other.id,
                    other,
                )
                for r in range(row - reach, row + reach + 1)
                for c in range(column - reach, column + reach + 1)
                for other in cells.get((r, c), ())
                if other is not node
            ]
            if len(near) >= 2 * _NUM_NEIGHBOURS:
                break
        for _, _, other in sorted(near)[:_NUM_NEIGHBOURS]:
            yield node, other


def _chains(
    by_id: dict[int, Node], pairs: dict[tuple[int, int], float]
) -> list[list[tuple[int, int]]]:
    """Join pieces that go on straight at their ends."""
    at: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for pair in pairs:
        at[pair[0]].append(pair)
        at[pair[1]].append(pair)
    root: dict[tuple[int, int], tuple[int, int]] = {pair: pair for pair in pairs}

    def find(pair: tuple[int, int]) -> tuple[int, int]:
        while root[pair] != pair:
            root[pair] = root[root[pair]]
            pair = root[pair]
        return pair

    for number, here in at.items():
        node = by_id[number]
        ways = {
            pair: bearing(node, by_id[pair[0] if pair[1] == number else pair[1]]) for pair in here
        }
        bends = sorted(
            (abs(abs((ways[p] - ways[q] + 180) % 360 - 180) - 180), p, q)
            for i, p in enumerate(here)
            for q in here[i + 1 :]
        )
        used = set[tuple[int, int]]()
        for bend, p, q in bends:
            if bend <= _MAX_BEND and p not in used and q not in used:
                used |= {p, q}
                root[find(p)] = find(q)
    chains: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for pair in pairs:
        chains[find(pair)].append(pair)
    return list(chains.values())


def _streets(
    rng: random.Random, city: City, centre: Node, first_id: int
) -> tuple[list[Node], list[Edge]]:
    """Return the corners and streets of a city: a crooked grid, joined to its centre."""
    size = 7
    data = words("places")
    names = rng.sample([str(one) for one in data["streets"]], 2 * size)  # type: ignore[union-attr]
    step = 0.0042
    corners: list[Node] = []
    for row in range(size):
        for column in range(size):
            lat = city.lat + (row - size // 2) * step + rng.uniform(-0.3, 0.3) * step
            lon = city.lon + (
                (column - size // 2) * step + rng.uniform(-0.3, 0.3) * step
            ) / math.cos(math.radians(city.lat))
            corners.append(Node(first_id + len(corners), lat, lon, ""))
    edges: list[Edge] = []

    def join(p: Node, q: Node, name: str) -> None:
        km = distance_km(p.lat, p.lon, q.lat, q.lon) * 1.02
        edges.append(Edge(p.id, q.id, km, name, "street"))

    for row in range(size):
        for column in range(size):
            here = corners[row * size + column]
            if column + 1 < size and rng.random() < 0.94:
                join(here, corners[row * size + column + 1], names[row])
            if row + 1 < size and rng.random() < 0.94:
                join(here, corners[(row + 1) * size + column], names[size + column])
    middle = corners[(size // 2) * size + size // 2]
    join(centre, middle, names[size // 2])
    return corners, edges
